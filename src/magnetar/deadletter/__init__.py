"""Dead letters in words that broker, admin, CLI and pipelines share: topic names, message properties, tallies."""

"""Dead letters, shared by broker, admin, CLI and pipelines: topic names, message properties, counts."""

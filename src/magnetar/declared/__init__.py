"""Declared pipelines (processes, redrives, archives) in words that broker, command line and pipelines share."""

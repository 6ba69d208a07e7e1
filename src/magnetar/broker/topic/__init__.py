"""Topics: publishing, the log, producers, deduplication, delayed messages."""

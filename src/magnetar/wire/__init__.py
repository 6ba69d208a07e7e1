"""Pulsar's binary protocol as bytes: frames, commands, entries, batches. No I/O, no clock, no broker state."""

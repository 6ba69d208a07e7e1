"""Pulsar's binary protocol as bytes: frames, commands, metadata, batches. No I/O, no clock, no state of a broker."""

"""A deterministic simulation: one seed decides clients, time, the disk and every crash.

`python -m tests.simulation` runs seeds until one fails, `python -m tests.simulation SEED` replays one.
"""

"""A seeded simulation of faults that are not crashes: a vandal, planted exceptions, and a disk that cannot be read.

The rule after each: it is refused with a reason, or nothing is lost. `python -m tests.survival` runs seeds until one
fails, `python -m tests.survival SEED` replays one. The simulation of crashes, with a model of every position, is in
`tests.simulation`.
"""

"""Fuzzing: hostile input for every command and every REST route, under limits of memory and CPU time.

`python -m tests.fuzz` runs new inputs for hours; `make test` replays the corpus and some fixed seeds.
"""

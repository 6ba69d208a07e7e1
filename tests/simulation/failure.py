"""The error of the simulation, raised when the broker breaks a promise."""

from __future__ import annotations


class BrokenPromise(AssertionError):
    """The observed behaviour, and the promised one."""


def expect(holds: object, broken: str) -> None:
    if not holds:
        raise BrokenPromise(broken)

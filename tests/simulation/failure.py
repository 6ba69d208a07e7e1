"""The one error that the simulation raises when the broker broke a promise."""

from __future__ import annotations


class BrokenPromise(AssertionError):
    """What the broker did, and what it had promised."""


def expect(holds: object, broken: str) -> None:
    if not holds:
        raise BrokenPromise(broken)

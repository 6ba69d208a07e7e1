"""Addresses that the broker listens on: which of them other machines reach."""

from __future__ import annotations


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it."""
    return address in ("localhost", "::1") or address.startswith("127.")

"""Addresses that the broker listens on: which of them other machines reach."""

from __future__ import annotations

import re

_LOOPBACK = re.compile(r"127(\.[0-9]{1,3}){1,3}")  # not the name 127.example


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches it."""
    return address in ("localhost", "::1") or _LOOPBACK.fullmatch(address) is not None

"""Fingerprints of failures: what failures of the same cause have in common.

Made of the class of the exception, its text without numbers, ids and quoted values, and the functions on its stack.
Failures of clients have a text only: its exception is the word that most languages begin such a text with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

SIZE = 12
_FRAMES_MAX = 5  # the ones nearest to the exception
_TEXT_MAX = 1000

_EXCEPTION = re.compile(
    r"\s*((?:[A-Za-z_$][\w$]*[.:]{1,2})*[A-Z][\w$]*(?:Error|Exception|Failure|Timeout|Interrupt|Exit))\b"
)
_VARIABLE = re.compile(
    r"""
    \b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b   # a UUID
  | "[^"]*" | '[^']*' | `[^`]*`                                # a quoted value
  | \b0[xX][0-9a-fA-F]+\b | \b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{8,}\b   # an address, a hash
  | -?\d+(?:[.,:]\d+)*                                         # a number, a time
    """,
    re.VERBOSE,
)


def exception_in(text: str) -> str:
    """The class that an error text begins with, such as `ValueError` of `ValueError: no amount`; "" without one."""
    found = _EXCEPTION.match(text[:_TEXT_MAX])
    return found[1] if found else ""


def shape_of(text: str) -> str:
    """The text without what differs from message to message."""
    return " ".join(_VARIABLE.sub("?", text[:_TEXT_MAX]).split())


def fingerprint(exception: str, text: str, frames: Iterable[str] = ()) -> str:
    """`frames` are the functions of the stack as `module:function`, the one that raised last."""
    parts = (exception, shape_of(text), *list(frames)[-_FRAMES_MAX:])
    return sha256("\n".join(parts).encode(errors="replace")).hexdigest()[:SIZE]

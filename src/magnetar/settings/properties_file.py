"""Pulsar's `.conf` files, in the format of Java properties: `key=value`, `#` comments, `\\` continuation.

Owns the syntax only; it knows no keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROL_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
# The key ends at the first separator that no backslash precedes.
_KEY = re.compile(r"(?P<key>(?:\\.|[^\\=:\s])*)\s*[=:]?\s*(?P<value>.*)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """The pairs of a file; of a repeated key the last value counts."""
    pairs: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        assert match is not None, "the pattern matches every text"
        pairs[_unescape(match["key"])] = _unescape(match["value"]).rstrip()
    return pairs


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones, joined where a line ends in an odd number of backslashes."""
    pending = ""
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code, char = match.groups()
        return chr(int(code, 16)) if code else _CONTROL_ESCAPES.get(char, char)

    return _ESCAPED.sub(replace, text) if "\\" in text else text

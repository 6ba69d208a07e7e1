"""Pulsar's `.conf` files, in the format of Java properties: `key=value`, `#` comments, `\\` continuation.

Owns the syntax only; it knows no keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROL_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {"\\": "\\\\", **{char: f"\\{letter}" for letter, char in _CONTROL_ESCAPES.items()}}
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


def property_line(name: str, value: str) -> str:
    """A line of a file, in ASCII, that is read as this pair; spaces at the end of a value are not kept."""
    start = "\\" if value.startswith(" ") else ""
    return f"{name}={start}{''.join(map(_escape, value))}"


def _escape(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if " " <= char <= "~":
        return char
    code = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[start : start + 4]}" for start in range(0, len(code), 4))


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

    if "\\" not in text:
        return text
    # A character beyond 16 bits is two escapes, as in Java.
    return _ESCAPED.sub(replace, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")

"""Kinds of setting values: how each is read from text, shown, checked and described.

Owns no setting; those are in `settings`.
"""

from __future__ import annotations

import re
from typing import Any, get_args

from magnetar.settings.listeners import parse_listeners


class Whole:
    """A whole number within bounds."""

    __slots__ = ("high", "low", "meaning")

    def __init__(self, low: int, high: int, meaning: str) -> None:
        self.low, self.high, self.meaning = low, high, meaning

    @property
    def allowed(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def read(self, text: str) -> object:
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None

    def show(self, value: Any) -> str:
        return str(value)

    def permits(self, value: object) -> bool:
        return type(value) is int and self.low <= value <= self.high


class Port:
    """The number of a port, or none: an empty text turns it off."""

    __slots__ = ("meaning",)
    allowed = "a whole number from 0 to 65535, or empty"

    def __init__(self, meaning: str) -> None:
        self.meaning = meaning

    def read(self, text: str) -> object:
        if not text:
            return None
        return int(text) if re.fullmatch(r"[0-9]{1,5}", text) else text

    def show(self, value: Any) -> str:
        return "" if value is None else str(value)

    def permits(self, value: object) -> bool:
        return value is None or (type(value) is int and 0 <= value <= 65535)


class Number:
    """A number with a fraction, within bounds."""

    __slots__ = ("high", "low", "meaning")

    def __init__(self, low: int, high: int, meaning: str) -> None:
        self.low, self.high, self.meaning = low, high, meaning

    @property
    def allowed(self) -> str:
        return f"a number from {self.low} to {self.high}"

    def read(self, text: str) -> object:
        return float(text) if re.fullmatch(r"[+-]?[0-9]{1,19}(\.[0-9]{1,19})?", text) else None

    def show(self, value: Any) -> str:
        return f"{value:g}"

    def permits(self, value: object) -> bool:
        return type(value) in (int, float) and self.low <= value <= self.high  # type: ignore[operator]


class Flag:
    """True or false."""

    __slots__ = ("meaning",)
    allowed = "true or false"

    def __init__(self, meaning: str) -> None:
        self.meaning = meaning

    def read(self, text: str) -> object:
        return {"true": True, "false": False}.get(text.lower())

    def show(self, value: Any) -> str:
        return "true" if value else "false"

    def permits(self, value: object) -> bool:
        return type(value) is bool


class Text:
    """A text that matches a pattern."""

    __slots__ = ("allowed", "meaning", "pattern")

    def __init__(self, pattern: str, allowed: str, meaning: str) -> None:
        self.pattern, self.allowed, self.meaning = pattern, allowed, meaning

    def read(self, text: str) -> object:
        return text

    def show(self, value: Any) -> str:
        return str(value)

    def permits(self, value: object) -> bool:
        return type(value) is str and re.fullmatch(self.pattern, value, re.ASCII) is not None


class Choice:
    """One of several words."""

    __slots__ = ("choices", "meaning")

    def __init__(self, choices: object, meaning: str) -> None:
        self.choices, self.meaning = get_args(choices), meaning

    @property
    def allowed(self) -> str:
        return "one of " + ", ".join(self.choices)

    def read(self, text: str) -> object:
        return text

    def show(self, value: Any) -> str:
        return str(value)

    def permits(self, value: object) -> bool:
        return value in self.choices


class Choices:
    """Any of several words, separated by commas."""

    __slots__ = ("choices", "meaning")

    def __init__(self, choices: object, meaning: str) -> None:
        self.choices, self.meaning = get_args(choices), meaning

    @property
    def allowed(self) -> str:
        return "one or more, separated by commas, of " + ", ".join(self.choices)

    def read(self, text: str) -> object:
        return frozenset(word.strip() for word in text.split(","))

    def show(self, value: Any) -> str:
        return ",".join(choice for choice in self.choices if choice in value)

    def permits(self, value: object) -> bool:
        return isinstance(value, frozenset) and bool(value) and value.issubset(self.choices)


class Listeners:
    """Named addresses, separated by commas."""

    __slots__ = ("meaning",)
    allowed = "a list of name:scheme://host:port with pulsar, pulsar+ssl, http and https, each scheme once for a name"

    def __init__(self, meaning: str) -> None:
        self.meaning = meaning

    def read(self, text: str) -> object:
        return text

    def show(self, value: Any) -> str:
        return str(value)

    def permits(self, value: object) -> bool:
        try:
            return isinstance(value, str) and parse_listeners(value) is not None
        except ValueError:
            return False


Kind = Listeners | Whole | Port | Number | Flag | Text | Choice | Choices

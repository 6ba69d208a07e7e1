"""An option: its name, use and allowed values; and the given options, parsed or rejected.

Owns no table: they are in `client_options`, `source.options` and `sink.options`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from typing import Any

from magnetar.settings.kinds import Kind, Text
from magnetar.spark.errors import InvalidOption
from magnetar.spark.kafka_options import kafka_hint


class Use(Flag):
    """The operations that an option applies to."""

    BATCH = auto()
    STREAM = auto()
    WRITE = auto()
    READ = BATCH | STREAM
    ALL = READ | WRITE


_USE_NAMES = {Use.BATCH: "batch reads", Use.STREAM: "streams", Use.WRITE: "writes"}


@dataclass(frozen=True)
class Option:
    name: str
    use: Use
    kind: Kind
    default: object = None

    @property
    def used_in(self) -> str:
        return " and ".join(name for use, name in _USE_NAMES.items() if use in self.use)


def any_text(meaning: str, allowed: str = "a text") -> Text:
    return Text(r"(?s).*\S.*", allowed, meaning)


class GivenOptions:
    """The options of one read or write, parsed by the table. Raises `InvalidOption`, which names the option."""

    def __init__(self, options: Mapping[str, str], use: Use, table: Sequence[Option]) -> None:
        self._table = {option.name.lower(): option for option in table}
        self._values: dict[str, Any] = {}
        for key, text in options.items():
            option = self._option(key, use)
            self._values[option.name] = _value(option, text)

    def _option(self, key: str, use: Use) -> Option:
        option = self._table.get(key.lower())
        if option is None:
            kafka = kafka_hint(key)
            if kafka is not None:
                raise InvalidOption(f"option {key} is Kafka's: here, use {_plain(kafka)}")
            names = {low: option.name for low, option in self._table.items() if option.use & use}
            near = difflib.get_close_matches(key.lower(), names, n=1, cutoff=0.6)
            hint = (
                f"did you mean {names[near[0]]}?" if near else f"known options are {', '.join(sorted(names.values()))}"
            )
            raise InvalidOption(f"unknown option {key}: {hint}")
        if not option.use & use:
            raise InvalidOption(f"option {option.name} applies to {option.used_in} only")
        return option

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> Any:
        """The value, the default, or None."""
        return self._values.get(name, self._table[name.lower()].default)

    def one_of(self, *names: str) -> str:
        """The one of these options that was given."""
        given = [name for name in names if name in self._values]
        if len(given) != 1:
            raise InvalidOption(
                f"exactly one of the options {', '.join(names)} is required, got {' and '.join(given) or 'none'}"
            )
        return given[0]


def _value(option: Option, text: str) -> object:
    if not text.strip():
        raise InvalidOption(f"option {option.name} is empty: it must be {_plain(option.kind.allowed)}")
    value = option.kind.read(text.strip())
    if value is None or not option.kind.permits(value):
        raise InvalidOption(f"option {option.name} is {shortened(text)}: it must be {_plain(option.kind.allowed)}")
    return value


def _plain(allowed: str) -> str:
    return allowed.replace("`", "")


def shortened(value: object) -> str:
    """A value as errors show it."""
    text = value if isinstance(value, str) else repr(value)
    return ascii(text if len(text) <= 100 else text[:100] + "...")

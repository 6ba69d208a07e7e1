"""Builders of the columns of dead letters: one function per column, given the entries of a record batch.

Each column that is asked for costs time of its own; what several need is computed once per record batch. The meaning
of the properties is in `deadletter.properties` and `causes`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from magnetar.deadletter.properties import (
    REAL_TOPIC,
    REDRIVE_GENERATION,
    REDRIVE_SUBSCRIPTION,
    DeadLetterInfo,
    FailureRecord,
    origin_of,
    read_count,
    read_history,
    read_info,
    read_reason,
    read_subscription,
)
from magnetar.names import TopicName
from magnetar.spark.codec.column_builders import COLUMN_BUILDERS, ColumnBuilder, keys_of
from magnetar.spark.codec.entry_view import EntryView
from magnetar.spark.dead_letters.causes import error_of, exception_of, fingerprint_of, stack_trace_of
from magnetar.spark.dead_letters.payloads import PayloadDecoder
from magnetar.spark.dead_letters.plan import LetterRange

_MS_MAX = 253_402_300_799_999  # the end of the year 9999
_INT_MAX = (1 << 31) - 1
_TEXT_MAX = 1024  # untrusted


_SAME = {
    "message_id": "__messageIdText",
    "published": "__publishTime",
    "event_time": "__eventTime",
    "__messageId": "__messageId",
    "__schemaVersion": "__schemaVersion",
    "__key": "__key",
    "__orderingKey": "__orderingKey",
}
"""Columns of `format("pulsar")`, under their names here."""

_OF_PROPERTIES: dict[str, Callable[[dict[str, str]], Any]] = {
    "reason": read_reason,
    "count": read_count,
    "exception": exception_of,
    "error": error_of,
    "stack_trace": stack_trace_of,
    "fingerprint": fingerprint_of,
    "topic": lambda properties: origin_of(properties.get(REAL_TOPIC)).topic,
    "partition": lambda properties: origin_of(properties.get(REAL_TOPIC)).partition,
    "generation": lambda properties: _number(properties.get(REDRIVE_GENERATION)) or 0,
    "redrive_subscription": lambda properties: properties.get(REDRIVE_SUBSCRIPTION, "")[:_TEXT_MAX] or None,
}
_OF_INFO: dict[str, Callable[[DeadLetterInfo], Any]] = {
    "origin_message_id": lambda info: info.origin_message_id,
    "description": lambda info: info.description,
    "consumer": lambda info: info.consumer,
    "consumer_address": lambda info: info.consumer_address,
    "client_version": lambda info: info.client_version,
}
_OF_HISTORY: dict[str, Callable[[list[FailureRecord]], Any]] = {
    "first_failure": lambda history: _micros(history[0].first) if history else None,
    "last_failure": lambda history: _micros(history[-1].last) if history else None,
    "deaths": len,
}


class _Parts:
    """The entries of one record batch, with what several columns need."""

    def __init__(self, parts: list[EntryView], dead_letter_topic: TopicName) -> None:
        self.parts = parts
        self._topic = dead_letter_topic

    @cached_property
    def properties(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = []
        for part in self.parts:
            pairs = part.properties()
            found.extend([{}] * part.count if pairs is None else map(dict, pairs))
        return found

    @cached_property
    def infos(self) -> list[DeadLetterInfo]:
        return [read_info(properties, self._topic) for properties in self.properties]

    @cached_property
    def histories(self) -> list[list[FailureRecord]]:
        return [read_history(properties) for properties in self.properties]


class LetterBuilders:
    """The builders of one range. `payloads` decodes; keeps the last decoded batch, whose errors are a column too."""

    def __init__(self, letters: LetterRange, payloads: PayloadDecoder) -> None:
        self._letters = letters
        self._topic = TopicName.parse(letters.span.topic)
        self._payloads = payloads
        self._last: _Parts | None = None
        self._decoded: tuple[list[str | None], list[str | None]] | None = None

    @property
    def by_name(self) -> dict[str, ColumnBuilder]:
        builders: dict[str, ColumnBuilder] = {name: COLUMN_BUILDERS[other] for name, other in _SAME.items()}
        for table, source in ((_OF_PROPERTIES, "properties"), (_OF_INFO, "infos"), (_OF_HISTORY, "histories")):
            for name, read in table.items():
                builders[name] = self._builder(source, read)
        return builders | {
            "letter_topic": self._constant(self._letters.span.topic),
            "__sourceTopic": self._constant(self._letters.span.topic),
            "kind": self._constant(self._letters.kind),
            "subscription": self._builder("properties", lambda properties: read_subscription(properties, self._topic)),
            "properties": self._properties,
            "key": _keys,
            "size": _sizes,
            "handled": self._handled,
            "payload_json": self._payload_json,
            "payload_error": self._payload_error,
        }

    def _of(self, parts: list[EntryView]) -> _Parts:
        if self._last is None or self._last.parts is not parts:
            self._last, self._decoded = _Parts(parts, self._topic), None
        return self._last

    def _builder(self, source: str, read: Callable[[Any], Any]) -> ColumnBuilder:
        def build(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array:
            return pa.array(map(read, getattr(self._of(parts), source)), type_, size=rows)

        return build

    def _constant(self, value: str) -> ColumnBuilder:
        return lambda parts, rows, type_: pa.repeat(pa.scalar(value, type_), rows)

    def _properties(self, parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array:
        return pa.array([list(properties.items()) for properties in self._of(parts).properties], type_, size=rows)

    def _handled(self, parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array | None:
        unacknowledged = self._letters.unacknowledged
        if unacknowledged is None:
            return None
        counts = [part.count for part in parts]
        entries = np.repeat(np.array([part.entry.id.entry_id for part in parts], np.int64), counts)
        ledgers = np.repeat(np.array([part.entry.id.ledger_id for part in parts], np.int64), counts)
        outside = np.full(1, -1, np.int32)
        indexes = np.concatenate([outside if part.indexes is None else part.indexes for part in parts])
        return pa.array(~unacknowledged.mask(entries, indexes.astype(np.int64), ledgers))

    def _payload_json(self, parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array:
        return pa.array(self._decode(parts)[0], type_)

    def _payload_error(self, parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array:
        return pa.array(self._decode(parts)[1], type_)

    def _decode(self, parts: list[EntryView]) -> tuple[list[str | None], list[str | None]]:
        letters = self._of(parts)
        if self._decoded is None:
            self._decoded = self._payloads.decode(parts, letters.properties)
        return self._decoded


def _keys(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array | None:
    keys = keys_of(parts, rows, pa.binary())
    if keys is None:
        return None
    try:
        return keys.cast(type_)
    except pa.ArrowInvalid:
        return pa.array([None if key is None else key_text(key) for key in keys.to_pylist()], type_)


def key_text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(key).decode()}"


def _sizes(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array:
    sizes: list[int] = []
    for part in parts:
        cells = part.payloads()
        if isinstance(cells, np.ndarray):
            sizes.extend([cells.shape[1]] * part.count)
        else:
            sizes.extend(0 if cell is None else len(cell) for cell in cells)
    return pa.array(sizes, type_)


def _number(text: str | None) -> int | None:
    if not text or len(text) > 10 or not text.isascii() or not text.isdecimal():
        return None
    return min(int(text), _INT_MAX)


def _micros(time_ms: int) -> int | None:
    return time_ms * 1000 if 0 < time_ms <= _MS_MAX else None

"""Columns of a written frame: their names and types, and their conversion to messages.

Knows nothing of topics; typed columns are encoded by `codec.value_encoder`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from magnetar.spark.codec.columns import ENTRIES, METADATA, ON_REQUEST, PAIR_KEY, VALUE
from magnetar.spark.errors import InvalidOption, UnwritableRow
from magnetar.spark.sink.batch_encoder import MessageRows

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY, TOPIC, EVENT_TIME, DELIVER_AT = "__key", "__topic", "__eventTime", "__deliverAt"
PROPERTIES, ORDERING_KEY = "__messageProperties", "__orderingKey"
MESSAGE_ID, SOURCE_TOPIC, ENTRY, ERROR = "__messageId", "__sourceTopic", "__entry", "__error"

_BYTES_OR_TEXT = ("binary", "string")
_TIME = ("timestamp", "bigint")

WRITTEN: dict[str, tuple[tuple[str, ...], str]] = {
    KEY: (_BYTES_OR_TEXT, "the key; bytes that are not UTF-8 become a byte key"),
    TOPIC: (("string",), "the target topic, unless option `topic` sets one for all rows"),
    EVENT_TIME: (_TIME, "the event time; a number is in milliseconds"),
    PROPERTIES: (("map<string,string>",), "the properties"),
    DELIVER_AT: (_TIME, "the earliest delivery time; a number is in milliseconds"),
    ORDERING_KEY: (_BYTES_OR_TEXT, "the ordering key of Key_Shared subscriptions, instead of the key"),
    MESSAGE_ID: (("binary",), "the position in the source; not written, but required for exactly once"),
    SOURCE_TOPIC: (("string",), "the source topic of that position; default: `__topic`, if option `topic` is set"),
    ENTRY: (("binary",), "a whole stored entry of the source, instead of a value"),
}
"""Allowed types and meaning, by column."""

NOT_WRITTEN = frozenset(column.name for column in (*METADATA, *ON_REQUEST, *ENTRIES) if column.name not in WRITTEN)
"""Columns of the source that are accepted and ignored, so that a frame can be written as it was read."""

_US_PER_MS = 1000
_MS_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class SinkColumns:
    """The columns of a frame. `fields` are those that a schema encodes."""

    names: frozenset[str]
    has_raw_value: bool
    fields: tuple[str, ...]

    @staticmethod
    def of(struct: StructType) -> SinkColumns:
        """Raises `InvalidOption`, which names the column."""
        names = struct.fieldNames()
        for name in names:
            if names.count(name) > 1:
                raise InvalidOption(f"column {name} occurs {names.count(name)} times")
        types = {field.name: field.dataType.simpleString() for field in struct.fields}
        typed = [name for name in names if not name.startswith("__")]
        for name, kind in types.items():
            if name.startswith("__") and name not in NOT_WRITTEN:
                _check_type(name, kind)
        # Next to a column `key` it is one half of a KEY_VALUE schema.
        has_raw_value = types.get(VALUE) in _BYTES_OR_TEXT and sorted(typed) != sorted((PAIR_KEY, VALUE))
        if has_raw_value:
            typed.remove(VALUE)
        _check_contents(has_raw_value, ENTRY in names, typed)
        return SinkColumns(frozenset(names), has_raw_value, tuple(typed))

    @property
    def has_entries(self) -> bool:
        return ENTRY in self.names

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def rows(self, batch: pa.RecordBatch, values: pa.Array, base64_keys: pa.Array | None = None) -> MessageRows:
        """The messages of a record batch; raises `UnwritableRow`, which names the column and the row."""
        keys, are_base64 = _keys(batch.column(KEY)) if KEY in self.names else (None, None)
        if base64_keys is not None:
            keys, are_base64 = base64_keys, base64_keys.is_valid().to_numpy(zero_copy_only=False)
        return MessageRows(
            values=values,
            keys=keys,
            keys_are_base64=are_base64,
            ordering_keys=binary(batch.column(ORDERING_KEY)) if ORDERING_KEY in self.names else None,
            event_times_ms=_times_ms(EVENT_TIME, batch) if EVENT_TIME in self.names else None,
            deliver_at_ms=_times_ms(DELIVER_AT, batch) if DELIVER_AT in self.names else None,
            properties=_properties(batch.column(PROPERTIES)) if PROPERTIES in self.names else None,
        )

    def reject_unreadable(self, batch: pa.RecordBatch) -> None:
        """Rejects messages that could not be read: they have no value to write."""
        if ERROR not in self.names:
            return
        errors = batch.column(ERROR)
        if errors.null_count < len(errors):
            row = errors.is_valid().index(True).as_py()
            raise UnwritableRow(f"column {ERROR} of row {row}: {errors[row].as_py()}; filter out rows with errors")


def _check_type(name: str, kind: str) -> None:
    if name not in WRITTEN:
        known = ", ".join((VALUE, *WRITTEN))
        raise InvalidOption(f"unknown column {name}: columns that begin with __ are {known}, and those of the source")
    allowed = WRITTEN[name][0]
    if kind not in allowed:
        raise InvalidOption(f"column {name} is {kind}: it must be {' or '.join(allowed)}")


def _check_contents(has_raw_value: bool, has_entries: bool, typed: list[str]) -> None:
    if has_entries and (has_raw_value or typed):
        other = VALUE if has_raw_value else typed[0]
        raise InvalidOption(f"column {ENTRY} is a whole entry: it cannot be combined with column {other}")
    if has_raw_value and typed:
        raise InvalidOption(
            f"column {VALUE} is the whole value: it cannot be combined with column {typed[0]}; drop one of them"
        )
    if not (has_raw_value or has_entries or typed):
        raise InvalidOption(f"nothing to write: add a column {VALUE}, typed columns or {ENTRY}")


def binary(column: pa.Array) -> pa.Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _keys(column: pa.Array) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """Keys as on the wire: text, or base64 of bytes that are not UTF-8."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return binary(column), None
    try:
        column.cast(pa.large_string() if pa.types.is_large_binary(column.type) else pa.string())
    except pa.ArrowInvalid:
        pass
    else:
        return binary(column), None
    keys = column.to_pylist()
    are_base64 = np.array([key is not None and not _is_text(key) for key in keys], np.bool_)
    in_base64 = to_base64(keys)
    chosen = [in_base64[row] if is_bytes else keys[row] for row, is_bytes in enumerate(are_base64)]
    return pa.array(chosen, pa.binary()), are_base64


def to_base64(keys: list[bytes | None]) -> list[bytes | None]:
    """Byte keys as on the wire."""
    return [None if key is None else base64.b64encode(key) for key in keys]


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _times_ms(name: str, batch: pa.RecordBatch) -> NDArray[np.int64] | None:
    column = batch.column(name)
    if column.null_count == len(column):
        return None
    is_number = pa.types.is_integer(column.type)
    numbers = column if is_number else column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    times: NDArray[np.int64] = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    times = times if is_number else times // _US_PER_MS
    if (times < 0).any():
        row = int(np.flatnonzero(times < 0)[0])
        raise UnwritableRow(
            f"column {name} of row {row} is {times[row]} ms since 1970: it must be between 0 and {_MS_MAX}"
        )
    return times


def _properties(column: pa.Array) -> pa.Array | None:
    if column.null_count:
        # The slot of a null may have pairs, which do not count.
        column = pc.if_else(column.is_valid(), column, pa.scalar([], column.type))
    if not len(column.keys):
        return None
    if column.items.null_count:
        for row in range(len(column)):
            for key, value in column[row].as_py():
                if value is None:
                    raise UnwritableRow(f"column {PROPERTIES} of row {row}: property {key!r} has no value")
    return column

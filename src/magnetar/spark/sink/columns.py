"""The columns of a frame that is written: what each is for, whether its type fits, and its cells as messages need them.

Owns the table of names and types. Knows nothing of topics; values of typed columns are encoded elsewhere.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from magnetar.spark.codec.columns import ENTRIES, METADATA, ON_REQUEST, VALUE
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
    KEY: (_BYTES_OR_TEXT, "the key; bytes that are not UTF-8 become a key of bytes"),
    TOPIC: (("string",), "where the row goes, unless option `topic` says so for all"),
    EVENT_TIME: (_TIME, "the event time; a number is milliseconds"),
    PROPERTIES: (("map<string,string>",), "the properties"),
    DELIVER_AT: (_TIME, "before which the message is not delivered; a number is milliseconds"),
    ORDERING_KEY: (_BYTES_OR_TEXT, "what Key_Shared orders by instead of the key"),
    MESSAGE_ID: (("binary",), "the position in the source: not written, but makes exactly once possible"),
    SOURCE_TOPIC: (("string",), "the topic of that position; without it `__topic`, if option `topic` is given"),
    ENTRY: (("binary",), "a whole stored entry of the source, instead of a value"),
}
"""Which types a column may have, and what it does."""

NOT_WRITTEN = frozenset(column.name for column in (*METADATA, *ON_REQUEST, *ENTRIES) if column.name not in WRITTEN)
"""Other columns of the source, which may be there, so that what was read can be written as it is."""

_KEY_OF_PAIR = "key"
_US_PER_MS = 1000
_MS_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class SinkColumns:
    """What a frame has. `fields` are the columns that a schema has to encode."""

    names: frozenset[str]
    has_raw_value: bool
    fields: tuple[str, ...]

    @staticmethod
    def of(struct: StructType) -> SinkColumns:
        """Raises `InvalidOption`, which names the column."""
        names = struct.fieldNames()
        for name in names:
            if names.count(name) > 1:
                raise InvalidOption(f"column {name} is there {names.count(name)} times")
        types = {field.name: field.dataType.simpleString() for field in struct.fields}
        typed = [name for name in names if not name.startswith("__")]
        for name, kind in types.items():
            if name.startswith("__") and name not in NOT_WRITTEN:
                _check_type(name, kind)
        # A column `key` next to it makes it half of a KEY_VALUE schema.
        has_raw_value = types.get(VALUE) in _BYTES_OR_TEXT and sorted(typed) != sorted((_KEY_OF_PAIR, VALUE))
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
        """The messages of a record batch; raises `UnwritableRow`, which names column and row."""
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

    def refuse_unreadable(self, batch: pa.RecordBatch) -> None:
        """A message that could not be read has no value; writing it would replace it by nothing."""
        if ERROR not in self.names:
            return
        errors = batch.column(ERROR)
        if errors.null_count < len(errors):
            row = errors.is_valid().index(True).as_py()
            raise UnwritableRow(
                f"column {ERROR} says that a message could not be read: {errors[row].as_py()}: filter such rows out"
            )


def _check_type(name: str, kind: str) -> None:
    if name not in WRITTEN:
        known = ", ".join((VALUE, *WRITTEN))
        raise InvalidOption(
            f"column {name} is not known: names that begin with __ are {known}, and those of the source"
        )
    allowed = WRITTEN[name][0]
    if kind not in allowed:
        raise InvalidOption(f"column {name} is {kind}, but has to be {' or '.join(allowed)}")


def _check_contents(has_raw_value: bool, has_entries: bool, typed: list[str]) -> None:
    if has_entries and (has_raw_value or typed):
        other = VALUE if has_raw_value else typed[0]
        raise InvalidOption(f"column {ENTRY} is a whole entry: there cannot be a column {other} too")
    if has_raw_value and typed:
        raise InvalidOption(
            f"column {VALUE} is the whole value: there cannot be a column {typed[0]} too; drop one of them"
        )
    if not (has_raw_value or has_entries or typed):
        raise InvalidOption(f"there is nothing to write: neither a column {VALUE}, nor typed columns, nor {ENTRY}")


def binary(column: pa.Array) -> pa.Array:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _keys(column: pa.Array) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """Keys as they are on the wire: text, or base64 of bytes that are no text."""
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
    """Keys of bytes as they are on the wire."""
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
            f"column {name} of row {row} is {times[row]} ms since 1970: a message's time is between 0 and {_MS_MAX}"
        )
    return times


def _properties(column: pa.Array) -> pa.Array | None:
    if column.null_count:
        # The place of a null may have pairs; nobody means them.
        column = pc.if_else(column.is_valid(), column, pa.scalar([], column.type))
    if not len(column.keys):
        return None
    if column.items.null_count:
        for row in range(len(column)):
            for key, value in column[row].as_py():
                if value is None:
                    raise UnwritableRow(f"column {PROPERTIES} of row {row}: property {key!r} has no value")
    return column

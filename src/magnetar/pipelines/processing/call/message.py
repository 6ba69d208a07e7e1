"""Messages as a function of the application sees them: the one that it receives, and those that it returns.

Owns the columns of the record batch that a function works on, and the check of what it returned. Values are decoded
already; knows neither topics nor schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from magnetar.client.message import MessageId

if TYPE_CHECKING:
    import pyarrow as pa

VALUE = "value"
KEY, PROPERTIES, EVENT_TIME, ORDERING_KEY = "__key", "__messageProperties", "__eventTime", "__orderingKey"
MESSAGE_ID, TOPIC, PUBLISH_TIME = "__messageId", "__topic", "__publishTime"
ATTEMPT, ROW, IS_NULL = "__attempt", "__row", "__isNull"

METADATA = (KEY, PROPERTIES, EVENT_TIME, MESSAGE_ID, TOPIC, PUBLISH_TIME, ATTEMPT, ROW, IS_NULL)
"""The columns beside `value`, or beside the fields of a record."""

OUTPUTS_MAX = 10_000
"""Messages that a function may return for one: they are stored together."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish. Without a key or an event time it has those of the received message."""

    value: Any
    key: str | bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time: datetime | None = None
    ordering_key: bytes | None = None


class Received:
    """A received message. Only what a function looks at is converted."""

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: ReceivedColumns, row: int) -> None:
        self._columns = columns
        self._row = row

    @property
    def value(self) -> Any:
        """As the topic's schema describes it: a dict, a primitive value, or bytes; None if the producer sent none."""
        return self._columns.values[self._row]

    @property
    def key(self) -> str | bytes | None:
        """Text, or the bytes of a key that is no text."""
        return _readable(self._columns[KEY][self._row])

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._columns[PROPERTIES][self._row] or ())

    @property
    def event_time(self) -> datetime | None:
        found: datetime | None = self._columns[EVENT_TIME][self._row]
        return found

    @property
    def publish_time(self) -> datetime:
        found: datetime = self._columns[PUBLISH_TIME][self._row]
        return found

    @property
    def message_id(self) -> MessageId:
        return MessageId.from_bytes(self._columns[MESSAGE_ID][self._row])

    @property
    def topic(self) -> str:
        """The full name; of a partitioned topic, that of the partition."""
        return str(self._columns[TOPIC][self._row])

    @property
    def redelivery_count(self) -> int:
        """How often it came back from the retry topic; the number of earlier attempts."""
        return self.attempt

    @property
    def attempt(self) -> int:
        """0 for the first one."""
        return int(self._columns[ATTEMPT][self._row])

    def __repr__(self) -> str:
        return f"Received({self.topic} {self.message_id}, attempt {self.attempt})"


class ReceivedColumns:
    """The columns of a record batch as Python lists, each converted when it is first needed."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._lists: dict[str, list[Any]] = {}
        self._values: list[Any] | None = None

    def __getitem__(self, name: str) -> list[Any]:
        found = self._lists.get(name)
        if found is None:
            found = self._lists[name] = self._batch.column(name).to_pylist()
        return found

    @property
    def values(self) -> list[Any]:
        if self._values is None:
            names = [name for name in self._batch.schema.names if name not in METADATA]
            self._values = self[VALUE] if names == [VALUE] else self._records(names)
        return self._values

    def _records(self, names: list[str]) -> list[Any]:
        columns = [self[name] for name in names]
        if not columns:
            return [{} for _ in range(self._batch.num_rows)]
        records = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        if IS_NULL not in self._batch.schema.names:
            return records
        return [None if is_null else record for is_null, record in zip(self[IS_NULL], records, strict=True)]


_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "key": ((str, bytes), "str or bytes"),
    "properties": ((Mapping,), "a mapping"),
    "event_time": ((datetime,), "datetime"),
    "ordering_key": ((bytes,), "bytes"),
}


class WrongResult(TypeError):
    """A function returned what cannot be published."""


def outputs_of(result: object) -> list[Message]:
    """The messages to publish for what a function returned for one: nothing, a value, a `Message` or a list of them."""
    if result is None:
        return []
    if isinstance(result, list):
        if len(result) > OUTPUTS_MAX:
            raise WrongResult(f"{len(result)} messages were returned for one: at most {OUTPUTS_MAX} can be")
        return [_checked(each if isinstance(each, Message) else Message(each)) for each in result]
    return [_checked(result if isinstance(result, Message) else Message(result))]


def _checked(message: Message) -> Message:
    for name, (allowed, wanted) in _TYPES.items():
        given = getattr(message, name)
        if given is not None and not isinstance(given, allowed):
            raise WrongResult(f"{name} of a message is of type {type(given).__name__}, not {wanted}")
    for key, value in message.properties.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise WrongResult(f"property {key!r} of a message is {value!r}: names and values are texts")
    return message


def _readable(key: bytes | None) -> str | bytes | None:
    if key is None:
        return None
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key

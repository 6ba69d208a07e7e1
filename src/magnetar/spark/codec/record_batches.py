"""Arrow record batches from entries: the hot path of reading.

Owns the size of a record batch, the limits of a range, and the handling of unreadable messages; `column_builders` fills
the columns. Works on whole entries where possible (see `entry_view`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import pyarrow as pa

from magnetar.client.consume.entry import Entry, EntryDecoder
from magnetar.client.errors import UnreadableMessage
from magnetar.client.message import MessageId
from magnetar.spark.codec.column_builders import (
    COLUMN_BUILDERS,
    ColumnBuilder,
    binary_column,
    keys_of,
    message_ids,
    version_of,
)
from magnetar.spark.codec.columns import VALUE, SourceColumns
from magnetar.spark.codec.entry_view import EntryView, SingleMessage, UnreadableEntry, view_entry
from magnetar.spark.errors import UnreadablePayload
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.errors import EntryError
from magnetar.wire.metadata import MetadataError, metadata_of

log = logging.getLogger(__name__)

ROWS_MAX = 1000
"""Rows of a record batch, unless one entry has more: larger ones were not faster."""
BYTES_MAX = 8 << 20
CHUNKS_BACK_MAX = 1000
"""Entries before the range that are searched for the first chunks of a message that ends in it."""


OnUnreadable = Literal["fail", "row"]


class ReadRange(Protocol):
    """A range of one topic: after `start` up to and including `end`."""

    @property
    def topic(self) -> str: ...
    @property
    def start(self) -> MessageId: ...
    @property
    def end(self) -> MessageId: ...


class Decoder(Protocol):
    """Decodes payloads of one schema version to columns; undecodable ones are null, with errors by row."""

    @property
    def needs_keys(self) -> bool: ...

    def decode(
        self, values: pa.Array, version: bytes | None, names: Sequence[str], keys: pa.Array | None
    ) -> tuple[dict[str, pa.Array], dict[int, str]]: ...


Earlier = Callable[[MessageId], Iterable[list[Entry]]]
"""The last `CHUNKS_BACK_MAX` entries before a position, in order."""


class RowReader:
    def __init__(
        self,
        columns: SourceColumns,
        decoder: Decoder | None = None,
        on_unreadable: OnUnreadable = "fail",
        earlier: Earlier | None = None,
        builders: Mapping[str, ColumnBuilder] = COLUMN_BUILDERS,
    ) -> None:
        self._columns = columns
        self._decoder = decoder
        self._on_unreadable = on_unreadable
        self._earlier = earlier
        self._with_sequence_ids = "__sequenceId" in columns.names
        self._builders = {name: builders[name] for name in columns.names if name in builders}
        self._constants: dict[object, pa.Array] = {}

    def read(self, chunks: Iterable[list[Entry]], span: ReadRange) -> Iterator[pa.RecordBatch]:
        """`chunks` are lists of entries, in the order of the topic. A partly read entry is a whole entry row."""
        if self._columns.is_entries:
            for entries in chunks:
                yield self._entry_rows([entry for entry in entries if not _is_marker(entry)])
            return
        waiting: list[EntryView] = []
        rows = size = 0
        for view in self._open(chunks, span):
            if waiting and self._decoder is not None and version_of(view) != version_of(waiting[-1]):
                yield self._batch(waiting, rows)
                waiting, rows, size = [], 0, 0
            waiting.append(view)
            rows += view.count
            size += len(view.entry.blob)
            if rows >= ROWS_MAX or size >= BYTES_MAX:
                yield self._batch(waiting, rows)
                waiting, rows, size = [], 0, 0
        if waiting:
            yield self._batch(waiting, rows)

    # -- entries of the range

    def _open(self, chunks: Iterable[list[Entry]], span: ReadRange) -> Iterator[EntryView]:
        opener = _ChunkOpener(self._earlier)
        first, last = span.start.position, span.end.position
        for entries in chunks:
            for entry in entries:
                try:
                    view = view_entry(entry, with_sequence_ids=self._with_sequence_ids) or opener.open(entry)
                except (EntryError, UnreadableMessage) as error:
                    view = self._unreadable(entry, error)
                if view is None or not view.count:
                    continue
                if (entry.id.ledger_id, entry.id.entry_id) in (first, last):
                    view = _cut(view, span)
                    if not view.count:
                        continue
                yield view

    def _unreadable(self, entry: Entry, error: EntryError | UnreadableMessage) -> EntryView:
        is_complete = isinstance(error, UnreadableMessage)
        text = str(error) if is_complete else f"message {entry.id} of {entry.topic} cannot be read: {error}"
        if self._on_unreadable == "fail":
            raise UnreadablePayload(f"{text}; set option onUnreadable=row to get a row with the reason in __error")
        log.warning("%s", text)
        return UnreadableEntry(entry, text)

    # -- columns

    def _batch(self, parts: list[EntryView], rows: int) -> pa.RecordBatch:
        schema = self._columns.arrow
        typed, errors = self._values(parts, rows)
        arrays = []
        for field in schema:
            name = field.name
            if name in typed:
                arrays.append(typed[name])
            elif name == "__error":
                arrays.append(self._errors(parts, rows, errors))
            elif name == "__topic":
                arrays.append(self._constant(rows, parts[0].entry.topic, field.type))
            else:
                array = self._builders[name](parts, rows, field.type)
                arrays.append(self._constant(rows, None, field.type) if array is None else array)
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _values(self, parts: list[EntryView], rows: int) -> tuple[dict[str, pa.Array], dict[int, str]]:
        names = self._columns.value_names
        if not names and (self._decoder is None or "__error" not in self._columns.names):
            return {}, {}
        values = binary_column([part.values() for part in parts], parts, rows, pa.binary())
        if self._decoder is None:
            return {VALUE: values if values is not None else self._constant(rows, None, pa.binary())}, {}
        values = values if values is not None else pa.nulls(rows, pa.binary())
        keys = keys_of(parts, rows, pa.binary()) if self._decoder.needs_keys else None
        typed, errors = self._decoder.decode(values, version_of(parts[0]), names, keys)
        if errors and self._on_unreadable == "fail":
            row, reason = min(errors.items())
            message_id = MessageId.from_bytes(message_ids(parts, rows, pa.binary())[row].as_py())
            raise UnreadablePayload(
                f"message {message_id} of {parts[0].entry.topic} does not match the topic's schema: {reason}; set"
                " option onUnreadable=row to get a row with the reason in __error"
            )
        return typed, errors

    def _errors(self, parts: list[EntryView], rows: int, errors: dict[int, str]) -> pa.Array:
        type_ = pa.string()
        if not errors and not any(part.error for part in parts):
            return self._constant(rows, None, type_)
        texts: list[str | None] = []
        for part in parts:
            texts.extend([part.error] * part.count)
        for row, text in errors.items():
            texts[row] = texts[row] or text
        return pa.array(texts, type_)

    def _constant(self, rows: int, value: object, type_: pa.DataType) -> pa.Array:
        """The same value in every row, sliced from a cached array."""
        key = (value, type_)
        array = self._constants.get(key)
        if array is None or len(array) < rows:
            size = max(rows, ROWS_MAX)
            array = pa.nulls(size, type_) if value is None else pa.repeat(pa.scalar(value, type_), size)
            self._constants[key] = array
        return array.slice(0, rows)

    # -- whole entries

    def _entry_rows(self, entries: list[Entry]) -> pa.RecordBatch:
        metadata = [_metadata_or_none(entry) for entry in entries]
        columns: dict[str, list[Any]] = {
            "__topic": [entry.topic for entry in entries],
            "__messageId": [entry.id.to_bytes() for entry in entries],
            "__entry": [entry.blob for entry in entries],
            "__messages": [max(1, each.num_messages_in_batch) if each else 1 for each in metadata],
            "__publishTime": [each.publish_time * 1000 if each else None for each in metadata],
        }
        schema = self._columns.arrow
        return pa.RecordBatch.from_arrays(
            [pa.array(columns[field.name], field.type) for field in schema], schema=schema
        )


class _ChunkOpener:
    """Assembles chunked messages; a message belongs to the range of its last chunk."""

    def __init__(self, earlier: Earlier | None) -> None:
        self._decoder = EntryDecoder()
        self._earlier = earlier

    def open(self, entry: Entry) -> EntryView | None:
        metadata = metadata_of(entry.blob)
        if metadata.HasField("marker_type"):
            return None
        try:
            messages, _ = self._decoder.decode(entry)
        except UnreadableMessage:
            if self._earlier is None or metadata.encryption_keys:
                raise
            messages = self._with_earlier(entry, metadata, self._earlier)
        if not messages:
            return None
        return SingleMessage(entry, metadata, None if messages[0].is_null else messages[0].value)

    def _with_earlier(self, entry: Entry, metadata: pb.MessageMetadata, earlier: Earlier) -> list[Any]:
        """Assembles a message whose first chunks are before the range."""
        decoder = EntryDecoder()
        for entries in earlier(entry.id):
            for before in entries:
                if before.id.position < entry.id.position and _chunk_of(before) == metadata.uuid:
                    decoder.decode(before)
        return decoder.decode(entry)[0]


def _chunk_of(entry: Entry) -> str | None:
    metadata = _metadata_or_none(entry)
    return metadata.uuid if metadata is not None and metadata.num_chunks_from_msg > 1 else None


def _metadata_or_none(entry: Entry) -> pb.MessageMetadata | None:
    try:
        return metadata_of(entry.blob)
    except MetadataError:
        return None


def _is_marker(entry: Entry) -> bool:
    metadata = _metadata_or_none(entry)
    return metadata is not None and metadata.HasField("marker_type")


def _cut(view: EntryView, span: ReadRange) -> EntryView:
    if view.indexes is None:
        return view
    position, first, end = view.entry.id.position, 0, 1 << 31
    if position == span.start.position and span.start.batch_index >= 0:
        first = span.start.batch_index + 1
    if position == span.end.position and span.end.batch_index >= 0:
        end = span.end.batch_index + 1
    return view.cut(first, end)

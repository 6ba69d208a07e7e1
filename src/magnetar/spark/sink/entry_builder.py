"""Entry builder: batches limited by count and size, single messages, and forwarded entries.

Owns where an entry ends: by its contents and never by time, so that writing the same rows again produces the same
entries. Knows nothing of topics and connections; columns become bytes in `batch_encoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from magnetar.clock import SystemClock
from magnetar.spark.errors import UnwritableRow
from magnetar.spark.sink.batch_encoder import EncodedRows, MessageRows
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.compression import compress
from magnetar.wire.entry import open_entry
from magnetar.wire.errors import EntryError
from magnetar.wire.metadata import build_blob, without_broker_entry
from magnetar.wire.moves import MOVED

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ENCODED_BYTES_MAX = 4 << 20
"""Bytes encoded at a time: reused memory is much faster than new memory."""


class BuiltEntry(msgspec.Struct, frozen=True):
    """An entry as an entry producer sends it."""

    blob: bytes
    sequence_id: int
    highest_sequence_id: int
    messages: int
    is_delayed: bool = False


@dataclass(frozen=True)
class BatchOptions:
    messages_max: int = 1000
    bytes_max: int = 128 * 1024
    compression: pb.CompressionType.ValueType = pb.NONE
    batching: bool = True


class _OpenEntry:
    """The entry being filled."""

    __slots__ = ("bytes", "count", "first", "first_row", "ids", "last_sequence_id", "pieces")

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.ids: list[NDArray[np.int64]] = []
        self.count = 0
        self.bytes = 0
        self.first: EncodedRows | None = None
        self.first_row = 0
        self.last_sequence_id = -1

    def add(self, rows: EncodedRows, start: int, end: int) -> None:
        if self.first is None:
            self.first, self.first_row = rows, start
        piece = rows.payload(start, end)
        self.pieces.append(piece)
        self.ids.append(rows.sequence_ids[start:end])
        self.bytes += len(piece)
        self.count += end - start
        self.last_sequence_id = int(rows.sequence_ids[end - 1])


class EntryBuilder:
    """Builds the entries of one producer. Sequence ids never decrease from row to row.

    Rows with the same sequence id stay in one entry: deduplication works on entries. With `moved`, which names the
    messages of sequence ids, the entries are moves: always batches, whose own properties no application sees.
    """

    def __init__(
        self,
        producer_name: str,
        options: BatchOptions,
        schema_version: bytes | None = None,
        moved: Callable[[NDArray[np.int64]], str] | None = None,
        *,
        mixes_keys: bool = True,
    ) -> None:
        self._producer_name = producer_name
        self._options = options
        self._schema_version = schema_version
        self._moved = moved
        self._mixes_keys = mixes_keys
        self._clock = SystemClock()
        self._open = _OpenEntry()
        self._last_sequence_id = -1

    def add(self, rows: MessageRows, sequence_ids: NDArray[np.int64]) -> Iterator[BuiltEntry]:
        """Adds rows, and yields the entries they complete."""
        for part, ids in _parts(rows, sequence_ids):
            encoded = EncodedRows(part, ids)
            if self._moved is not None or not self._mixes_keys:
                yield from self._add_runs(encoded, self._ends(part, ids))
                continue
            if part.deliver_at_ms is None:
                yield from self._add_run(encoded, 0, len(part))
                continue
            start = 0
            for delayed in np.flatnonzero(part.deliver_at_ms > 0).tolist():
                yield from self._add_run(encoded, start, delayed)
                yield from self.seal()
                yield self._delayed(encoded, delayed)
                start = delayed + 1
            yield from self._add_run(encoded, start, len(part))

    def _add_runs(self, rows: EncodedRows, ends: list[int]) -> Iterator[BuiltEntry]:
        """Runs of neighbours of which no two share an entry; neither does what is added next, if there can be more."""
        is_open_ended = self._mixes_keys and rows.rows.deliver_at_ms is None
        for start, end in pairwise([0, *ends, len(rows.rows)]):
            yield from self._add_run(rows, start, end)
            if end < len(rows.rows) or not is_open_ended:
                yield from self.seal()

    def _ends(self, rows: MessageRows, ids: NDArray[np.int64]) -> list[int]:
        """Where an entry has to end: at another key or delivery time, but never between rows of the same id."""
        differs = np.zeros(max(0, len(rows) - 1), np.bool_)
        if rows.deliver_at_ms is not None:
            differs |= np.diff(rows.deliver_at_ms) != 0 if self._moved is not None else True
        if not self._mixes_keys and rows.keys is not None:
            codes = rows.keys.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
            differs |= np.diff(codes) != 0
        ends: list[int] = (np.flatnonzero(differs & (np.diff(ids) != 0)) + 1).tolist()
        return ends

    def _delayed(self, rows: EncodedRows, row: int) -> BuiltEntry:
        """The delivery time applies to a whole entry, which therefore has one message."""
        sequence_id = int(rows.sequence_ids[row])
        if sequence_id == self._last_sequence_id:
            raise _shared_position_error(sequence_id)
        self._last_sequence_id = sequence_id
        return self._single(rows, row)

    def _add_run(self, rows: EncodedRows, start: int, end: int) -> Iterator[BuiltEntry]:
        """Adds rows that may be batched."""
        ids, offsets, options = rows.sequence_ids, rows.offsets, self._options
        if start < end and not self._open.count and ids[start] == self._last_sequence_id >= 0:
            raise _shared_position_error(int(ids[start]))
        while start < end:
            open_ = self._open
            if open_.count and int(ids[start]) == open_.last_sequence_id:
                stop = start + 1
            else:
                room = options.messages_max - open_.count if options.batching else 1 - open_.count
                size = int(offsets[start]) + options.bytes_max - open_.bytes
                stop = min(end, start + room, int(np.searchsorted(offsets, size, side="right")) - 1)
                if stop <= start:
                    if open_.count:
                        yield from self.seal()
                        continue
                    stop = start + 1  # a message larger than a batch gets its own entry
            while stop < end and ids[stop] == ids[stop - 1]:
                stop += 1
            open_.add(rows, start, stop)
            self._last_sequence_id = open_.last_sequence_id
            start = stop

    def seal(self) -> Iterator[BuiltEntry]:
        """Completes the open entry."""
        open_, self._open = self._open, _OpenEntry()
        if open_.first is None:
            return
        if open_.count == 1 and self._moved is None:  # one message is shorter without a batch
            yield self._single(open_.first, open_.first_row)
        else:
            yield self._batch(open_, open_.first)

    # -- bytes

    def _batch(self, open_: _OpenEntry, first: EncodedRows) -> BuiltEntry:
        first_id = int(first.sequence_ids[open_.first_row])
        metadata = self._metadata(first.rows, open_.first_row, first_id)
        metadata.num_messages_in_batch = open_.count
        metadata.highest_sequence_id = open_.last_sequence_id
        if self._moved is not None:
            metadata.properties.add(key=MOVED, value=self._moved(np.concatenate(open_.ids)))
            _set_delivery(metadata, first.rows, open_.first_row)
        payload = open_.pieces[0] if len(open_.pieces) == 1 else b"".join(open_.pieces)
        return BuiltEntry(self._blob(metadata, payload), first_id, open_.last_sequence_id, open_.count)

    def _single(self, encoded: EncodedRows, row: int) -> BuiltEntry:
        rows, sequence_id = encoded.rows, int(encoded.sequence_ids[row])
        metadata = self._metadata(rows, row, sequence_id)
        if rows.properties is not None:
            for key, value in rows.properties[row].as_py() or ():
                metadata.properties.add(key=key, value=value)
        if rows.event_times_ms is not None and rows.event_times_ms[row] > 0:
            metadata.event_time = int(rows.event_times_ms[row])
        is_delayed = _set_delivery(metadata, rows, row)
        value = rows.values[row].as_py()
        if value is None:
            metadata.null_value = True
        return BuiltEntry(self._blob(metadata, value or b""), sequence_id, sequence_id, 1, is_delayed)

    def _metadata(self, rows: MessageRows, row: int, sequence_id: int) -> pb.MessageMetadata:
        """Metadata of a single message or a batch, which is routed and ordered by its first message's key."""
        metadata = pb.MessageMetadata(
            producer_name=self._producer_name, sequence_id=sequence_id, publish_time=self._clock.now_ms()
        )
        if self._schema_version is not None:
            metadata.schema_version = self._schema_version
        key = None if rows.keys is None else rows.keys[row].as_py()
        if key is not None:
            metadata.partition_key = key.decode()
            metadata.partition_key_b64_encoded = rows.keys_are_base64 is not None and bool(rows.keys_are_base64[row])
        ordering_key = None if rows.ordering_keys is None else rows.ordering_keys[row].as_py()
        if ordering_key is not None:
            metadata.ordering_key = ordering_key
        return metadata

    def _blob(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        compression = self._options.compression
        if compression != pb.NONE:
            metadata.compression = compression
            metadata.uncompressed_size = len(payload)
            payload = compress(compression, payload)
        return build_blob(metadata, payload)


def _set_delivery(metadata: pb.MessageMetadata, rows: MessageRows, row: int) -> bool:
    """Whether the row has a delivery time."""
    if rows.deliver_at_ms is None or rows.deliver_at_ms[row] <= 0:
        return False
    metadata.deliver_at_time = int(rows.deliver_at_ms[row])
    return True


def _shared_position_error(sequence_id: int) -> UnwritableRow:
    return UnwritableRow(
        f"several rows have the same source position (sequence id {sequence_id}), and one of them has a __deliverAt:"
        " they need separate entries and cannot be written exactly once; set option exactlyOnce=off"
    )


def _parts(rows: MessageRows, sequence_ids: NDArray[np.int64]) -> Iterator[tuple[MessageRows, NDArray[np.int64]]]:
    """The rows in parts of bounded size."""
    count = len(rows)
    parts = 1 + rows.values.nbytes // _ENCODED_BYTES_MAX
    step = max(1, -(-count // parts))
    if step >= count:
        yield rows, sequence_ids
        return
    for start in range(0, count, step):
        yield rows.slice(start, step), sequence_ids[start : start + step]


def forwarded_entry(what: str, blob: bytes, address: tuple[str, int] | None) -> tuple[bytes, int]:
    """A source entry for another topic, with an unchanged payload, and its number of messages.

    `address` is its new producer name and sequence id, from which a restarting broker recovers each producer's last
    sequence id. None keeps those of the source. `what` names the entry in errors.
    """
    try:
        metadata, start = open_entry(blob)
    except EntryError as error:
        raise UnwritableRow(f"{what}: the entry of {len(blob)} bytes cannot be read: {error}") from None
    messages = metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 1
    if address is not None:
        metadata.producer_name, metadata.sequence_id = address
        metadata.ClearField("highest_sequence_id")
        return build_blob(metadata, blob[start:]), messages
    return without_broker_entry(blob), messages

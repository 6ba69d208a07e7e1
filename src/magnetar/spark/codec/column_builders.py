"""Builders of message columns: one function per column, given the entries of a record batch.

None stands for "null in every row". Value columns, errors and constants are built in `record_batches`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from magnetar.client.message import MessageId
from magnetar.spark.codec.entry_view import Cells, EntryView
from magnetar.wire.text import readable
from magnetar.wire.varint import encode_varint

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH_INDEX_TAG, _BATCH_SIZE_TAG = 4 << 3, 6 << 3
_ONE_BYTE, _TWO_BYTES = 1 << 7, 1 << 14
_NO_INDEX = np.full(1, -1, np.int32)


def version_of(view: EntryView) -> bytes | None:
    """The schema version of an entry."""
    return view.metadata.schema_version if view.metadata.HasField("schema_version") else None


def binary_column(
    cells: Sequence[NDArray[np.uint8] | Cells | None], parts: list[EntryView], rows: int, type_: pa.DataType
) -> pa.Array | None:
    """A binary column; values are copied once."""
    if all(cell is None for cell in cells):
        return None
    if all(isinstance(cell, np.ndarray) for cell in cells):
        return _binary_of_blocks(cells, rows, type_)  # type: ignore[arg-type]
    if not any(isinstance(cell, np.ndarray) for cell in cells):
        flat: list[bytes | None] = []
        for cell, part in zip(cells, parts, strict=True):
            flat.extend(cell if cell is not None else [None] * part.count)
        return pa.array(flat, type_)
    pieces = [binary_column([cell], [part], part.count, type_) for cell, part in zip(cells, parts, strict=True)]
    return pa.concat_arrays(
        [pa.nulls(part.count, type_) if piece is None else piece for piece, part in zip(pieces, parts, strict=True)]
    )


def _binary_of_blocks(blocks: Sequence[NDArray[np.uint8]], rows: int, type_: pa.DataType) -> pa.Array:
    offsets = np.zeros(rows + 1, np.int32)
    lengths = [(block.shape[0], block.shape[1]) for block in blocks]
    np.cumsum(np.repeat([width for _, width in lengths], [count for count, _ in lengths]), out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    start = 0
    for block in blocks:
        count, width = block.shape
        end = start + count * width
        data[start:end].reshape(count, width)[:] = block
        start = end
    return pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def keys_of(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array | None:
    return binary_column([part.keys() for part in parts], parts, rows, type_)


def _ordering_keys(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array | None:
    return binary_column([part.ordering_keys() for part in parts], parts, rows, type_)


def message_ids(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array:
    ids: list[NDArray[np.uint8]] = []
    for part in parts:
        position = part.entry.id
        head = MessageId(position.ledger_id, position.entry_id, position.partition).to_bytes()
        if part.indexes is None:
            ids.append(np.frombuffer(head, np.uint8)[None])
            continue
        for tails in _id_tails(part):
            table = np.empty((len(tails), len(head) + tails.shape[1]), np.uint8)
            table[:, : len(head)] = np.frombuffer(head, np.uint8)
            table[:, len(head) :] = tails
            ids.append(table)
    return _binary_of_blocks(ids, rows, type_)


def _id_texts(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array:
    texts: list[str] = []
    for part in parts:
        position = part.entry.id
        head = f"{position.ledger_id}:{position.entry_id}:{position.partition}"
        texts.extend([head] if part.indexes is None else [f"{head}:{index}" for index in part.indexes.tolist()])
    return pa.array(texts, type_)


def _payloads(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array | None:
    return binary_column([part.payloads() for part in parts], parts, rows, type_)


def _id_tails(part: EntryView) -> Sequence[NDArray[np.uint8]]:
    """The ends of a batch's serialized ids: batch index and size, equal for all batches of that size."""
    assert part.indexes is not None
    size = part.metadata.num_messages_in_batch
    return _tails_of_whole(size) if part.count == size else _tails(part.indexes, size)


@lru_cache(maxsize=256)
def _tails_of_whole(size: int) -> Sequence[NDArray[np.uint8]]:
    return _tails(np.arange(size, dtype=np.int32), size)


def _tails(indexes: NDArray[np.int32], size: int) -> Sequence[NDArray[np.uint8]]:
    end = np.frombuffer(bytes((_BATCH_SIZE_TAG,)) + encode_varint(size), np.uint8)
    tables = []
    for part in _by_width(indexes):
        width = len(encode_varint(int(part[0])))
        table = np.empty((len(part), 1 + width + len(end)), np.uint8)
        table[:, 0] = _BATCH_INDEX_TAG
        for septet in range(width):
            more = 0x80 if septet < width - 1 else 0
            table[:, 1 + septet] = (part >> 7 * septet) & 0x7F | more
        table[:, 1 + width :] = end
        tables.append(table)
    return tables


def _by_width(indexes: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    """Batch indexes, grouped by the size of their varints."""
    one, two = np.searchsorted(indexes, (_ONE_BYTE, _TWO_BYTES))
    for part in (indexes[:one], indexes[one:two], indexes[two:]):
        if len(part):
            yield part


def _publish_times(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array:
    return _repeated(parts, [part.metadata.publish_time * 1000 for part in parts], np.int64, type_)


def _repeated(parts: list[EntryView], values: list[int], kind: type, type_: pa.DataType) -> pa.Array:
    numbers: NDArray[Any] = np.repeat(np.array(values, kind), [part.count for part in parts])
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])


def _event_times(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array | None:
    times = [part.event_times_ms() for part in parts]
    if all(each is None for each in times):
        return None
    flat = np.concatenate(
        [np.zeros(part.count, np.int64) if each is None else each for each, part in zip(times, parts, strict=True)]
    )
    return pa.array(flat * 1000, type_, mask=flat == 0)


def _deliver_at(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array | None:
    return _per_entry(
        parts,
        [part.metadata.deliver_at_time * 1000 if part.metadata.HasField("deliver_at_time") else None for part in parts],
        type_,
    )


def _properties(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array:
    properties = [part.properties() for part in parts]
    if any(each is not None for each in properties):
        flat: list[list[tuple[str, str]]] = []
        for each, part in zip(properties, parts, strict=True):
            flat.extend([[]] * part.count if each is None else each)
        return pa.array(flat, type_)
    offsets = np.zeros(rows + 1, np.int32)
    entries = pa.nulls(0, pa.struct([type_.key_field, type_.item_field]))
    return pa.Array.from_buffers(type_, rows, [None, pa.py_buffer(offsets)], children=[entries])


def _batch_indexes(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array | None:
    if all(part.indexes is None for part in parts):
        return None
    flat = np.concatenate([_NO_INDEX if part.indexes is None else part.indexes for part in parts])
    has_others = any(part.indexes is None for part in parts)
    return pa.array(flat, type_, mask=flat < 0 if has_others else None)


def _redelivery_counts(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array:
    return _repeated(parts, [part.entry.redelivery_count for part in parts], np.int32, type_)


def _sequence_ids(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array:
    return pa.array(np.concatenate([part.sequence_ids() for part in parts]), type_)


def _partitions(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array | None:
    index = parts[0].entry.id.partition
    return None if index < 0 else _repeated(parts, [index] * len(parts), np.int32, type_)


def _per_entry(parts: list[EntryView], values: list[Any], type_: pa.DataType) -> pa.Array | None:
    """A value that all messages of an entry share."""
    if all(value is None for value in values):
        return None
    flat: list[Any] = []
    for part, value in zip(parts, values, strict=True):
        flat.extend([value] * part.count)
    return pa.array(flat, type_)


def _producer_names(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array | None:
    return _per_entry(parts, [readable(part.metadata.producer_name) for part in parts], type_)


def _schema_versions(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array | None:
    return _per_entry(parts, [_version_number(version_of(part)) for part in parts], type_)


def _version_number(version: bytes | None) -> int | None:
    """Registries number versions in 8 bytes; null for any other form."""
    return int.from_bytes(version, "big", signed=True) if version is not None and len(version) == 8 else None


def _replicated_from(parts: list[EntryView], rows: int, type_: pa.DataType) -> pa.Array | None:
    return _per_entry(parts, [readable(part.metadata.replicated_from) or None for part in parts], type_)


ColumnBuilder = Callable[[list[EntryView], int, pa.DataType], pa.Array | None]

COLUMN_BUILDERS: dict[str, ColumnBuilder] = {
    "__key": keys_of,
    "__messageId": message_ids,
    "__messageIdText": _id_texts,
    "__payload": _payloads,
    "__publishTime": _publish_times,
    "__eventTime": _event_times,
    "__messageProperties": _properties,
    "__batchIndex": _batch_indexes,
    "__redeliveryCount": _redelivery_counts,
    "__partition": _partitions,
    "__producerName": _producer_names,
    "__sequenceId": _sequence_ids,
    "__orderingKey": _ordering_keys,
    "__schemaVersion": _schema_versions,
    "__deliverAt": _deliver_at,
    "__replicatedFrom": _replicated_from,
}

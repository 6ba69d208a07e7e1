"""Entries built from rows can be read by the wire code and the official client."""

from __future__ import annotations

import base64
import contextlib
import random
from itertools import groupby, pairwise

import numpy as np
import pulsar
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.client.message import MessageId
from magnetar.spark.errors import UnwritableRow
from magnetar.spark.sink.batch_encoder import MessageRows
from magnetar.spark.sink.columns import DELIVER_AT, EVENT_TIME, KEY, ORDERING_KEY, PROPERTIES, SinkColumns
from magnetar.spark.sink.entry_builder import BatchOptions, BuiltEntry, EntryBuilder, forwarded_entry
from magnetar.spark.sink.sequence_ids import source_positions
from magnetar.testing import broker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.entry import messages_of
from magnetar.wire.metadata import build_blob, checksum_ok, metadata_of, split_blob

_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
_TIME = st.none() | st.integers(0, 1 << 42)

ROW = st.fixed_dictionaries(
    {
        "value": st.none() | st.binary(max_size=300),
        KEY: st.none() | st.binary(max_size=6) | _TEXT.map(str.encode),
        ORDERING_KEY: st.none() | st.binary(max_size=200),
        EVENT_TIME: _TIME,
        DELIVER_AT: st.none() | st.sampled_from((None, None, 1 << 41)),
        PROPERTIES: st.none() | st.dictionaries(_TEXT, _TEXT, max_size=3),
    }
)
TYPES = {
    "value": pa.binary(),
    KEY: pa.binary(),
    ORDERING_KEY: pa.binary(),
    EVENT_TIME: pa.int64(),
    DELIVER_AT: pa.int64(),
    PROPERTIES: pa.map_(pa.string(), pa.string()),
}


def record_batch(rows: list[dict[str, object]], columns: frozenset[str]) -> pa.RecordBatch:
    spelled = [
        {name: list(cell.items()) if isinstance(cell, dict) else cell for name, cell in row.items()} for row in rows
    ]
    return pa.record_batch({name: pa.array([row[name] for row in spelled], TYPES[name]) for name in columns})


def rows_of(rows: list[dict[str, object]], columns: frozenset[str] = frozenset(TYPES)) -> MessageRows:
    batch = record_batch(rows, columns)
    return SinkColumns(columns, True, ()).rows(batch, batch.column("value"))


def read(entry: BuiltEntry) -> list[dict[str, object]]:
    """The messages of an entry, by the wire code."""
    assert checksum_ok(entry.blob)
    metadata = metadata_of(entry.blob)
    assert metadata.sequence_id == entry.sequence_id
    assert entry.is_delayed == metadata.HasField("deliver_at_time")
    messages = list(messages_of(*split_blob(entry.blob)))
    assert len(messages) == entry.messages
    if metadata.HasField("num_messages_in_batch"):
        assert metadata.highest_sequence_id == entry.highest_sequence_id
        assert entry.messages > 1
    return [_row(single or metadata, metadata, payload) for single, payload in messages]


def _row(
    single: pb.MessageMetadata | pb.SingleMessageMetadata, whole: pb.MessageMetadata, payload: bytes
) -> dict[str, object]:
    key: bytes | None = None
    if single.HasField("partition_key"):
        text = single.partition_key.encode()
        key = base64.b64decode(text) if single.partition_key_b64_encoded else text
    return {
        "value": None if single.null_value else payload,
        KEY: key,
        ORDERING_KEY: single.ordering_key if single.HasField("ordering_key") else None,
        EVENT_TIME: single.event_time or None,
        DELIVER_AT: whole.deliver_at_time or None,
        PROPERTIES: {pair.key: pair.value for pair in single.properties},
        "number": single.sequence_id,
    }


def expected(row: dict[str, object], number: int) -> dict[str, object]:
    return {**row, EVENT_TIME: row[EVENT_TIME] or None, PROPERTIES: row[PROPERTIES] or {}, "number": number}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(ROW, max_size=12), max_size=4),
    st.integers(1, 8),
    st.integers(1, 2000),
    st.sampled_from([pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY]),
    st.booleans(),
    st.integers(0, 1 << 62),
)
def test_built_entries_round_trip(
    batches: list[list[dict[str, object]]],
    messages_max: int,
    bytes_max: int,
    compression: pb.CompressionType.ValueType,
    batching: bool,
    first: int,
) -> None:
    options = BatchOptions(messages_max, bytes_max, compression, batching)
    builder = EntryBuilder("me", options, b"v")
    entries: list[BuiltEntry] = []
    number = first
    for rows in batches:
        if rows:
            entries += builder.add(rows_of(rows), np.arange(number, number + len(rows)))
            number += len(rows)
    entries += builder.seal()
    assert not list(builder.seal())
    wanted = [expected(row, first + place) for place, row in enumerate(row for rows in batches for row in rows)]
    assert [row for entry in entries for row in read(entry)] == wanted
    for entry in entries:
        metadata = metadata_of(entry.blob)
        assert (metadata.producer_name, metadata.schema_version, metadata.compression) == ("me", b"v", compression)
        assert entry.messages <= (messages_max if batching else 1)
        assert not entry.is_delayed or entry.messages == 1
    assert all(before.highest_sequence_id < after.sequence_id for before, after in pairwise(entries))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(ROW, min_size=1, max_size=20), st.sets(st.sampled_from(sorted(set(TYPES) - {"value"}))), st.integers(0, 9)
)
def test_columns_may_be_missing_and_arrays_may_be_slices(
    rows: list[dict[str, object]], left_out: set[str], start: int
) -> None:
    columns = frozenset(TYPES) - left_out
    whole = rows_of(rows, columns)
    part = whole.slice(start, len(rows))
    builder = EntryBuilder("me", BatchOptions())
    entries = [*builder.add(part, np.arange(len(part))), *builder.seal()] if len(part) else []
    empty = dict.fromkeys(left_out)
    wanted = [expected({**row, **empty}, place) for place, row in enumerate(rows[start:])]
    assert [row for entry in entries for row in read(entry)] == wanted
    order = list(range(len(rows)))
    random.Random(start).shuffle(order)
    builder = EntryBuilder("me", BatchOptions())
    entries = [*builder.add(whole.take(np.array(order)), np.arange(len(rows))), *builder.seal()]
    wanted = [expected({**rows[place], **empty}, number) for number, place in enumerate(order)]
    assert [row for entry in entries for row in read(entry)] == wanted


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 7), st.integers(1, 200), st.integers(1, 60))
def test_rows_of_one_position_stay_in_one_entry(steps: list[int], messages_max: int, bytes_max: int, cut: int) -> None:
    """A broker identifies an entry by its sequence ids: half of a position would be taken for all of it."""
    numbers = np.cumsum(np.array(steps, np.int64))
    rows = MessageRows(values=pa.array([b"%d" % place for place in range(len(steps))], pa.binary()))
    builder = EntryBuilder("me", BatchOptions(messages_max, bytes_max))
    entries: list[BuiltEntry] = []
    for start in range(0, len(steps), cut):
        entries += builder.add(rows.slice(start, cut), numbers[start : start + cut])
    entries += builder.seal()
    assert [int(row["value"]) for entry in entries for row in read(entry)] == list(range(len(steps)))  # type: ignore[call-overload]
    assert all(before.highest_sequence_id < after.sequence_id for before, after in pairwise(entries))
    longest = max(len(list(same)) for _, same in groupby(numbers.tolist()))
    assert all(entry.messages < messages_max + longest for entry in entries)


def test_delayed_rows_of_one_position_are_rejected() -> None:
    rows = MessageRows(values=pa.array([b"a", b"b"], pa.binary()), deliver_at_ms=np.array([0, 5]))
    for order in ([0, 1], [1, 0]):
        builder = EntryBuilder("me", BatchOptions())
        with pytest.raises(UnwritableRow, match=r"the same source position \(sequence id 7\).*exactlyOnce=off"):
            list(builder.add(rows.take(np.array(order)), np.array([7, 7])))


def test_large_columns_are_encoded_in_pieces() -> None:
    values = [bytes(100_000)] * 100
    builder = EntryBuilder("me", BatchOptions())
    entries = [*builder.add(MessageRows(values=pa.array(values, pa.binary())), np.arange(100)), *builder.seal()]
    assert [entry.messages for entry in entries] == [1] * 100
    builder = EntryBuilder("me", BatchOptions(bytes_max=1 << 20))
    entries = [*builder.add(MessageRows(values=pa.array(values, pa.binary())), np.arange(100)), *builder.seal()]
    assert [entry.messages for entry in entries] == [10] * 10


def test_the_official_client_reads_built_entries() -> None:
    rows = [
        {"value": b"plain", KEY: None, ORDERING_KEY: None, EVENT_TIME: None, DELIVER_AT: None, PROPERTIES: {}},
        {
            "value": b"",
            KEY: b"text",
            ORDERING_KEY: b"o",
            EVENT_TIME: 1_700_000_000_000,
            DELIVER_AT: None,
            PROPERTIES: {"a": "b"},
        },
        {
            "value": b"x" * 1000,
            KEY: b"\xff\xfe",
            ORDERING_KEY: None,
            EVENT_TIME: None,
            DELIVER_AT: None,
            PROPERTIES: {"c": ""},
        },
    ]
    with broker() as running, contextlib.closing(pulsar.Client(running.service_url)) as official:
        for compression in (pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY):
            topic = f"read-{compression}"
            builder = EntryBuilder("me", BatchOptions(compression=compression))
            _publish(running.service_url, topic, [*builder.add(rows_of(rows), np.arange(3)), *builder.seal()])
            reader = official.create_reader(topic, pulsar.MessageId.earliest)
            read = [reader.read_next(10_000) for _ in rows]
            assert [message.data() for message in read] == [row["value"] for row in rows]
            assert [message.partition_key() for message in read] == ["", "text", base64.b64encode(b"\xff\xfe").decode()]
            assert [message.event_timestamp() for message in read] == [0, 1_700_000_000_000, 0]
            assert [message.properties() for message in read] == [row[PROPERTIES] for row in rows]


def _publish(url: str, topic: str, entries: list[BuiltEntry]) -> None:
    from magnetar.client.inline import InlineClient

    async def publish() -> None:
        producer = await client.client.entry_producer(topic)
        for entry in entries:
            await producer.send(
                entry.blob,
                sequence_id=entry.sequence_id,
                highest_sequence_id=entry.highest_sequence_id,
                messages=entry.messages,
            )
        await producer.flush()

    with InlineClient(url) as client:
        client.run(publish())


# -- copied entries


def test_an_entry_keeps_its_payload_and_gets_a_new_producer() -> None:
    """A restarted broker learns from stored entries the last sequence id of each producer."""
    metadata = pb.MessageMetadata(
        producer_name="old", sequence_id=3, highest_sequence_id=4, publish_time=9, num_messages_in_batch=2, uuid="u"
    )
    metadata.properties.add(key="a", value="b")
    payload = build_batch([(pb.SingleMessageMetadata(payload_size=0, sequence_id=3), b"x")] * 2)
    blob = build_blob(metadata, payload)
    in_front = b"\x0e\x02\x00\x00\x00\x02\x08\x01"
    assert forwarded_entry("entry", blob, None) == (blob, 2)
    assert forwarded_entry("entry", in_front + blob, None) == (blob, 2)
    moved, messages = forwarded_entry("entry", in_front + blob, ("new", 70))
    assert messages == 2
    assert checksum_ok(moved)
    got = metadata_of(moved)
    assert (got.producer_name, got.sequence_id, got.HasField("highest_sequence_id")) == ("new", 70, False)
    assert (got.publish_time, got.uuid, got.num_messages_in_batch) == (9, "u", 2)
    assert moved.endswith(payload)


@pytest.mark.parametrize("damage", [b"", b"\x0e\x01", b"\x00\x00\x00\x09ab"])
def test_a_damaged_entry_is_not_copied(damage: bytes) -> None:
    with pytest.raises(UnwritableRow, match="entry 1:2: "):
        forwarded_entry("entry 1:2", damage, ("new", 1))
    blob = build_blob(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"payload")
    with pytest.raises(UnwritableRow, match="its checksum does not match"):
        forwarded_entry("entry 1:2", blob[:-1] + b"x", ("new", 1))


# -- positions


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.builds(
            MessageId,
            ledger_id=st.integers(0, (1 << 63) - 1),
            entry_id=st.integers(0, (1 << 47) - 1),
            partition=st.integers(-1, 5),
            batch_index=st.integers(-1, 65535),
            batch_size=st.integers(0, 70000),
        ),
        min_size=1,
        max_size=30,
    ),
    st.integers(0, 3),
)
def test_positions_equal_the_ids(ids: list[MessageId], start: int) -> None:
    ids = ids[start:] or ids
    column = pa.array([b"padding"] * start + [position.to_bytes() for position in ids], pa.binary()).slice(start)
    positions = source_positions("__messageId", column)
    assert positions.ledgers.tolist() == [position.ledger_id for position in ids]
    assert positions.sequence_ids.tolist() == [
        position.entry_id << 16 | max(0, position.batch_index) for position in ids
    ]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
def test_invalid_bytes_of_ids_are_rejected_or_read_alike(data: list[bytes]) -> None:
    try:
        positions = source_positions("__messageId", pa.array(data, pa.binary()))
    except UnwritableRow as error:
        assert "column __messageId of row" in str(error)
        return
    for place, each in enumerate(data):
        position = MessageId.from_bytes(each)
        assert positions.ledgers[place] == position.ledger_id
        assert positions.sequence_ids[place] == position.entry_id << 16 | max(0, position.batch_index)


def test_a_position_requires_its_columns() -> None:
    good = MessageId(1, 2).to_bytes()
    for wrong, text in (
        (None, "column id is null in row 1"),
        (b"", "row 1 is , which is not a serialized message id"),
        (b"\x08", "row 1 is 08, which is not"),
        (MessageId(-1, -1).to_bytes(), "row 1 is -1:-1"),
        (MessageId(1, 1 << 47).to_bytes(), "an entry up to 140737488355327"),
        (MessageId(1, 1, -1, 65536).to_bytes(), "batch index up to 65535"),
    ):
        with pytest.raises(UnwritableRow, match=text):
            source_positions("id", pa.array([good, wrong], pa.binary()))

"""Record batches (SP1): columns of every kind of entry equal the messages that the client reads."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import IntegerType, StructField, StructType

from magnetar.client.consume.entry import Entry, EntryDecoder
from magnetar.client.message import EARLIEST, LATEST, Message, MessageId
from magnetar.spark.codec.columns import METADATA, ON_REQUEST, RAW_VALUE, SourceColumns, entry_columns, select_columns
from magnetar.spark.codec.entry_view import MixedBatch, SingleMessage, UniformBatch, view_entry
from magnetar.spark.codec.record_batches import RowReader
from magnetar.spark.errors import UnreadablePayload
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import compress
from magnetar.wire.metadata import build_blob

TOPIC = "persistent://public/default/t-partition-3"
EVERY = StructType([column.field for column in (RAW_VALUE, *METADATA, *ON_REQUEST)])


@dataclass(frozen=True)
class Span:
    start: MessageId = EARLIEST
    end: MessageId = LATEST
    topic: str = TOPIC


def every_column() -> SourceColumns:
    return select_columns(EVERY, [RAW_VALUE.field])


def single(value_size: int, **fields: Any) -> pb.SingleMessageMetadata:
    return pb.SingleMessageMetadata(payload_size=value_size, **fields)


def blob_of(messages: Sequence[tuple[pb.SingleMessageMetadata, bytes]], **fields: Any) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="producer",
        sequence_id=70,
        publish_time=1_700_000_000_123,
        num_messages_in_batch=len(messages),
        **fields,
    )
    payload = build_batch(messages)
    if metadata.compression:
        metadata.uncompressed_size = len(payload)
        payload = compress(metadata.compression, payload)
    return build_blob(metadata, payload)


def entry_of(blob: bytes, number: int = 0, redeliveries: int = 0) -> Entry:
    return Entry(TOPIC, MessageId(5, number, 3), redeliveries, (), blob)


def rows_of(entries: Iterable[Entry], span: Span | None = None, **options: Any) -> list[dict[str, Any]]:
    reader = RowReader(options.pop("columns", None) or every_column(), **options)
    batches = list(reader.read([list(entries)], span or Span()))
    return [row for batch in batches for row in batch.to_pylist()]


def expected(message: Message) -> dict[str, Any]:
    """Rows by the client's reading, which knows no columns."""
    key = None if message.key is None else message.key.encode()
    if key is not None and message.key_is_base64:
        key = base64.b64decode(key)
    return {
        "value": None if message.is_null else message.value,
        "__key": key,
        "__topic": TOPIC,
        "__messageId": message.id.to_bytes(),
        "__publishTime": message.publish_time_ms,
        "__eventTime": message.event_time_ms,
        "__messageProperties": message.properties,
        "__batchIndex": message.id.batch_index if message.id.batch_index >= 0 else None,
        "__redeliveryCount": message.redelivery_count,
        "__error": None,
        "__payload": None if message.is_null else message.value,
        "__messageIdText": str(message.id),
        "__partition": 3,
        "__producerName": message.producer_name,
        "__sequenceId": message.sequence_id,
        "__orderingKey": message.ordering_key,
        "__schemaVersion": None if message.schema_version is None else int.from_bytes(message.schema_version, "big"),
        "__deliverAt": message.deliver_at_ms,
        "__replicatedFrom": message.replicated_from,
    }


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Times as milliseconds and maps as dictionaries."""
    shown = dict(row)
    for name in ("__publishTime", "__eventTime", "__deliverAt"):
        if shown[name] is not None:
            shown[name] = round(shown[name].timestamp() * 1000)
    shown["__messageProperties"] = dict(shown["__messageProperties"])
    return shown


def assert_as_the_client_reads(entries: list[Entry]) -> None:
    decoder = EntryDecoder()
    messages = [message for entry in entries for message in decoder.decode(entry)[0]]
    assert [plain(row) for row in rows_of(entries)] == [expected(message) for message in messages]


def same_layout(count: int = 300) -> list[tuple[pb.SingleMessageMetadata, bytes]]:
    return [
        (
            single(
                10,
                partition_key=f"key-{number:04}",
                event_time=1_600_000_000_000 + number,
                sequence_id=1000 + number,
                properties=[pb.KeyValue(key="team", value="sales")],
            ),
            b"%010d" % number,
        )
        for number in range(count)
    ]


def test_sp1_a_uniform_batch_is_read_as_a_table() -> None:
    entry = entry_of(blob_of(same_layout()), redeliveries=2)
    assert isinstance(view_entry(entry), UniformBatch)
    assert_as_the_client_reads([entry])


@pytest.mark.parametrize(
    "change",
    [
        lambda messages: messages[7][0].MergeFrom(pb.SingleMessageMetadata(null_value=True)),
        lambda messages: messages[7][0].MergeFrom(pb.SingleMessageMetadata(compacted_out=True)),
        lambda messages: messages[7][0].MergeFrom(pb.SingleMessageMetadata(partition_key="longer than others")),
        lambda messages: messages[7][0].MergeFrom(pb.SingleMessageMetadata(sequence_id=1 << 50)),
        lambda messages: messages[7][0].properties.pop(),
        lambda messages: messages[7][0].properties[0].MergeFrom(pb.KeyValue(key="team", value="SALES")),
        lambda messages: messages.__setitem__(7, (messages[7][0], b"another length")),
    ],
)
def test_sp1_one_message_of_another_layout_is_detected(change: Any) -> None:
    messages = same_layout()
    change(messages)
    entry = entry_of(blob_of(messages))
    assert isinstance(view_entry(entry), MixedBatch)
    assert_as_the_client_reads([entry])


@pytest.mark.parametrize("common", [{"null_value": True}, {"partition_key_b64_encoded": True}, {"compacted_out": True}])
def test_sp1_properties_common_to_a_batch(common: dict[str, bool]) -> None:
    messages = [
        (single(4, partition_key=base64.b64encode(b"%03d" % number).decode(), **common), b"%04d" % number)
        for number in range(20)
    ]
    assert_as_the_client_reads([entry_of(blob_of(messages))])


def test_sp1_messages_with_only_a_value_are_not_parsed() -> None:
    messages = [(single(number, sequence_id=number * 1000), b"v" * number) for number in range(200)]
    entry = entry_of(blob_of(messages))
    opened = view_entry(entry)
    assert isinstance(opened, MixedBatch) and opened.keys() is None and opened.properties() is None
    assert_as_the_client_reads([entry])


_text = st.text(max_size=5)
_number = st.integers(0, (1 << 63) - 1)
_singles = st.fixed_dictionaries(
    {},
    optional={
        "partition_key": _text,
        "event_time": st.integers(0, 4_000_000_000_000),
        "ordering_key": st.binary(max_size=4),
        "sequence_id": _number,
        "null_value": st.booleans(),
        "compacted_out": st.booleans(),
        "properties": st.lists(st.tuples(_text, _text), max_size=2, unique_by=lambda pair: pair[0]),
    },
)
_entries = st.tuples(
    st.lists(st.tuples(_singles, st.binary(max_size=6)), min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from([pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_entries, min_size=1, max_size=4))
def test_sp1_any_entries_equal_the_clients_reading(drawn: list[Any]) -> None:
    entries = []
    for number, (messages, is_repeated, compression) in enumerate(drawn):
        if is_repeated:  # makes uniform batches
            messages = messages[:1] * 10
        built = []
        for fields, value in messages:
            pairs = [pb.KeyValue(key=key, value=text) for key, text in fields.get("properties", ())]
            built.append((single(len(value), **{**fields, "properties": pairs}), value))
        entries.append(entry_of(blob_of(built, compression=compression), number))
    assert_as_the_client_reads(entries)


def test_sp1_single_messages_and_batches_side_by_side() -> None:
    alone = pb.MessageMetadata(
        producer_name="producer",
        sequence_id=5,
        publish_time=1_700_000_000_000,
        partition_key="k",
        ordering_key=b"o",
        event_time=12,
        deliver_at_time=1_700_000_001_000,
        replicated_from="west",
        schema_version=b"\0" * 8,
        properties=[pb.KeyValue(key="a", value="b")],
    )
    empty = pb.MessageMetadata(producer_name="other", sequence_id=6, publish_time=1, null_value=True)
    entries = [
        entry_of(build_blob(alone, b"alone"), 0),
        entry_of(blob_of(same_layout(140)), 1),
        entry_of(build_blob(empty, b""), 2),
    ]
    assert isinstance(view_entry(entries[0]), SingleMessage)
    assert_as_the_client_reads(entries)


def test_sp1_ids_of_large_batches() -> None:
    """An index has one byte below 128, two below 16,384, then three."""
    messages = [(single(1, sequence_id=1), b"v")] * 16_500
    rows = rows_of([entry_of(blob_of(messages))])
    for index in (0, 127, 128, 16_383, 16_384, 16_499):
        assert MessageId.from_bytes(rows[index]["__messageId"]) == MessageId(5, 0, 3, index, 16_500)


def test_sp1_record_batches_are_bounded_and_have_sparks_schema() -> None:
    entries = [entry_of(blob_of(same_layout(300)), number) for number in range(10)]
    batches = list(RowReader(every_column()).read([entries], Span()))
    assert [batch.num_rows for batch in batches] == [1200, 1200, 600]
    assert all(batch.schema.equals(every_column().arrow) for batch in batches)


@pytest.mark.parametrize("vary", [False, True])
def test_sp1_a_range_starts_and_ends_inside_batches(vary: bool) -> None:
    messages = same_layout(20)
    if vary:
        messages[3] = (messages[3][0], b"another length")
    entries = [entry_of(blob_of(messages), number) for number in range(3)]
    span = Span(start=MessageId(5, 0, 3, 16), end=MessageId(5, 2, 3, 1))
    places = [MessageId.from_bytes(row["__messageId"]) for row in rows_of(entries, span)]
    assert [(place.entry_id, place.batch_index) for place in places] == [
        *((0, index) for index in (17, 18, 19)),
        *((1, index) for index in range(20)),
        *((2, index) for index in (0, 1)),
    ]


def corrupt(blob: bytes) -> bytes:
    return blob[:-1] + bytes((blob[-1] ^ 1,))


def broken_batch() -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=7, num_messages_in_batch=3)
    return build_blob(metadata, b"xx")


def encrypted() -> bytes:
    keys = [pb.EncryptionKeys(key="k", value=b"v")]
    return build_blob(
        pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=7, encryption_keys=keys), b"secret"
    )


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (corrupt(blob_of(same_layout(10))), "checksum"),
        (encrypted(), "encrypted"),
        (blob_of(same_layout(10))[:40], "checksum"),
        (
            build_blob(
                pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=7, num_messages_in_batch=3), b"xx"
            ),
            "batch",
        ),
    ],
    ids=["corrupt", "encrypted", "cut off", "no batch"],
)
def test_sp1_an_unreadable_message_fails_or_is_a_row_with_the_reason(blob: bytes, reason: str) -> None:
    good = blob_of(same_layout(2))
    entries = [entry_of(good, 0), entry_of(blob, 1), entry_of(good, 2)]
    with pytest.raises(
        UnreadablePayload, match=rf"message 5:1:3 of {TOPIC} cannot be read: .*{reason}.*onUnreadable=row"
    ):
        rows_of(entries)
    rows = rows_of(entries, on_unreadable="row")
    assert [row["__error"] is None for row in rows] == [True, True, False, True, True]
    assert rows[2]["value"] is None and reason in rows[2]["__error"] and "5:1:3" in rows[2]["__error"]
    assert MessageId.from_bytes(rows[2]["__messageId"]) == MessageId(5, 1, 3)
    assert rows[2]["__payload"] and blob.endswith(rows[2]["__payload"]), "the payload as it is stored"
    assert rows[2]["__messageIdText"] == "5:1:3"


def chunk(number: int, count: int, value: bytes, uuid: str = "u") -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=7,
        uuid=uuid,
        chunk_id=number,
        num_chunks_from_msg=count,
        total_chunk_msg_size=6,
        partition_key="k",
    )
    return build_blob(metadata, value)


def test_sp1_chunks_become_one_row_with_the_position_of_the_last() -> None:
    entries = [entry_of(chunk(n, 3, part), n) for n, part in enumerate((b"ab", b"cd", b"ef"))]
    (row,) = rows_of(entries)
    assert (row["value"], row["__key"], row["__error"]) == (b"abcdef", b"k", None)
    assert MessageId.from_bytes(row["__messageId"]) == MessageId(5, 2, 3)


def test_sp1_the_first_chunks_may_be_before_the_range() -> None:
    entries = [entry_of(chunk(n, 3, part), n) for n, part in enumerate((b"ab", b"cd", b"ef"))]
    other = entry_of(chunk(0, 2, b"xx", uuid="other"), 1)
    assert rows_of(entries[:2]) == []  # it belongs to the range with its last chunk
    (row,) = rows_of(entries[2:], earlier=lambda _: [[entries[0], other, entries[1]]])
    assert row["value"] == b"abcdef"
    (row,) = rows_of(entries[2:], on_unreadable="row", earlier=lambda _: [[entries[1]]])
    assert row["value"] is None and "5:2:3" in row["__error"]


def test_sp1_internal_entries_of_the_broker_are_no_rows() -> None:
    marker = build_blob(pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=7, marker_type=10), b"")
    assert rows_of([entry_of(marker)]) == []


def test_sp1_whole_entries_byte_for_byte() -> None:
    columns = select_columns(StructType(entry_columns()), [], entries=True)
    entries = [entry_of(blob_of(same_layout(30)), 0), entry_of(encrypted(), 1)]
    rows = rows_of(entries, columns=columns)
    assert [(row["__entry"], row["__messages"], row["__topic"]) for row in rows] == [
        (entries[0].blob, 30, TOPIC),
        (entries[1].blob, 1, TOPIC),
    ]


class Halves:
    """A decoder: the value as a number; odd values do not match its schema."""

    needs_keys = False

    def __init__(self) -> None:
        self.versions: list[bytes | None] = []

    def decode(
        self, values: pa.Array, version: bytes | None, names: Sequence[str], keys: pa.Array | None
    ) -> tuple[dict[str, pa.Array], dict[int, str]]:
        self.versions.append(version)
        numbers = [int(value) for value in values.to_pylist()]
        array = pa.array([None if number % 2 else number // 2 for number in numbers], pa.int32())
        return {"half": array}, {row: f"{number} is odd" for row, number in enumerate(numbers) if number % 2}


def halves() -> SourceColumns:
    half = StructField("half", IntegerType())
    others = [column.field for column in METADATA if column.name in ("__messageId", "__error")]
    return select_columns(StructType([half, *others]), [half])


def test_sp1_rows_of_one_schema_version_are_decoded_together() -> None:
    decoder = Halves()
    even = [(single(2), b"%02d" % number) for number in (2, 4)]
    entries = [entry_of(blob_of(even, schema_version=version), n) for n, version in enumerate((b"a", b"a", b"b"))]
    rows = rows_of(entries, columns=halves(), decoder=decoder)
    assert [row["half"] for row in rows] == [1, 2] * 3 and decoder.versions == [b"a", b"b"]


def test_sp1_a_value_outside_its_schema_is_reported_with_its_message() -> None:
    messages = [(single(2), b"%02d" % number) for number in (2, 3, 4)]
    entries = [entry_of(blob_of(messages), 8)]
    with pytest.raises(UnreadablePayload, match=rf"message 5:8:3:1 of {TOPIC} .*schema: 3 is odd"):
        rows_of(entries, columns=halves(), decoder=Halves())
    rows = rows_of(entries, columns=halves(), decoder=Halves(), on_unreadable="row")
    assert [(row["half"], row["__error"]) for row in rows] == [(1, None), (None, "3 is odd"), (2, None)]

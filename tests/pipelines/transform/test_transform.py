"""Transformed entries: some messages are kept, their values are masked, all else is unchanged."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client import Entry, MessageId, Schema
from magnetar.client.consume.entry import EntryDecoder
from magnetar.client.message import Message
from magnetar.pipelines.transform.refusal import MessageRefused
from magnetar.pipelines.transform.transform import Transform
from magnetar.replication.model import ROUTE, Mask, MaskKind, RoutePolicy
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch, split_batch
from magnetar.wire.compression import compress, decompress
from magnetar.wire.metadata import build_blob

COMPRESSIONS = [pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY]
EMAIL = Mask("email", MaskKind.FIXED, "-")
WHERE = RoutePolicy(where="true")

Entered = tuple[pb.MessageMetadata, bytes]


def transform(policy: RoutePolicy, schema: Schema | None = None) -> Transform:
    return Transform(policy, "persistent://public/default/people", lambda version: schema)


def entry(
    messages: Sequence[tuple[pb.SingleMessageMetadata, bytes]],
    compression: pb.CompressionType.ValueType = pb.NONE,
    **metadata: object,
) -> Entered:
    payload = build_batch(messages)
    head = pb.MessageMetadata(
        producer_name="p", sequence_id=100, publish_time=7, num_messages_in_batch=len(messages), compression=compression
    )
    head.uncompressed_size = len(payload)
    head.MergeFrom(pb.MessageMetadata(**metadata))  # type: ignore[arg-type]
    return head, compress(compression, payload)


def single(value: bytes, **metadata: object) -> Entered:
    head = pb.MessageMetadata(producer_name="p", sequence_id=5, publish_time=7)
    head.MergeFrom(pb.MessageMetadata(**metadata))  # type: ignore[arg-type]
    return head, value


def opened(entered: Entered | None) -> list[Message]:
    """The messages as a client reads them."""
    assert entered is not None
    messages, permits = EntryDecoder().decode(Entry("t", MessageId(1, 1), 0, (), build_blob(*entered)))
    assert permits == max(1, entered[0].num_messages_in_batch)
    return messages


def values(numbers: Sequence[int]) -> list[tuple[pb.SingleMessageMetadata, bytes]]:
    return [
        (pb.SingleMessageMetadata(sequence_id=100 + number, partition_key=f"k{number}"), person(number))
        for number in numbers
    ]


def person(number: int, email: str | None = None) -> bytes:
    return json.dumps({"n": number, "email": email or f"{number}@x"}, separators=(",", ":")).encode()


singles = st.builds(
    pb.SingleMessageMetadata,
    partition_key=st.none() | st.text(max_size=5),
    ordering_key=st.none() | st.binary(max_size=5),
    event_time=st.none() | st.integers(1, 2**40),
    sequence_id=st.none() | st.integers(0, 2**40),
    properties=st.lists(st.builds(pb.KeyValue, key=st.text(max_size=3), value=st.text(max_size=3)), max_size=2),
    null_value=st.none() | st.just(True),
    compacted_out=st.none() | st.just(True),
)
batches = st.lists(st.tuples(singles, st.integers(0, 99).map(person)), min_size=1, max_size=12)


@given(batches, st.sampled_from(COMPRESSIONS), st.data())
def test_sp6_kept_messages_change_only_their_property(
    messages: list[tuple[pb.SingleMessageMetadata, bytes]],
    compression: pb.CompressionType.ValueType,
    data: st.DataObject,
) -> None:
    for message, value in messages:
        message.payload_size = len(value)
    kept = data.draw(st.frozensets(st.integers(0, len(messages) - 1)))
    metadata, payload = entry(messages, compression, replicate_to=["b"], schema_version=b"v", ordering_key=b"first")
    before = metadata.SerializeToString(deterministic=True)

    done = transform(RoutePolicy(where="n > 1", rename="x")).apply(metadata, payload, kept)

    assert metadata.SerializeToString(deterministic=True) == before
    if not kept:
        assert done is None
        return
    assert done is not None
    changed, packed = done
    assert changed.num_messages_in_batch == len(kept)
    unpacked = decompress(changed.compression, packed, changed.uncompressed_size)
    for (after, value), index in zip(split_batch(changed, unpacked), sorted(kept), strict=True):
        was, was_value = messages[index]
        assert value == was_value
        assert after.properties.pop() == pb.KeyValue(key=ROUTE, value="where,rename")
        if not was.HasField("sequence_id") and len(kept) < len(messages):
            assert after.sequence_id == 100 + index
            after.ClearField("sequence_id")
        assert after == was
    first = messages[min(kept)][0]
    if len(kept) < len(messages):
        assert changed.HasField("ordering_key") == first.HasField("ordering_key")
        assert changed.ordering_key == first.ordering_key
    for field in ("num_messages_in_batch", "uncompressed_size", "ordering_key"):
        changed.ClearField(field)
        metadata.ClearField(field)
    assert changed == metadata


@given(st.lists(st.integers(0, 99), min_size=1, max_size=9), st.sampled_from(COMPRESSIONS))
def test_sp6_values_of_a_batch_are_masked(numbers: list[int], compression: pb.CompressionType.ValueType) -> None:
    before = entry(values(numbers), compression)
    after = opened(transform(RoutePolicy(masks=(EMAIL,))).apply(*before))
    assert [message.value for message in after] == [person(number, "-") for number in numbers]
    for message, was in zip(after, opened(before), strict=True):
        assert message.properties == {ROUTE: "mask:email"}
        assert (message.key, message.sequence_id, message.publish_time_ms) == (
            was.key,
            was.sequence_id,
            was.publish_time_ms,
        )


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_single_message(compression: pb.CompressionType.ValueType) -> None:
    value = person(1)
    given_, payload = single(
        compress(compression, value), compression=compression, uncompressed_size=len(value), partition_key="k"
    )
    given_.properties.add(key="a", value="b")
    policy = RoutePolicy(where="n > 0", masks=(EMAIL,))
    message = opened(transform(policy).apply(given_, payload, (0,)))[0]
    assert message.value == person(1, "-")
    assert message.properties == {"a": "b", ROUTE: "where,mask:email"}
    assert message.key == "k"
    assert transform(policy).apply(given_, payload, ()) is None


def test_an_earlier_route_is_replaced() -> None:
    metadata, payload = single(b"x", properties=[pb.KeyValue(key=ROUTE, value="where")])
    assert opened(transform(RoutePolicy(rename="t")).apply(metadata, payload))[0].properties == {ROUTE: "rename"}


def test_a_batch_has_the_ordering_key_of_its_first_kept_message() -> None:
    metadata, payload = entry(values([0, 1, 2]), partition_key="k0", compacted_batch_indexes=[0, 2])
    done = transform(WHERE).apply(metadata, payload, [1, 2])
    assert done is not None
    assert done[0].partition_key == "k1"
    assert list(done[0].compacted_batch_indexes) == [1]
    no_key = [(pb.SingleMessageMetadata(partition_key="k0"), b""), (pb.SingleMessageMetadata(), b"")]
    done = transform(WHERE).apply(*entry(no_key, partition_key="k0"), [1])
    assert done is not None
    assert not done[0].HasField("partition_key")


def test_a_message_without_a_value_is_not_masked() -> None:
    messages = [
        (pb.SingleMessageMetadata(null_value=True), b'{"email":"x"}'),
        (pb.SingleMessageMetadata(compacted_out=True), b'{"email":"x"}'),
        (pb.SingleMessageMetadata(), b'{"email":"x"}'),
    ]
    done = transform(RoutePolicy(masks=(EMAIL,))).apply(*entry(messages))
    assert done is not None
    after = split_batch(*done)
    assert [value for _, value in after] == [b"", b"", b'{"email":"-"}']
    assert after[0][0].null_value
    assert after[1][0].compacted_out
    assert opened(transform(RoutePolicy(masks=(EMAIL,))).apply(*single(b"?", null_value=True)))[0].value == b""


ENCRYPTED = {"encryption_keys": [pb.EncryptionKeys(key="k", value=b"v")], "num_messages_in_batch": 3}
CHUNK = {"uuid": "u", "num_chunks_from_msg": 3, "chunk_id": 1}


@pytest.mark.parametrize(("metadata", "reason"), [(ENCRYPTED, "encrypted"), (CHUNK, "one of 3 chunks")])
def test_an_unreadable_entry_is_refused_or_copied_unchanged(metadata: dict[str, object], reason: str) -> None:
    before = single(b"?", **metadata)
    for policy, kept in ((WHERE, ()), (WHERE, (0,)), (RoutePolicy(masks=(EMAIL,)), None)):
        with pytest.raises(MessageRefused, match=reason):
            transform(policy).apply(*before, kept)
    done = transform(RoutePolicy(rename="t")).apply(*before)
    assert done is not None
    assert done[1] == b"?"
    assert done[0].properties.pop() == pb.KeyValue(key=ROUTE, value="rename")
    assert done[0] == before[0]


@pytest.mark.parametrize(
    "before",
    [
        single(b"?", num_messages_in_batch=2),
        single(b"?", compression=pb.ZSTD, uncompressed_size=5),
        single(b"not JSON"),
        entry([(pb.SingleMessageMetadata(), b'{"email":"x"}'), (pb.SingleMessageMetadata(), b"\x00")]),
    ],
)
def test_an_unreadable_entry_is_refused(before: Entered) -> None:
    with pytest.raises(MessageRefused):
        transform(RoutePolicy(masks=(EMAIL,))).apply(*before)


def test_the_reason_of_a_failed_filter_is_the_refusal() -> None:
    with pytest.raises(MessageRefused, match="not of its schema"):
        transform(WHERE).apply(*single(b""), "it is not of its schema")


def test_a_filter_without_a_choice_copies_nothing() -> None:
    with pytest.raises(ValueError, match="the messages to keep were not chosen"):
        transform(WHERE).apply(*single(b"{}"))


def test_the_schema_of_a_message_is_requested_by_its_version() -> None:
    record = {"type": "record", "name": "R", "fields": [{"name": "email", "type": "string"}]}
    schema = Schema(type="AVRO", data=json.dumps(record).encode())
    policy = RoutePolicy(masks=(EMAIL,))
    assert opened(transform(policy, schema).apply(*single(b"\x02x", schema_version=b"\x00" * 8)))[0].value == b"\x02-"

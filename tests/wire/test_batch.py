"""Batches: built, split, and with sizes and counts that do not add up."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.wire.batch import build_batch, split_batch
from magnetar.wire.metadata import MetadataError
from magnetar.wire.schema_pb2 import MessageMetadata, SingleMessageMetadata

messages = st.lists(
    st.tuples(
        st.builds(
            SingleMessageMetadata,
            partition_key=st.none() | st.text(max_size=10),
            event_time=st.none() | st.integers(0, (1 << 64) - 1),
            null_value=st.none() | st.booleans(),
        ),
        st.binary(max_size=50),
    ),
    max_size=10,
)
THREE = [
    (SingleMessageMetadata(partition_key="a"), b"first"),
    (SingleMessageMetadata(partition_key="b"), b""),
    (SingleMessageMetadata(partition_key="c"), b"third"),
]


def metadata_for(count: int) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, num_messages_in_batch=count)


class TestBatch:
    @given(messages)
    def test_built_and_split(self, batch: list[tuple[SingleMessageMetadata, bytes]]) -> None:
        split = split_batch(metadata_for(len(batch)), build_batch(batch))
        assert [payload for _, payload in split] == [payload for _, payload in batch]
        for (single, payload), (original, _) in zip(split, batch, strict=True):
            assert single.payload_size == len(payload)
            single.ClearField("payload_size")
            assert single == original

    def test_the_documented_layout(self) -> None:
        batch = build_batch([(SingleMessageMetadata(partition_key="k"), b"payload")])
        assert batch == b"\x00\x00\x00\x05" + b"\x12\x01k\x18\x07" + b"payload"

    def test_building_leaves_the_given_metadata_alone(self) -> None:
        single = SingleMessageMetadata(payload_size=99)
        ((built, _),) = split_batch(metadata_for(1), build_batch([(single, b"payload")]))
        assert (single.payload_size, built.payload_size) == (99, 7)

    def test_cut_anywhere(self) -> None:
        batch = build_batch(THREE)
        for size in range(len(batch)):
            with pytest.raises(MetadataError):
                split_batch(metadata_for(3), batch[:size])

    @pytest.mark.parametrize(
        ("count", "payload", "message"),
        [
            (4, build_batch(THREE), "batch of 4 messages ends after 3"),
            (2, build_batch(THREE), "batch of 2 messages has 14 bytes after its last message"),
            (-1, b"x", "batch of -1 messages has 1 bytes after"),
            (3, build_batch(THREE) + b"!", "batch of 3 messages has 1 bytes after its last message"),
            (1, b"\x00\x00", "batch of 2 bytes ends before the metadata size of message 0"),
            (1, b"\x00\x00\x00\x09x", "metadata of 9 bytes of message 0 at offset 4 exceeds its batch of 5 bytes"),
            (1, b"\x00\x00\x00\x01\xff", "metadata of 1 bytes of message 0 is not a protobuf"),
            (1, b"\x00\x00\x00\x02\x18\x05abc", "message 0 of 5 bytes at offset 6 exceeds its batch of 9 bytes"),
            (1, b"\x00\x00\x00\x0b\x18" + b"\xff" * 9 + b"\x01", "message 0 of -1 bytes"),
        ],
    )
    def test_names_what_is_wrong(self, count: int, payload: bytes, message: str) -> None:
        with pytest.raises(MetadataError, match=message):
            split_batch(metadata_for(count), payload)

    @given(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=100))
    def test_garbage_raises_nothing_else(self, count: int, payload: bytes) -> None:
        with contextlib.suppress(MetadataError):
            split_batch(metadata_for(count), payload)


def test_a_property_without_a_value_is_copied_as_it_is() -> None:
    single = SingleMessageMetadata(payload_size=1)
    single.properties.add(key="a")
    payload = build_batch([(single, b"x")])
    copied = split_batch(MessageMetadata(num_messages_in_batch=1), payload)
    assert build_batch(copied) == payload
    assert not copied[0][0].properties[0].HasField("value")

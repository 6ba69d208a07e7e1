"""Blobs: with and without their optional parts, truncated, corrupted; and the keys taken from them."""

from __future__ import annotations

import contextlib

import google_crc32c
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from magnetar.wire import metadata
from magnetar.wire.metadata import (
    MetadataError,
    build_blob,
    checked_bounds,
    checksum_ok,
    examine,
    join_blob,
    metadata_bounds,
    metadata_of,
    payload_of,
    split_blob,
    sticky_hash,
    sticky_key,
)
from magnetar.wire.schema_pb2 import LZ4, BrokerEntryMetadata, KeyValue, MessageMetadata

PAYLOAD = b"the payload"
METADATA = MessageMetadata(
    producer_name="p-1",
    sequence_id=5,
    publish_time=1_700_000_000_000,
    properties=[KeyValue(key="k", value="v")],
    partition_key="key",
    compression=LZ4,
    uncompressed_size=100,
)


def broker_entry_block() -> bytes:
    entry = BrokerEntryMetadata(broker_timestamp=1_700_000_000_001, index=77).SerializeToString()
    return b"\x0e\x02" + len(entry).to_bytes(4) + entry


def without_checksum(metadata: MessageMetadata, payload: bytes) -> bytes:
    section = metadata.SerializeToString()
    return len(section).to_bytes(4) + section + payload


PLAIN = build_blob(METADATA, PAYLOAD)
BLOBS = {
    "checksum": PLAIN,
    "no checksum": without_checksum(METADATA, PAYLOAD),
    "broker entry, checksum": broker_entry_block() + PLAIN,
    "broker entry, no checksum": broker_entry_block() + without_checksum(METADATA, PAYLOAD),
}
blobs = pytest.mark.parametrize("blob", BLOBS.values(), ids=BLOBS)


class TestParts:
    @blobs
    def test_are_found_after_any_prefix(self, blob: bytes) -> None:
        assert metadata_of(blob) == METADATA
        assert payload_of(blob) == PAYLOAD
        assert split_blob(blob) == (METADATA, PAYLOAD)
        assert checksum_ok(blob)

    def test_documented_layout(self) -> None:
        section = METADATA.SerializeToString()
        covered = len(section).to_bytes(4) + section + PAYLOAD
        assert b"\x0e\x01" + google_crc32c.value(covered).to_bytes(4) + covered == PLAIN

    @given(st.binary(max_size=300), st.binary(max_size=50), st.text(max_size=20))
    def test_built_and_split(self, payload: bytes, ordering_key: bytes, name: str) -> None:
        metadata = MessageMetadata(producer_name=name, sequence_id=1, publish_time=2, ordering_key=ordering_key)
        blob = build_blob(metadata, payload)
        assert split_blob(blob) == (metadata, payload)
        assert checksum_ok(blob)

    def test_metadata_without_its_required_fields_is_built_again(self) -> None:
        metadata = MessageMetadata(partition_key="only this")
        assert split_blob(build_blob(metadata, PAYLOAD)) == (metadata, PAYLOAD)

    def test_an_empty_payload(self) -> None:
        assert split_blob(build_blob(METADATA, b"")) == (METADATA, b"")


class TestChecksum:
    @pytest.mark.parametrize("blob", [BLOBS["checksum"], BLOBS["broker entry, checksum"]])
    def test_any_changed_byte_after_it_is_noticed(self, blob: bytes) -> None:
        for position in range(blob.index(b"\x0e\x01") + 2, len(blob)):
            changed = blob[:position] + bytes((blob[position] ^ 0x10,)) + blob[position + 1 :]
            assert not checksum_ok(changed), position

    @pytest.mark.parametrize("size", range(2, len(PLAIN)))
    def test_a_truncated_blob_is_not_ok(self, size: int) -> None:
        assert not checksum_ok(PLAIN[:size])

    def test_a_broker_entry_block_beyond_the_blob_is_not_ok(self) -> None:
        assert not checksum_ok(b"\x0e\x02\x00")
        assert not checksum_ok(b"\x0e\x02\x00\x00\x00\x09" + bytes(8))

    @given(st.binary(max_size=40))
    def test_never_raises(self, blob: bytes) -> None:
        for start in (b"", b"\x0e\x01", b"\x0e\x02", b"\x0e\x02\x00\x00\x00\x01"):
            checksum_ok(start + blob)


class TestCheckedBounds:
    @blobs
    def test_are_those_of_a_blob_that_is_whole(self, blob: bytes) -> None:
        start, end = checked_bounds(blob)
        assert (start, end) == metadata_bounds(blob)
        assert (blob[start:end], blob[end:]) == (METADATA.SerializeToString(), PAYLOAD)

    @given(st.binary(max_size=40), st.sampled_from(list(BLOBS.values())), st.integers(0, 80), st.integers(0, 255))
    def test_are_refused_where_a_check_or_the_bounds_are_wrong(
        self, noise: bytes, blob: bytes, position: int, value: int
    ) -> None:
        for one in (
            noise,
            b"\x0e\x01" + noise,
            blob[:position],
            blob[:position] + bytes([value]) + blob[position + 1 :],
        ):
            try:
                expected = metadata_bounds(one) if checksum_ok(one) else None
            except MetadataError:
                expected = None
            if expected is None:
                with pytest.raises(MetadataError):
                    checked_bounds(one)
            else:
                assert checked_bounds(one) == expected

    def test_a_wrong_checksum_is_named(self) -> None:
        with pytest.raises(MetadataError, match="its checksum does not match"):
            checked_bounds(PLAIN[:-1] + b"!")

    def test_joined_parts_are_the_built_blob(self) -> None:
        assert join_blob(METADATA.SerializeToString(), PAYLOAD) == PLAIN


class TestMalformed:
    @blobs
    def test_cut_before_the_payload(self, blob: bytes) -> None:
        for size in range(len(blob) - len(PAYLOAD)):
            for read in (metadata_of, payload_of, split_blob):
                with pytest.raises(MetadataError):
                    read(blob[:size])
            assert examine(blob[:size]) in (metadata.BAD_CHECKSUM, metadata.MALFORMED)

    @pytest.mark.parametrize(
        ("blob", "message"),
        [
            (b"", "blob of 0 bytes ends before its metadata size at offset 0"),
            (b"\x0e\x01\x00\x00", "blob of 4 bytes ends before its metadata size at offset 6"),
            (
                b"\x0e\x01" + bytes(4) + b"\x00\x00\x00\x09abc",
                "metadata of 9 bytes at offset 10 exceeds the blob of 13",
            ),
            (b"\xff\xff\xff\xff", "metadata of 4294967295 bytes at offset 4 exceeds the blob of 4 bytes"),
            (b"\x0e\x02\x00\x00\x00\x63", "broker entry metadata up to offset 105 exceeds the blob of 6 bytes"),
            (b"\x0e\x02\x00", "ends before its broker entry metadata size at offset 2"),
            (b"\x00\x00\x00\x02\xff\xff", "metadata of 2 bytes is not a protobuf MessageMetadata"),
        ],
    )
    def test_names_what_is_wrong(self, blob: bytes, message: str) -> None:
        with pytest.raises(MetadataError, match=message):
            metadata_of(blob)

    @given(st.binary(max_size=60), st.sampled_from([b"", b"\x0e\x01", b"\x0e\x02", b"\x0e\x01\0\0\0\0\0\0\0"]))
    def test_garbage_raises_nothing_else(self, garbage: bytes, start: bytes) -> None:
        with contextlib.suppress(MetadataError):
            sticky_key(split_blob(start + garbage)[0])
        examine(start + garbage)


class TestExamine:
    @blobs
    def test_finds_nothing_wrong_with_any_shape(self, blob: bytes) -> None:
        assert examine(blob) == metadata.PLAIN

    def test_does_not_take_the_payload_for_metadata(self) -> None:
        assert examine(build_blob(METADATA, b"\x98\x01")) == metadata.PLAIN

    @given(st.integers(-(1 << 63), (1 << 63) - 1), st.text(max_size=30))
    def test_never_misses_a_delay(self, deliver_at_time: int, key: str) -> None:
        delayed = MessageMetadata(
            producer_name="p", sequence_id=1, publish_time=2, partition_key=key, deliver_at_time=deliver_at_time
        )
        for blob in (build_blob(delayed, PAYLOAD), without_checksum(delayed, PAYLOAD)):
            assert examine(blob) == metadata.MAY_BE_DELAYED
            assert examine(broker_entry_block() + blob) == metadata.MAY_BE_DELAYED

    def test_checksum(self) -> None:
        for position in range(6, len(PLAIN)):
            broken = bytearray(PLAIN)
            broken[position] ^= 1
            assert examine(bytes(broken)) == metadata.BAD_CHECKSUM

    def test_metadata_that_is_cut_off(self) -> None:
        head = (1000).to_bytes(4) + b"abc"
        assert examine(head) == metadata.MALFORMED
        assert examine(b"\x0e\x01" + google_crc32c.value(head).to_bytes(4) + head) == metadata.MALFORMED
        assert examine(b"") == metadata.MALFORMED


class TestStickyKey:
    def test_ordering_key_goes_first(self) -> None:
        assert sticky_key(MessageMetadata(ordering_key=b"\xffo", partition_key="k")) == b"\xffo"

    def test_an_empty_ordering_key_counts(self) -> None:
        assert sticky_key(MessageMetadata(ordering_key=b"", partition_key="k")) == b""

    def test_partition_key_in_utf_8(self) -> None:
        assert sticky_key(MessageMetadata(partition_key="schlüssel")) == "schlüssel".encode()

    @pytest.mark.parametrize(
        ("encoded", "key"), [("AP8=", b"\x00\xff"), ("AP8", b"\x00\xff"), ("a b=", b"NONE_KEY"), ("ü===", b"NONE_KEY")]
    )
    def test_partition_key_in_base64(self, encoded: str, key: bytes) -> None:
        assert sticky_key(MessageMetadata(partition_key=encoded, partition_key_b64_encoded=True)) == key

    def test_producer_and_sequence_id_without_a_key(self) -> None:
        assert sticky_key(MessageMetadata(producer_name="p", sequence_id=12, publish_time=1)) == b"p-12"

    def test_the_sequence_id_is_signed_as_in_java(self) -> None:
        assert sticky_key(MessageMetadata(producer_name="p", sequence_id=(1 << 64) - 1)) == b"p--1"

    def test_nothing_at_all(self) -> None:
        assert sticky_key(MessageMetadata(publish_time=1)) == b"NONE_KEY"


def murmur3_32(data: bytes) -> int:
    """The published algorithm, seed 0, as a second opinion."""
    mask = 0xFFFFFFFF

    def mix(block: int) -> int:
        block = block * 0xCC9E2D51 & mask
        return (block << 15 | block >> 17) * 0x1B873593 & mask

    value = 0
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        value ^= mix(int.from_bytes(data[start : start + 4], "little"))
        value = ((value << 13 | value >> 19) * 5 + 0xE6546B64) & mask
    value ^= mix(int.from_bytes(data[whole:], "little"))
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & mask
    value = (value ^ value >> 13) * 0xC2B2AE35 & mask
    return value ^ value >> 16


class TestStickyHash:
    @given(st.binary(max_size=40))
    def test_is_never_zero_and_never_out_of_range(self, key: bytes) -> None:
        assert 1 <= sticky_hash(key) <= 65535

    def test_slot_zero_moves_to_one(self) -> None:
        assert murmur3_32(b"") == 0
        assert sticky_hash(b"") == 1

    def test_a_known_value(self) -> None:
        assert murmur3_32(b"hello") == 0x248BFA47  # published test vector
        assert sticky_hash(b"hello") == 0xFA47

    @given(st.binary(max_size=40))
    def test_only_slot_zero_moves(self, key: bytes) -> None:
        slot = murmur3_32(key) % 65536
        assume(slot != 0)
        assert sticky_hash(key) == slot

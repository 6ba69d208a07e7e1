"""The bytes of a copy: appended metadata reads like set metadata, and damaged entries are not copied."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from magnetar.pipelines.copy.copy_encoder import CopyEncoder, is_for, parse_entry
from magnetar.pipelines.transform.refusal import MessageRefused
from magnetar.replication.model import SOURCE_POSITION
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import build_blob, checksum_ok, split_blob

LARGE = 1 << 30

numbers = some.integers(0, (1 << 63) - 1)
texts = some.text(max_size=20)
metadatas = some.builds(
    lambda properties, optional, **fields: pb.MessageMetadata(
        **fields,
        properties=[pb.KeyValue(key=key, value=value) for key, value in properties],
        **{name: value for name, value in optional.items() if value is not None},
    ),
    producer_name=texts,
    sequence_id=numbers,
    publish_time=numbers,
    properties=some.lists(some.tuples(texts, texts), max_size=3),
    optional=some.fixed_dictionaries(
        {
            "partition_key": some.none() | texts,
            "event_time": some.none() | numbers,
            "num_messages_in_batch": some.none() | some.integers(1, 1000),
            "schema_version": some.none() | some.binary(min_size=1, max_size=8),
            "deliver_at_time": some.none() | some.integers(0, 1 << 50),
            "replicate_to": some.none() | some.lists(texts, max_size=2),
        }
    ),
)


def expected(metadata: pb.MessageMetadata, cluster: str, position: str) -> pb.MessageMetadata:
    copied = pb.MessageMetadata()
    copied.CopyFrom(metadata)
    copied.properties.add(key=SOURCE_POSITION, value=position)
    copied.replicated_from = cluster
    return copied


@given(metadatas, some.binary(max_size=200), numbers, numbers, some.text(min_size=1, max_size=200))
def test_gr6_a_copy_has_its_source_position(
    metadata: pb.MessageMetadata, payload: bytes, ledger_id: int, entry_id: int, cluster: str
) -> None:
    blob = build_blob(metadata, payload)
    copies = CopyEncoder(cluster, ledger_id, None)
    entry = parse_entry(blob)
    special = copies.special(entry, entry_id, entry.version)
    assert checksum_ok(special)
    assert split_blob(special) == (expected(metadata, cluster, f"{ledger_id}:{entry_id}"), payload)
    plain = copies.plain([b"before", blob], 1, entry_id - 1, LARGE)
    assert plain in ([], [special]) or split_blob(plain[0]) == split_blob(special)


def test_gr6_plain_messages_are_copied_without_parsing() -> None:
    plain = build_blob(pb.MessageMetadata(producer_name="me", sequence_id=1, publish_time=2), b"v")
    batch = build_blob(
        pb.MessageMetadata(producer_name="me", sequence_id=1, publish_time=2, num_messages_in_batch=1), b"v"
    )
    copies = CopyEncoder("a", 7, None)
    made = copies.plain([plain, plain, batch, plain], 0, 10, LARGE)
    assert [split_blob(copy)[0].properties[0].value for copy in made] == ["7:10", "7:11"]
    assert copies.plain([plain, plain], 1, 10, LARGE) == made[1:]
    assert copies.plain([plain], 0, 10, len(made[0]) - 1) == []
    assert copies.plain([plain], 0, 10, len(made[0])) == made[:1]


@given(some.integers(0, 60), some.integers(1, 255))
def test_a_damaged_entry_gets_no_new_checksum(place: int, flip: int) -> None:
    """A new checksum would make damaged bytes look valid."""
    blob = bytearray(build_blob(pb.MessageMetadata(producer_name="me", sequence_id=1, publish_time=2), b"x" * 60))
    place = len(blob) - 1 - place
    blob[place] ^= flip
    assert CopyEncoder("a", 7, None).plain([bytes(blob)], 0, 0, LARGE) == []
    with pytest.raises(MessageRefused, match="checksum does not match"):
        parse_entry(bytes(blob))


def test_a_broker_that_reads_the_metadata_finds_the_copier() -> None:
    metadata = pb.MessageMetadata(producer_name="me", sequence_id=5, highest_sequence_id=9, publish_time=2)
    copies = CopyEncoder("a", 7, "copier")
    blob = build_blob(metadata, b"v")
    assert copies.plain([blob], 0, 0, LARGE) == []
    copied, payload = split_blob(copies.special(parse_entry(blob), 3, b"new"))
    assert (copied.producer_name, copied.sequence_id, copied.schema_version, payload) == ("copier", 3, b"new", b"v")
    assert not copied.HasField("highest_sequence_id")


@pytest.mark.parametrize(
    ("fields", "is_copied"),
    [
        ({}, True),
        ({"replicated_from": "c"}, False),
        ({"marker_type": 0}, False),
        ({"replicate_to": ["b"]}, True),
        ({"replicate_to": ["c"]}, False),
    ],
)
def test_gr6_the_choice_of_copied_entries(fields: dict[str, object], is_copied: bool) -> None:
    assert is_for(pb.MessageMetadata(**fields), "b") is is_copied  # type: ignore[arg-type]

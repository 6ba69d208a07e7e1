"""Offsets: their order and their notations."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.message import EARLIEST, LATEST, MessageId
from magnetar.spark.errors import InvalidOption
from magnetar.spark.source.offsets import Instant, Offsets, OffsetSpec, parse_offset_spec, sort_key, whole_entry

T = "persistent://public/default/t"
P0, P1 = f"{T}-partition-0", f"{T}-partition-1"

ids = st.builds(
    MessageId,
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.integers(-1, 2**31 - 1),
)
names = st.from_regex(r"persistent://[a-z]{1,5}/[a-z]{1,5}/[a-zA-Z0-9_-]{1,20}", fullmatch=True)


@given(st.dictionaries(names, ids))
def test_offsets_round_trip_through_a_checkpoint(by_topic: dict[str, MessageId]) -> None:
    offsets = Offsets(by_topic)

    assert Offsets.of_json("it", json.loads(json.dumps(offsets.to_json()))) == offsets


@given(names, ids)
def test_a_shown_offset_can_be_given(topic: str, offset: MessageId) -> None:
    bound = parse_offset_spec("startingOffsets", json.dumps({topic: str(offset)}))

    assert bound.of(topic) == offset


@given(ids)
def test_the_end_of_an_entry_is_after_every_message_in_it(offset: MessageId) -> None:
    inside = MessageId(offset.ledger_id, offset.entry_id, offset.partition, 7)

    assert sort_key(inside) < sort_key(whole_entry(inside))
    assert sort_key(whole_entry(inside)) < sort_key(MessageId(offset.ledger_id, offset.entry_id + 1))
    assert sort_key(MessageId(1, 5)) < sort_key(MessageId(2, -1))


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_rejected_with_the_name_of_the_option(text: str) -> None:
    try:
        parse_offset_spec("endingOffsets", text)
    except InvalidOption as error:
        assert "endingOffsets" in str(error)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_any_json_is_parsed_or_rejected_with_option_and_topic(value: object) -> None:
    try:
        parse_offset_spec("startingOffsets", json.dumps({T: value}))
    except InvalidOption as error:
        assert "startingOffsets" in str(error)
        assert T in str(error)


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("earliest", EARLIEST),
        ("LATEST", LATEST),
        (" 1700000000000 ", Instant(1_700_000_000_000)),
        ("0", Instant(0)),
        ("2023-11-14T22:13:20Z", Instant(1_700_000_000_000)),
        ("2023-11-14 23:13:20.123+01:00", Instant(1_700_000_000_123)),
        ("2023-11-14T22:13:20", Instant(1_700_000_000_000)),
        ("2023-11-14", Instant(1_699_920_000_000)),
    ],
)
def test_words_and_times(text: str, point: object) -> None:
    assert parse_offset_spec("startingOffsets", text).of(T) == point


def test_json_by_topic_accepts_every_spelling() -> None:
    signed = [byte - 256 if byte > 127 else byte for byte in MessageId(200, 300, 1).to_bytes()]
    given_ = {"a": "earliest", "b": "latest", "c": "12:34:0", "d": 1_700_000_000_000, "e": signed, "f": str(signed)}

    bound = parse_offset_spec("startingOffsets", json.dumps(given_))

    points = [bound.of(f"persistent://public/default/{name}") for name in "abcdef"]
    assert points == [EARLIEST, LATEST, MessageId(12, 34, 0), Instant(1_700_000_000_000)] + [MessageId(200, 299, 1)] * 2


@pytest.mark.parametrize(
    ("message", "before"),
    [
        (MessageId(7, 5), MessageId(7, 4)),
        (MessageId(7, 0), MessageId(7, -1)),
        (MessageId(7, 5, -1, 0, 3), MessageId(7, 4)),
        (MessageId(7, 5, 2, 2, 3), MessageId(7, 5, 2, 1)),
        (EARLIEST, EARLIEST),
        (LATEST, LATEST),
    ],
)
def test_offsets_of_the_scala_connector_include_the_message(message: MessageId, before: MessageId) -> None:
    text = json.dumps({"t": list(message.to_bytes())})

    assert parse_offset_spec("startingOffsets", text).of(T) == before
    assert parse_offset_spec("endingOffsets", text).of(T) == message


def test_a_topics_offset_applies_to_its_partitions_unless_named() -> None:
    bound = parse_offset_spec("startingOffsets", json.dumps({"t": "earliest", P1: "1:2:1"}))

    assert bound.of(P0) == EARLIEST
    assert bound.of(P1) == MessageId(1, 2, 1)


def test_an_unnamed_partition_is_an_error() -> None:
    bound = parse_offset_spec("startingOffsets", json.dumps({P1: "1:2:1"}))

    with pytest.raises(InvalidOption, match=f"startingOffsets has no offset for {P0}"):
        bound.of(P0)


def test_an_unread_topic_is_an_error() -> None:
    bound = OffsetSpec("endingOffsets", by_topic={"persistent://public/default/other": EARLIEST, T: EARLIEST})

    bound.check_topics({P0: None, "persistent://public/default/other": None})
    with pytest.raises(InvalidOption, match="endingOffsets names persistent://public/default/other, which is not"):
        bound.check_topics({P0: None})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ["startingOffsets", "not JSON"]),
        ("{}", ["startingOffsets", "names no topic"]),
        ('{"t": "1:2", "persistent://public/default/t": "1:3"}', ["startingOffsets", T, "twice"]),
        ('{"t": "1"}x', ["startingOffsets", "not JSON"]),
        ('{"t": "12:"}', ["startingOffsets", T, "12:", "ledger:entry"]),
        ('{"t": null}', ["startingOffsets", T, "None"]),
        ('{"t": true}', ["startingOffsets", T, "True"]),
        ('{"t": [1, 2, 999]}', ["startingOffsets", T, "[1, 2, 999]", "serialized"]),
        ('{"t": {"a": 1}}', ["startingOffsets", T]),
        ('{"a/b": "earliest"}', ["startingOffsets", "a/b"]),
        ("2023-13-45", ["startingOffsets", "2023-13-45"]),
        ("99999999999999999", ["startingOffsets", "99999999999999999"]),
        ("12:34", ["startingOffsets", "12:34", "JSON"]),
    ],
)
def test_invalid_offsets_are_rejected_with_option_and_topic(text: str, words: list[str]) -> None:
    with pytest.raises(InvalidOption) as raised:
        parse_offset_spec("startingOffsets", text)

    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize("value", [None, [], {"t": 1}, {"t": "x"}, {"a/b": "1:2"}])
def test_a_checkpoint_of_another_source_is_rejected(value: object) -> None:
    with pytest.raises(InvalidOption, match="the offset of the checkpoint"):
        Offsets.of_json("the offset of the checkpoint", value)

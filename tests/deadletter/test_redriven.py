"""SP3: what a dead letter begins its new life with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from magnetar.deadletter.properties import BY_CLIENT, DEATH_HISTORY, FailureRecord, read_history
from magnetar.deadletter.redriven import (
    ANY_ORIGIN,
    RESET,
    OriginKey,
    generation_in,
    origin_key,
    plain_properties,
    redrive_metadata,
)
from magnetar.deadletter.stamp import ERROR_IN_HISTORY_MAX, Raised, stamp, stamped
from magnetar.names import TopicName
from magnetar.wire.property_map import parse_map_metadata
from magnetar.wire.schema_pb2 import EncryptionKeys, KeyValue, MessageMetadata
from tests.wire.hostile_text import with_octets

LETTERS = TopicName.parse("t-s-DLQ")
TOPIC = "persistent://public/default/t"
ORIGIN = OriginKey(TOPIC, None, "s")
NOW_MS = 1_800_000_000_000


def metadata_with(properties: dict[str, str], **fields: Any) -> MessageMetadata:
    pairs = [KeyValue(key=name, value=text) for name, text in properties.items()]
    return MessageMetadata(**{"producer_name": "p", "sequence_id": 1, "publish_time": 5, "properties": pairs} | fields)


def redriven(
    before: MessageMetadata, origin: OriginKey = ORIGIN, generation: int = 0, *, names_subscription: bool = True
) -> MessageMetadata:
    metadata = parse_map_metadata(before.SerializePartialToString())
    properties = plain_properties(metadata)
    assert properties is not None
    redrive_metadata(metadata, properties, origin, generation, "redrive", 7, NOW_MS, names_subscription)
    return MessageMetadata.FromString(metadata.SerializePartialToString())


def texts(metadata: MessageMetadata) -> dict[str, str]:
    return {pair.key: pair.value for pair in metadata.properties}


class TestOrigin:
    @pytest.mark.parametrize(
        ("properties", "expected"),
        [
            ({"REAL_TOPIC": "t", "REAL_SUBSCRIPTION": "billing"}, OriginKey(TOPIC, None, "billing")),
            ({"REAL_TOPIC": f"{TOPIC}-partition-3"}, OriginKey(TOPIC, 3, "s")),
            ({"REAL_SUBSCRIPTION": "s"}, OriginKey(None, None, "s")),
            ({"REAL_TOPIC": "", "REAL_SUBSCRIPTION": "s"}, OriginKey(None, None, "s")),
            ({"REAL_TOPIC": "a/b", "REAL_SUBSCRIPTION": "s"}, OriginKey("a/b", None, "s")),
        ],
    )
    def test_sp3_is_read_from_the_properties(self, properties: dict[str, str], expected: OriginKey) -> None:
        assert origin_key(properties, LETTERS) == expected

    def test_sp3_a_name_that_is_none_is_cut(self) -> None:
        topic = origin_key({"REAL_TOPIC": "a/b" * 1000}, LETTERS).topic
        assert topic is not None and len(topic) <= 1024

    @given(st.dictionaries(st.sampled_from(["REAL_TOPIC", "REAL_SUBSCRIPTION"]), st.text(max_size=8)))
    def test_sp3_none_stands_for_all_others(self, properties: dict[str, str]) -> None:
        assert origin_key(properties, LETTERS) != ANY_ORIGIN


class TestPlain:
    def test_sp3_a_single_message_with_texts(self) -> None:
        metadata = parse_map_metadata(metadata_with({"a": "ü", "": ""}, partition_key="k").SerializeToString())
        assert plain_properties(metadata) == {"a": "ü", "": ""}

    @pytest.mark.parametrize(
        "fields",
        [
            {"num_messages_in_batch": 1},
            {"num_messages_in_batch": 0},
            {"encryption_keys": [EncryptionKeys(key="k", value=b"v")]},
            {"num_chunks_from_msg": 2},
        ],
        ids=str,
    )
    def test_sp3_nothing_else(self, fields: dict[str, Any]) -> None:
        assert plain_properties(parse_map_metadata(metadata_with({}, **fields).SerializeToString())) is None

    @pytest.mark.parametrize("field", ["properties", "partition_key"])
    @pytest.mark.parametrize("octets", [b"\xff", b"\xed\xa0\x80", b"a\xc3"])
    def test_sp3_nor_with_bytes_that_are_no_text(self, field: str, octets: bytes) -> None:
        section = with_octets(metadata_with({"a": "b"}), {field: octets})
        assert plain_properties(parse_map_metadata(section)) is None

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (None, 0),
            ("0", 0),
            ("12", 12),
            ("999999999", 999_999_999),
            ("9999999999", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            (" 1", None),
            ("", None),
            ("²", None),
            ("٣", None),
        ],
    )
    def test_sp3_generations(self, text: str | None, expected: int | None) -> None:
        assert generation_in({} if text is None else {"REDRIVE_GENERATION": text}) == expected


class TestRedriven:
    def test_sp3_loses_the_properties_of_its_death_and_keeps_its_own(self) -> None:
        before = metadata_with(dict.fromkeys(RESET, "1") | {"own": "x", "DEATH_HISTORY": "[]", "death_reason": "y"})
        assert texts(redriven(before, generation=2)) == {
            "own": "x",
            "death_reason": "y",
            "DEATH_HISTORY": "[]",
            "REDRIVE_GENERATION": "3",
            "REDRIVE_SUBSCRIPTION": "s",
        }

    def test_sp3_loses_whatever_the_broker_stamps_but_the_history(self) -> None:
        before, failure = metadata_with({"own": "x"}), FailureRecord(
            topic=TOPIC,
            subscription="s",
            reason="MaxRedeliveries",
            count=3,
            first=1,
            last=2,
            consumer="c",
            address="a",
            client_version="v",
            error="e",
            batch=4,
        )  # fmt: skip
        stamp(before.properties, failure, "7:3:-1:2", "why")
        assert len(before.properties) > 8
        after = texts(redriven(before))
        assert after.keys() == {"own", "DEATH_HISTORY", "REDRIVE_GENERATION", "REDRIVE_SUBSCRIPTION"}
        assert read_history(after) == [failure]

    def test_sp3_loses_what_a_function_raised(self) -> None:
        failure = FailureRecord(topic=TOPIC, subscription="s", reason="ProcessingFailed", count=1, first=1, last=2)
        raised = Raised("ValueError", "bad", "a trace", "f1")
        properties = stamped({"own": "x"}, failure, "7:3:-1", "why", raised)
        after = texts(redriven(metadata_with(properties)))
        assert after.keys() == {"own", "DEATH_HISTORY", "REDRIVE_GENERATION", "REDRIVE_SUBSCRIPTION"}

    def test_sp3_names_no_subscription_where_it_goes_elsewhere_or_none_is_known(self) -> None:
        for found in (
            redriven(metadata_with({}), names_subscription=False),
            redriven(metadata_with({}), OriginKey(TOPIC, None, None)),
        ):
            assert "REDRIVE_SUBSCRIPTION" not in texts(found)

    def test_sp3_gets_no_history_without_an_origin(self) -> None:
        assert DEATH_HISTORY not in texts(redriven(metadata_with({}), OriginKey(None, None, "s")))

    @given(
        st.text(max_size=12),
        st.text(max_size=12),
        st.text(max_size=ERROR_IN_HISTORY_MAX + 10),
        st.one_of(st.none(), st.integers(0, 99)),
        st.integers(0, (1 << 63) - 1),
    )
    @example('"first":0,"last":0', "\\", '"first":0,"last":0', None, 7)
    def test_sp3_the_first_death_is_that_which_its_client_knew(
        self, topic: str, subscription: str, error: str, count: int | None, published_ms: int
    ) -> None:
        counted = {} if count is None else {"RECONSUMETIMES": f"{count}"}
        properties = {"DEATH_ERROR": error, "REAL_TOPIC": "t"} | counted
        before = metadata_with(properties, publish_time=published_ms)
        after = redriven(before, OriginKey(topic, None, subscription))
        assert read_history(texts(after)) == [
            FailureRecord(
                topic=topic,
                subscription=subscription,
                reason=BY_CLIENT,
                count=count or 0,
                first=published_ms,
                last=published_ms,
                error=error[:ERROR_IN_HISTORY_MAX],
            )
        ]

    def test_sp3_the_publisher_is_the_redrive_and_delays_are_over(self) -> None:
        fields: dict[str, Any] = {
            "deliver_at_time": 9,
            "highest_sequence_id": 9,
            "replicated_from": "east",
            "replicate_to": ["west"],
        }
        found = redriven(metadata_with({"a": "b"}, **fields))
        assert (found.producer_name, found.sequence_id, found.publish_time) == ("redrive", 7, NOW_MS)
        assert not any(found.HasField(name) for name in fields if name != "replicate_to")  # type: ignore[arg-type]
        assert not found.replicate_to

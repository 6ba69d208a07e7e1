"""Dead letter properties, written and read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.deadletter.properties import FailureRecord, read_history, read_info, read_origin
from magnetar.deadletter.stamp import HISTORY_MAX, STACK_TRACE_MAX, Raised, set_publisher, stamp, stamped
from magnetar.names import TopicName
from magnetar.wire.metadata import text_properties
from magnetar.wire.schema_pb2 import MessageMetadata

TOPIC = "persistent://public/default/t"
DEAD_LETTER_TOPIC = TopicName.parse("t-s-DLQ")

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
failures = st.builds(
    FailureRecord,
    topic=st.just(TOPIC),
    subscription=st.text(min_size=1, max_size=20),
    reason=st.text(min_size=1, max_size=20),
    count=int64s,
    first=int64s,
    last=int64s,
)


@given(st.lists(failures, min_size=1, max_size=HISTORY_MAX + 3), st.dictionaries(st.text(), st.text(), max_size=3))
def test_stamped_properties_round_trip(records: list[FailureRecord], own: dict[str, str]) -> None:
    metadata = MessageMetadata()
    for key, value in own.items():
        metadata.properties.add(key=key, value=value)
    for entry_id, record in enumerate(records):
        stamp(metadata.properties, record, f"7:{entry_id}:-1:3", "why")
    properties = text_properties(metadata.properties)
    last = records[-1]
    info = read_info(properties, DEAD_LETTER_TOPIC)
    assert (info.reason, info.origin_subscription, info.count) == (last.reason, last.subscription, last.count)
    assert (info.origin_topic, info.description) == (TOPIC, "why")
    assert read_history(properties) == records[-HISTORY_MAX:]
    origin = read_origin(properties)
    assert origin is not None
    assert (origin.ledger_id, origin.entry_id, origin.batch_index) == (7, len(records) - 1, 3)
    assert {key: properties[key] for key in own} == own
    assert len(metadata.properties) == len(properties)


def test_the_publisher_replaces_the_producer() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, highest_sequence_id=5, deliver_at_time=9)
    metadata.replicate_to.append("east")
    set_publisher(metadata, "q", 7)
    assert metadata == MessageMetadata(producer_name="q", sequence_id=7)


def test_bound_death_history_drops_the_oldest() -> None:
    metadata = MessageMetadata()
    for number in range(HISTORY_MAX + 5):
        record = FailureRecord(topic=TOPIC, subscription="s", reason="Expired", count=number, first=1, last=2)
        stamp(metadata.properties, record, f"7:{number}:-1", "why")
    history = read_history(text_properties(metadata.properties))
    assert [record.count for record in history] == list(range(5, HISTORY_MAX + 5))


@given(failures, st.dictionaries(st.text(), st.text(), max_size=3))
def test_sp2_properties_as_text_are_those_of_the_metadata(record: FailureRecord, own: dict[str, str]) -> None:
    metadata = MessageMetadata()
    for key, value in own.items():
        metadata.properties.add(key=key, value=value)
    stamp(metadata.properties, record, "7:1:-1", "why")
    assert stamped(own, record, "7:1:-1", "why") == text_properties(metadata.properties)


def test_sp2_the_exception_of_a_pipeline_is_stamped_and_replaced_by_the_next_failure() -> None:
    record = FailureRecord(topic=TOPIC, subscription="s", reason="ProcessingFailed", count=3, first=1, last=2)
    raised = Raised("ValueError", "no amount", "x" * (2 * STACK_TRACE_MAX) + "last", "0123456789ab")
    dead = stamped({"own": "1"}, record, "7:1:-1", "why", raised)
    assert (dead["DEATH_EXCEPTION"], dead["DEATH_ERROR"]) == ("ValueError", "no amount")
    assert dead["DEATH_FINGERPRINT"] == "0123456789ab"
    assert len(dead["DEATH_STACK_TRACE"]) == STACK_TRACE_MAX and dead["DEATH_STACK_TRACE"].endswith("last")
    assert read_history(dead)[0].error == "no amount"
    again = stamped(dead, record, "7:1:-1", "why")
    assert not {"DEATH_EXCEPTION", "DEATH_STACK_TRACE", "DEATH_FINGERPRINT", "DEATH_ERROR"} & again.keys()
    assert len(read_history(again)) == 2 and again["own"] == "1"

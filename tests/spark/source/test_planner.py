"""The planner on topics in memory: start of a query, size of a micro-batch, data loss."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.errors import NotFound
from magnetar.client.message import LATEST, MessageId
from magnetar.spark.errors import DataLoss, InvalidOption
from magnetar.spark.source.entry_range import ENTRIES_MIN, EntryRange, split_ranges
from magnetar.spark.source.limits import fair_shares
from magnetar.spark.source.offsets import Offsets
from magnetar.spark.source.options import SourceOptions
from magnetar.spark.source.planner import Planner
from tests.spark.memory_topics import PUBLIC, MemoryTopics

T = PUBLIC + "t"
P0, P1, P2 = (f"{T}-partition-{index}" for index in range(3))


def options(**given_: str) -> SourceOptions:
    names = given_ if "topics" in given_ or "topicsPattern" in given_ else given_ | {"topic": "t"}
    return SourceOptions.of(names | {"service.url": "pulsar://b:1"})


def shown(offsets: Offsets) -> dict[str, str]:
    return {topic.removeprefix(PUBLIC): str(offset) for topic, offset in offsets.items()}


def entries_between(start: Offsets, end: Offsets) -> int:
    return sum(offset.entry_id - start[topic].entry_id for topic, offset in end.items())


@pytest.fixture
def topics() -> MemoryTopics:
    return MemoryTopics()


# -- start positions


def test_a_stream_starts_after_the_last_message_or_at_the_given_offset(topics: MemoryTopics) -> None:
    topics.create("t", partitions=2)
    topics.publish(P0, 3, time_ms=10)
    topics.publish(P0, 2, time_ms=20)
    for text, expected in [
        (None, {"t-partition-0": "1:4:0", "t-partition-1": "2:-1:1"}),
        ("earliest", {"t-partition-0": "1:-1:0", "t-partition-1": "2:-1:1"}),
        ("latest", {"t-partition-0": "1:4:0", "t-partition-1": "2:-1:1"}),
        ("20", {"t-partition-0": "1:2:0", "t-partition-1": "2:-1:1"}),
        ('{"t": "earliest", "t-partition-0": "1:1:0"}', {"t-partition-0": "1:1:0", "t-partition-1": "2:-1:1"}),
    ]:
        given_ = options() if text is None else options(startingOffsets=text)
        assert shown(Planner(topics, given_).resolved(given_.starting, LATEST)) == expected


def test_a_topic_that_never_existed_is_an_error_that_names_it(topics: MemoryTopics) -> None:
    topics.create("other")

    with pytest.raises(NotFound, match=f"{T} does not exist"):
        Planner(topics, options(topics="other,t")).resolved(None, LATEST)


def test_offsets_of_unread_topics_are_rejected(topics: MemoryTopics) -> None:
    topics.create("t")
    given_ = options(startingOffsets='{"t": "earliest", "x": "earliest"}')

    with pytest.raises(InvalidOption, match=r"startingOffsets names .*/x"):
        Planner(topics, given_).resolved(given_.starting, LATEST)


# -- end positions


def test_new_messages_end_the_wait(topics: MemoryTopics) -> None:
    topics.create("t")
    planner = Planner(topics, options(pollTimeoutMs="60000"))
    start = planner.resolved(None, LATEST)
    topics.while_waiting = [lambda: None, lambda: topics.publish("t", 2)]

    end = planner.next_end(start)

    assert shown(end) == {"t": "1:1:-1"}
    assert planner.latest_known() == end
    assert planner.ranges(start, end) == [EntryRange(T, MessageId(1, -1), MessageId(1, 1))]


def test_without_new_messages_the_wait_ends_with_the_same_offsets(topics: MemoryTopics) -> None:
    topics.create("t")
    topics.publish("t")
    planner = Planner(topics, options(pollTimeoutMs="7000"))
    start = planner.resolved(None, LATEST)

    assert planner.next_end(start) is start
    assert topics.time_s == 107
    assert planner.ranges(start, start) == []


def test_a_wait_sends_no_queries(topics: MemoryTopics) -> None:
    topics.create("t", partitions=3)
    planner = Planner(topics, options(pollTimeoutMs="1000"))
    start = planner.resolved(None, LATEST)
    planner.next_end(start)
    topics.questions.clear()

    for _ in range(20):
        planner.next_end(start)

    waits = [question for question in topics.questions if question.startswith("wait")]
    assert len(topics.questions) - len(waits) <= 11  # looks for partitions every 2 s, and nothing else


def test_new_partitions_and_topics_start_at_their_first_message(topics: MemoryTopics) -> None:
    topics.create("t", partitions=2)
    topics.publish(P0, 5)
    planner = Planner(topics, options(topicsPattern="t.*", pollTimeoutMs="60000"))
    start = planner.resolved(None, LATEST)

    def grow() -> None:
        topics.create("t", partitions=3)
        topics.publish(P2, 4)
        topics.create("t2")
        topics.create("u")
        topics.publish("u")

    topics.while_waiting = [grow, lambda: topics.publish("t2", 1)]
    end = planner.next_end(start)
    assert shown(end) == {"t-partition-0": "1:4:0", "t-partition-1": "2:-1:1", "t-partition-2": "3:3:2"}
    assert planner.ranges(start, end) == [EntryRange(P2, MessageId(3, -1, 2), MessageId(3, 3, 2))]

    after = planner.next_end(end)
    assert shown(after)["t2"] == "4:0:-1"
    assert "u" not in shown(after)


def test_partitions_added_while_stopped_start_at_their_first_message(topics: MemoryTopics) -> None:
    topics.create("t", partitions=1)
    topics.publish(P0, 2)
    start = Planner(topics, options()).resolved(None, LATEST)
    topics.create("t", partitions=2)
    topics.publish(P1, 3)
    again = Planner(topics, options())

    end = again.next_end(start)

    assert again.ranges(start, end) == [EntryRange(P1, MessageId(2, -1, 1), MessageId(2, 2, 1))]


def test_available_now_ends_at_the_end_as_of_its_start(topics: MemoryTopics) -> None:
    topics.create("t", partitions=2)
    topics.publish(P0, 5)
    given_ = options(startingOffsets="earliest", maxEntriesPerTrigger="2")
    planner = Planner(topics, given_)
    start = planner.resolved(given_.starting, LATEST)
    planner.prepare_available_now()
    topics.publish(P0, 5)
    topics.publish(P1, 5)

    ends = [start]
    while (end := planner.next_end(ends[-1])) != ends[-1]:
        ends.append(end)

    assert [end[P0].entry_id for end in ends] == [-1, 1, 3, 4]
    assert ends[-1][P1].entry_id == -1
    assert topics.time_s == 100, "it does not wait"


# -- limits


def test_a_limit_of_entries_is_shared_without_starvation(topics: MemoryTopics) -> None:
    topics.create("t", partitions=3)
    topics.publish(P0, 1000)
    topics.publish(P1, 1)
    topics.publish(P2, 1000)
    given_ = options(startingOffsets="earliest", maxEntriesPerTrigger="11")
    planner = Planner(topics, given_)
    start = planner.resolved(given_.starting, LATEST)

    first = planner.next_end(start)
    second = planner.next_end(first)

    assert entries_between(start, first) == 11
    assert entries_between(first, second) == 11
    assert first[P1].entry_id == 0
    assert min(first[P0].entry_id, first[P2].entry_id) == 4
    assert planner.latest_known()[P0].entry_id == 999, "the lag is to what is stored"


def test_a_limit_below_the_number_of_partitions_rotates(topics: MemoryTopics) -> None:
    topics.create("t", partitions=3)
    for partition in (P0, P1, P2):
        topics.publish(partition, 1000)
    given_ = options(startingOffsets="earliest", maxEntriesPerTrigger="1")
    planner = Planner(topics, given_)
    offsets = start = planner.resolved(given_.starting, LATEST)

    for trigger in range(1, 10):
        offsets = planner.next_end(offsets)
        assert entries_between(start, offsets) == trigger

    assert [offset.entry_id for offset in offsets.values()] == [2, 2, 2]


def test_a_limit_of_bytes_uses_entry_sizes(topics: MemoryTopics) -> None:
    topics.create("t", partitions=2)
    topics.publish(P0, 1000, size=100)
    topics.publish(P1, 1000, size=1000)
    given_ = options(startingOffsets="earliest", maxBytesPerTrigger="10000")
    planner = Planner(topics, given_)
    start = planner.resolved(given_.starting, LATEST)

    end = planner.next_end(start)

    read = {topic: end[topic].entry_id + 1 for topic in end}
    assert 9000 <= read[P0] * 100 + read[P1] * 1000 <= 10_000
    assert min(read.values()) >= 4


def test_a_limit_of_messages_uses_entry_sizes(topics: MemoryTopics) -> None:
    topics.create("t", partitions=2)
    topics.publish(P0, 1000, size=100)  # one message each
    topics.publish(P1, 1000, size=1000)  # ten each
    given_ = options(startingOffsets="earliest", maxMessagesPerTrigger="100")
    planner = Planner(topics, given_)
    start = planner.resolved(given_.starting, LATEST)

    end = planner.next_end(start)

    read = {topic: end[topic].entry_id + 1 for topic in end}
    assert 90 <= read[P0] + read[P1] * 10 <= 100
    assert min(read.values()) >= 4


def test_a_stream_is_split_over_as_many_tasks_as_required() -> None:
    short = EntryRange("t", MessageId(1, -1), MessageId(1, 2))
    long = EntryRange("u", MessageId(2, 9), MessageId(2, 19))
    tasks = split_ranges([short, long], 7, entries_min=1)
    assert [(each.topic, each.start.entry_id, each.end.entry_id) for each in tasks] == [
        ("t", -1, 0),
        ("t", 0, 1),
        ("t", 1, 2),
        ("u", 9, 11),
        ("u", 11, 14),
        ("u", 14, 16),
        ("u", 16, 19),
    ]
    assert split_ranges([short, long], 2, entries_min=1) == [short, long]


def test_an_entry_above_the_limit_is_read_all_the_same(topics: MemoryTopics) -> None:
    topics.create("t", partitions=2)
    topics.publish(P0, 2, size=100_000)
    topics.publish(P1, 2, size=100_000)
    given_ = options(startingOffsets="earliest", maxBytesPerTrigger="1000")
    planner = Planner(topics, given_)
    offsets = start = planner.resolved(given_.starting, LATEST)

    for trigger in range(1, 5):
        offsets = planner.next_end(offsets)
        assert entries_between(start, offsets) == trigger


def test_a_limit_spans_ledgers_in_order() -> None:
    topics = MemoryTopics(is_magnetar=False)
    topics.create("t")
    for _ in range(3):
        topics.publish("t", 5)
        topics.roll_over("t")
    given_ = options(startingOffsets="earliest", maxEntriesPerTrigger="3")
    planner = Planner(topics, given_)
    start = planner.resolved(given_.starting, LATEST)
    planner.prepare_available_now()

    ends = [start]
    while (end := planner.next_end(ends[-1])) != ends[-1]:
        ends.append(end)

    # Never after the last entry of a ledger: brokers would count nonexistent entries as acknowledged.
    assert [end[T].position for end in ends] == [(1, -1), (1, 2), (2, -1), (2, 2), (3, -1), (3, 2), (3, 4)]


def test_a_fully_read_ledger_may_be_deleted_while_the_stream_is_stopped() -> None:
    topics = MemoryTopics(is_magnetar=False)
    topics.create("t")
    topics.publish("t", 5)
    topics.roll_over("t")
    topics.publish("t", 5)
    given_ = options(startingOffsets="earliest", maxEntriesPerTrigger="7")
    planner = Planner(topics, given_)
    end = planner.next_end(planner.resolved(given_.starting, LATEST))
    topics.trim("t", (1, 4))

    again = Planner(topics, given_)
    assert [(span.start.position, span.end.position) for span in again.ranges(end, again.next_end(end))] == [
        ((2, -1), (2, 4))
    ]


def test_without_a_limit_everything_is_read_at_once(topics: MemoryTopics) -> None:
    topics.create("t")
    topics.publish("t", 50)
    given_ = options(startingOffsets="earliest", maxEntriesPerTrigger="3")
    planner = Planner(topics, given_)

    assert planner.next_end(planner.resolved(given_.starting, LATEST), limited=False)[T].entry_id == 49


def test_the_rest_of_an_entry_counts_as_one(topics: MemoryTopics) -> None:
    topics.create("t")
    topics.publish("t", 3)
    planner = Planner(topics, options(maxEntriesPerTrigger="1"))
    start = Offsets({T: MessageId(1, 1, -1, 0)})

    assert shown(planner.next_end(start)) == {"t": "1:1:-1"}


@given(st.integers(0, 1000), st.lists(st.integers(0, 300), min_size=1, max_size=10))
def test_shares_use_the_budget_and_are_fair(budget: int, wants: list[int]) -> None:
    shares = fair_shares(budget, wants)

    assert sum(shares) == min(budget, sum(wants))
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))
    hungry = [share for share, want in zip(shares, wants, strict=True) if share < want]
    assert not hungry or max(shares) <= min(hungry) + 1


# -- batch reads


def test_a_batch_read_covers_the_stored_messages(topics: MemoryTopics) -> None:
    topics.create("t", partitions=2)
    topics.publish(P0, 5)

    assert Planner(topics, options()).batch_ranges() == [EntryRange(P0, MessageId(1, -1, 0), MessageId(1, 4, 0))]


def test_a_batch_read_has_a_start_and_an_end(topics: MemoryTopics) -> None:
    topics.create("t")
    for time_ms in range(10):
        topics.publish("t", time_ms=time_ms)

    given_ = options(startingOffsets="3", endingOffsets='{"t": "1:7:-1:2"}')
    assert Planner(topics, given_).batch_ranges() == [EntryRange(T, MessageId(1, 2), MessageId(1, 7, -1, 2))]
    given_ = options(startingOffsets="3", endingOffsets="5")
    assert Planner(topics, given_).batch_ranges() == [EntryRange(T, MessageId(1, 2), MessageId(1, 4))]
    given_ = options(startingOffsets="latest")
    assert Planner(topics, given_).batch_ranges() == []


def test_an_end_beyond_the_last_message_is_the_last_message(
    topics: MemoryTopics, caplog: pytest.LogCaptureFixture
) -> None:
    topics.create("t")
    topics.publish("t", 3)

    given_ = options(endingOffsets='{"t": "1:99"}')
    assert Planner(topics, given_).batch_ranges() == [EntryRange(T, MessageId(1, -1), MessageId(1, 2))]
    assert "before the requested end 1:99" in caplog.text


@given(st.integers(1, 20_000), st.integers(1, 40), st.integers(-1, 50))
def test_a_long_range_is_split_without_gaps(entries: int, tasks: int, first: int) -> None:
    whole = EntryRange(T, MessageId(7, first), MessageId(7, first + entries, -1, 3))

    pieces = split_ranges([whole], tasks)

    assert pieces[0].start == whole.start
    assert pieces[-1].end == whole.end
    assert all(one.end == other.start for one, other in pairwise(pieces))
    assert 1 <= len(pieces) <= max(1, tasks)
    assert len(pieces) == 1 or all((piece.entries or 0) >= ENTRIES_MIN for piece in pieces)


def test_a_range_across_ledgers_is_not_split() -> None:
    whole = EntryRange(T, MessageId(7, 3), MessageId(9, 100_000))

    assert split_ranges([whole], 8) == [whole]
    assert split_ranges([], 8) == []


# -- deleted messages


def begun(topics: MemoryTopics, entries: int = 10, read_up_to: int = 4) -> Offsets:
    topics.create("t")
    topics.publish("t", entries)
    return Offsets({T: MessageId(1, read_up_to)})


@pytest.mark.parametrize("method", ["next_end", "ranges"])
def test_retention_past_the_start_position(topics: MemoryTopics, method: str) -> None:
    start = begun(topics)
    topics.trim("t", (1, 6))
    planner = Planner(topics, options())

    with pytest.raises(DataLoss) as raised:
        if method == "next_end":
            planner.next_end(start)
        else:
            planner.ranges(start, Offsets({T: MessageId(1, 9)}))

    assert all(word in str(raised.value) for word in (T, "1:4:-1", "1:6:-1", "failOnDataLoss"))


def test_retention_past_the_start_position_without_fail_on_data_loss(
    topics: MemoryTopics, caplog: pytest.LogCaptureFixture
) -> None:
    start = begun(topics)
    topics.trim("t", (1, 6))
    planner = Planner(topics, options(failOnDataLoss="false"))

    end = planner.next_end(start)

    assert planner.ranges(start, end) == [EntryRange(T, MessageId(1, 6), MessageId(1, 9))]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_messages_already_read_may_be_deleted(topics: MemoryTopics) -> None:
    start = begun(topics)
    topics.trim("t", (1, 4))
    planner = Planner(topics, options())

    assert planner.ranges(start, planner.next_end(start)) == [EntryRange(T, MessageId(1, 4), MessageId(1, 9))]


def test_a_deleted_topic(topics: MemoryTopics, caplog: pytest.LogCaptureFixture) -> None:
    start = begun(topics)
    topics.delete("t")

    with pytest.raises(DataLoss, match=f"{T} was read up to 1:4:-1, but no longer exists"):
        Planner(topics, options()).next_end(start)
    planner = Planner(topics, options(failOnDataLoss="false"))
    assert planner.next_end(start) == start
    assert planner.ranges(start, Offsets({T: MessageId(1, 9)})) == []
    assert "no longer exists" in caplog.text


@pytest.mark.parametrize("runs_on", [False, True])
def test_a_topic_deleted_and_recreated(topics: MemoryTopics, runs_on: bool, caplog: pytest.LogCaptureFixture) -> None:
    start = begun(topics, entries=10, read_up_to=9)
    strict, lenient = Planner(topics, options()), Planner(topics, options(failOnDataLoss="false"))
    if runs_on:
        assert strict.next_end(start) == lenient.next_end(start) == start
    topics.delete("t")
    topics.create("t")
    topics.publish("t", 3)

    with pytest.raises(DataLoss, match=r"1:9:-1, but was then deleted and created again: .* after 2:-1:-1"):
        strict.next_end(start)
    end = lenient.next_end(start)
    assert lenient.ranges(start, end) == [EntryRange(T, MessageId(2, -1), MessageId(2, 2))]
    assert "created again" in caplog.text
    topics.publish("t", 1)
    assert lenient.ranges(end, lenient.next_end(end)) == [EntryRange(T, MessageId(2, 2), MessageId(2, 3))]


def test_on_pulsar_a_fully_read_ledger_may_be_deleted(topics: MemoryTopics) -> None:
    topics.is_magnetar = False
    start = begun(topics)
    planner = Planner(topics, options())
    end = planner.next_end(start)
    topics.roll_over("t")
    topics.publish("t", 2)
    topics.trim("t", (1, 9))

    assert planner.ranges(end, planner.next_end(end)) == [EntryRange(T, MessageId(1, 9), MessageId(2, 1))]


def test_on_pulsar_deleting_a_partly_read_ledger_is_a_loss(topics: MemoryTopics) -> None:
    topics.is_magnetar = False
    start = begun(topics)
    topics.roll_over("t")
    topics.publish("t", 2)
    topics.trim("t", (1, 9))

    with pytest.raises(DataLoss, match="were deleted before they were read"):
        Planner(topics, options()).next_end(start)


def test_on_pulsar_another_ledger_is_no_loss(topics: MemoryTopics) -> None:
    topics.is_magnetar = False
    start = begun(topics)
    topics.roll_over("t")
    topics.publish("t", 2)
    planner = Planner(topics, options())

    assert planner.ranges(start, planner.next_end(start)) == [EntryRange(T, MessageId(1, 4), MessageId(2, 1))]


def test_an_offset_ahead_of_the_topic_belongs_to_another_one(topics: MemoryTopics) -> None:
    begun(topics)

    with pytest.raises(DataLoss, match="99:4:-1"):
        Planner(topics, options()).next_end(Offsets({T: MessageId(99, 4)}))


def test_a_topic_of_a_pattern_deleted_while_the_stream_runs(topics: MemoryTopics) -> None:
    topics.create("t1")
    topics.create("t2")
    topics.publish("t1")
    planner = Planner(topics, options(topicsPattern="t.", failOnDataLoss="false", pollTimeoutMs="60000"))
    start = planner.resolved(None, LATEST)
    topics.while_waiting = [lambda: topics.delete("t1"), lambda: topics.publish("t2")]

    assert shown(planner.next_end(start)) == {"t1": "1:0:-1", "t2": "2:0:-1"}
    assert f"forget {PUBLIC}t1" in topics.questions

"""The schedule of a retry topic, and the halves of a task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.message import MessageId, Position
from magnetar.pipelines.processing.partitions import split
from magnetar.pipelines.processing.schedule import ENTRIES_MAX, RetrySchedule
from magnetar.pipelines.processing.task import RoundTask
from magnetar.spark.source.entry_range import EntryRange

TOPIC = "persistent://public/default/t"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100)), max_size=60), st.integers(0, 100))
def test_sp2_messages_are_never_early_and_stay_until_they_are_settled(
    added: list[tuple[int, int]], now_ms: int
) -> None:
    schedule = RetrySchedule()
    times: dict[Position, int] = {}
    for entry, due_ms in added:
        schedule.add(Position(1, entry), due_ms)
        times.setdefault(Position(1, entry), due_ms)
    due = schedule.due(now_ms, 1000)
    assert due == tuple(sorted(position for position, due_ms in times.items() if due_ms <= now_ms))
    assert schedule.due(now_ms, 1000) == due
    schedule.settle(due)
    assert schedule.due(now_ms, 1000) == ()
    later = [due_ms for due_ms in times.values() if due_ms > now_ms]
    assert (schedule.next_ms, len(schedule)) == (min(later, default=None), len(later))


def test_sp2_a_schedule_takes_the_earliest_first_and_is_bounded() -> None:
    schedule = RetrySchedule()
    for entry in range(10):
        schedule.add(Position(1, entry), 100 - entry)
    assert schedule.due(1000, 3) == (Position(1, 7), Position(1, 8), Position(1, 9))
    assert schedule.room == ENTRIES_MAX - 10


def messages_of(task: RoundTask, size: int) -> list[tuple[int, int]]:
    """Entries and batch indexes that a task stands for, with `size` messages in each entry."""
    start, end = task.span.start, task.span.end
    found = [
        (entry, index)
        for entry in range(start.entry_id if start.batch_index >= 0 else start.entry_id + 1, end.entry_id + 1)
        for index in range(size)
    ]
    found = [
        (entry, index)
        for entry, index in found
        if not (start.batch_index >= 0 and entry == start.entry_id and index <= start.batch_index)
        and not (end.batch_index >= 0 and entry == end.entry_id and index > end.batch_index)
    ]
    return [each for each in found if task.chosen is None or Position(1, each[0]) in task.chosen]


@given(st.integers(1, 40), st.integers(1, 7), st.booleans())
def test_sp2_halves_are_the_whole_down_to_single_messages(entries: int, size: int, is_retry: bool) -> None:
    chosen = tuple(Position(1, entry) for entry in range(entries)) if is_retry else None
    whole = RoundTask(EntryRange(TOPIC, MessageId(1, -1), MessageId(1, entries - 1)), is_retry, chosen=chosen)
    waiting, alone = [whole], []
    while waiting:
        task = waiting.pop()
        parts = split(task, size)
        if parts is None:
            alone.append(task)
        else:
            assert [each for part in parts for each in messages_of(part, size)] == messages_of(task, size)
            waiting += parts
    found = sorted(each for task in alone for each in messages_of(task, size))
    assert found == [(entry, index) for entry in range(entries) for index in range(size)]
    assert all(len(messages_of(task, size)) == 1 for task in alone)


def test_sp2_chosen_entries_are_read_with_small_gaps_between_them() -> None:
    chosen = tuple(Position(1, entry) for entry in (3, 4, 40, 200))
    span = EntryRange(TOPIC, MessageId(1, 2, 5), MessageId(1, 200, 5))
    found = [(each.start.entry_id, each.end.entry_id) for each in RoundTask(span, True, chosen=chosen).spans()]
    assert found == [(2, 40), (199, 200)]

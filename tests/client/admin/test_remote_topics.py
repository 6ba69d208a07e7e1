"""The algorithm that creates remote topics, without a cluster and without a clock."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.admin.remote_topics import (
    CHECKS_MAX,
    TRIES_MAX,
    Check,
    Create,
    Grow,
    Ticket,
    TopicQueue,
    decision_after,
    reconcile,
)
from magnetar.client.errors import (
    ClientError,
    Conflict,
    ConnectionLost,
    InvalidArgument,
    NamespaceNotFound,
    NeedsRest,
    NotAuthenticated,
    NotAuthorized,
    Timeout,
)
from magnetar.replication.model import Mismatch, Problem, State
from magnetar.replication.partitions import Decision, WantedTopic
from magnetar.replication.problems import CreationDenied

FIRST_S, LAST_S = 1.0, 8.0
AWAY = Decision(State.UNREACHABLE, "nobody there")
WANTED = WantedTopic("t", "t-eu", 4, 2, "a/t")


def decision_of(wanted: WantedTopic, reply: Callable[[Check | Create | Grow], int | None]) -> Decision:
    steps = reconcile(wanted, creates=True, mismatch=Mismatch.PIP370)
    step = next(steps)
    while True:
        try:
            try:
                partitions = reply(step)
            except Conflict as error:
                step = steps.throw(error)
            else:
                step = steps.send(partitions)
        except StopIteration as end:
            decision: Decision = end.value
            return decision


@pytest.mark.parametrize(
    ("partitions", "change"), [(None, Create("t-eu", 4, "a/t")), (2, Grow("t-eu", 4)), (4, None), (5, None)]
)
def test_gr2_a_topic_is_checked_and_changed_once(partitions: int | None, change: Create | Grow | None) -> None:
    steps: list[Check | Create | Grow] = []

    def reply(step: Check | Create | Grow) -> int | None:
        steps.append(step)
        return partitions

    assert decision_of(WANTED, reply).state is State.RUNNING
    assert steps == [Check("t-eu"), *([] if change is None else [change])]


def test_gr10_a_conflict_is_followed_by_another_check() -> None:
    found: list[int | None] = [None, 4]

    def reply(step: Check | Create | Grow) -> int | None:
        if isinstance(step, Check):
            return found.pop(0)
        raise Conflict("it exists")

    assert decision_of(WANTED, reply) == Decision(State.RUNNING, copied=4)


def test_a_topic_that_others_keep_creating_and_deleting_is_given_up() -> None:
    checks = 0

    def reply(step: Check | Create | Grow) -> int | None:
        nonlocal checks
        if isinstance(step, Check):
            checks += 1
            return None
        raise Conflict("it exists")

    with pytest.raises(Conflict):
        decision_of(WANTED, reply)
    assert checks == TRIES_MAX


def test_errors_concern_the_cluster_or_the_topic() -> None:
    for away in (ConnectionLost("away"), Timeout("away")):
        assert decision_after(away, "t", "b") == Decision(State.UNREACHABLE, "cluster b cannot be reached: away")
    for refused, reason in (
        (NamespaceNotFound("namespace x does not exist"), "in cluster b namespace x does not exist"),
        (
            NeedsRest("REST"),
            "cluster b has no HTTP address to create t: magnetar clusters update b --service-url http://HOST:PORT",
        ),
        (InvalidArgument("no such file"), "cluster b cannot be queried: no such file"),
    ):
        assert decision_after(refused, "t", "b") == Decision(State.REFUSED, reason)


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (NotAuthenticated("no"), Problem.AUTHENTICATION),
        (NotAuthorized("no"), Problem.AUTHORIZATION),
        (CreationDenied("no"), Problem.CREATION),
        (ClientError("no"), Problem.OTHER),
    ],
)
def test_a_refusal_says_whether_credentials_are_its_reason(error: ClientError, problem: Problem) -> None:
    assert decision_after(error, "t", "b") == Decision(State.REFUSED, "cluster b refuses t: no", problem=problem)


def test_a_role_that_may_publish_may_not_create() -> None:
    steps = reconcile(WantedTopic("t", "t", 0, 0), creates=True, mismatch=Mismatch.PIP370)
    assert next(steps) == Check("t")
    assert steps.send(None) == Create("t", 0, "")
    with pytest.raises(CreationDenied, match="no"):
        steps.throw(NotAuthorized("no"))


@pytest.fixture
def queue() -> TopicQueue:
    return TopicQueue(FIRST_S, LAST_S)


def topics(tickets: list[Ticket]) -> list[str]:
    return [ticket.topic for ticket in tickets]


def test_topics_are_checked_in_their_order_a_few_at_a_time(queue: TopicQueue) -> None:
    for number in range(CHECKS_MAX + 2):
        queue.put(f"t{number}", 0.0)
    taken = queue.take(0.0)
    assert topics(taken) == [f"t{number}" for number in range(CHECKS_MAX)]
    assert (queue.take(0.0), queue.next_s()) == ([], None)
    assert queue.settled(taken[0], 0.0)
    assert topics(queue.take(0.0)) == [f"t{CHECKS_MAX}"]


def test_a_topic_not_yet_as_wanted_is_checked_again_with_back_off(queue: TopicQueue) -> None:
    queue.put("t", 0.0)
    now_s, delays = 0.0, []
    for attempts in range(1, 6):
        (ticket,) = queue.take(now_s)
        assert queue.retry(ticket, now_s) and ticket.attempts == attempts
        due_s = queue.next_s()
        assert due_s is not None
        delays.append(due_s - now_s)
        assert queue.take(now_s) == []
        now_s = due_s
    assert all(longest * 0.9 <= delay <= longest for longest, delay in zip((1, 2, 4, 8, 8), delays, strict=True))


def test_a_settled_topic_is_checked_again_on_request_only(queue: TopicQueue) -> None:
    queue.put("t", 0.0)
    queue.settled(queue.take(0.0)[0], 0.0)
    assert (queue.take(100.0), queue.next_s(), queue.topics) == ([], None, ["t"])
    queue.put("t", 200.0)
    assert topics(queue.take(200.0)) == ["t"]


def test_an_outcome_is_outdated_if_the_topic_was_put_or_discarded_meanwhile(queue: TopicQueue) -> None:
    queue.put("changed", 0.0)
    queue.put("gone", 0.0)
    changed, gone = queue.take(0.0)
    queue.put("changed", 1.0)
    queue.discard("gone")
    assert not queue.settled(changed, 2.0) and not queue.settled(gone, 2.0)
    assert topics(queue.take(2.0)) == ["changed"]


def test_gr5_one_topic_at_a_time_is_tried_while_the_cluster_is_away(queue: TopicQueue) -> None:
    for number in range(3):
        queue.put(f"t{number}", 0.0)
    settled, first, second = queue.take(0.0)
    queue.settled(settled, 0.0)
    assert queue.unreachable(first, AWAY, 0.0), "it is news"
    assert not queue.unreachable(second, AWAY, 0.0), "and not twice"
    assert (queue.away, queue.failures) == (AWAY, 1)
    probe_s = queue.next_s()
    assert probe_s is not None and probe_s >= 0.9 * FIRST_S
    (probe,) = queue.take(probe_s)
    assert (queue.take(probe_s), queue.next_s()) == ([], None)
    assert queue.unreachable(probe, AWAY, probe_s) and queue.failures == 2
    probe_s = queue.next_s()
    assert probe_s is not None
    (probe,) = queue.take(probe_s)
    assert queue.retry(probe, probe_s), "a refusal is a reply"
    assert (queue.away, queue.failures) == (None, 0)
    assert sorted([probe.topic, *topics(queue.take(probe_s))]) == ["t0", "t1", "t2"], "the settled one too"


def test_the_tried_topic_may_be_discarded(queue: TopicQueue) -> None:
    queue.put("t", 0.0)
    queue.put("other", 0.0)
    for ticket in queue.take(0.0):
        queue.unreachable(ticket, AWAY, 0.0)
    (probe,) = queue.take(LAST_S)
    queue.discard(probe.topic)
    assert len(queue.take(LAST_S)) == 1


@given(st.integers(0, 2**32))
def test_every_wanted_topic_is_settled_in_the_end(seed: int) -> None:
    random, queue, now_s, wanted = Random(seed), TopicQueue(FIRST_S, LAST_S), 0.0, set[str]()
    busy: list[Ticket] = []
    for _ in range(150):
        now_s += random.random() * 2
        topic = f"t{random.randrange(30)}"
        if random.random() < 0.6:
            queue.put(topic, now_s)
            wanted.add(topic)
        else:
            queue.discard(topic)
            wanted.discard(topic)
        busy += queue.take(now_s)
        random.shuffle(busy)
        for ticket in [busy.pop() for _ in range(random.randrange(len(busy) + 1))]:
            match random.randrange(4):
                case 0:
                    queue.settled(ticket, now_s)
                case 1:
                    queue.retry(ticket, now_s)
                case 2:
                    queue.unreachable(ticket, AWAY, now_s)
                case _:
                    queue.abandoned(ticket, now_s)
        assert set(queue.topics) == wanted
    settled: set[str] = set()
    for ticket in busy:
        queue.abandoned(ticket, now_s)
    for topic in wanted:
        queue.put(topic, now_s)
    while (due_s := queue.next_s()) is not None:
        for ticket in queue.take(max(now_s, due_s)):
            assert queue.settled(ticket, now_s)
            settled.add(ticket.topic)
    assert settled == wanted

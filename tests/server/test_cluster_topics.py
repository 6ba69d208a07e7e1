"""Creating topics in a remote cluster that fails, rejects, or is faster than we are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Self

import pytest

from magnetar.client.errors import ClientError, Conflict, ConnectionLost, NamespaceNotFound, NotSupported
from magnetar.replication.model import ClusterAddress, Mismatch, State
from magnetar.replication.partitions import Decision, WantedTopic
from magnetar.server import cluster_topics
from magnetar.server.cluster_topics import ClusterTopics

ADDRESS = ClusterAddress(service_url="http://b:8080")


class Remote:
    """The twin of a client: topics in memory, and errors on demand."""

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.asked: list[str] = []
        self.refuse: Callable[[str], ClientError | None] = lambda topic: None
        self.before_create: Callable[[str], None] = lambda topic: None
        self.at_once = self.at_once_max = 0
        self.opened = 0

    async def partition_count(self, topic: str) -> int | None:
        self.asked.append(topic)
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        await asyncio.sleep(0)
        self.at_once -= 1
        if (error := self.refuse(topic)) is not None:
            raise error
        return self.topics.get(topic)

    async def create_topic(self, topic: str, partitions: int, copy_of: str) -> None:
        self.before_create(topic)
        if topic in self.topics:
            raise Conflict(f"{topic} exists")
        self.topics[topic] = partitions

    async def grow_topic(self, topic: str, partitions: int) -> None:
        self.topics[topic] = partitions

    async def __aenter__(self) -> Self:
        self.opened += 1
        return self

    async def __aexit__(self, *reason: object) -> None:
        pass


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Remote:
    remote = Remote()
    monkeypatch.setattr(cluster_topics, "_client", lambda endpoint: remote)
    monkeypatch.setattr(cluster_topics, "_PAUSE_FIRST_S", 0.001)
    monkeypatch.setattr(cluster_topics, "_LINGER_S", 0.01)
    return remote


def wanted(topic: str, partitions: int = 0, grown_from: int = 0) -> WantedTopic:
    return WantedTopic(topic, topic, partitions, grown_from)


def run(
    act: Callable[[ClusterTopics], Awaitable[Any]], address: ClusterAddress = ADDRESS, *, creates: bool = True
) -> dict[str, Decision]:
    """The last decision on each topic."""
    decisions: dict[str, Decision] = {}

    def on_decision(topic: str, remote: str, decision: Decision) -> None:
        assert remote == "b"
        decisions[topic] = decision

    async def whole() -> None:
        topics = ClusterTopics("b", address, on_decision, creates=creates, mismatch=Mismatch.PIP370, pause_last_s=0.004)
        try:
            await act(topics)
        finally:
            await topics.close()

    asyncio.run(whole())
    return decisions


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


def test_many_topics_are_created_a_few_at_once(remote: Remote) -> None:
    async def act(topics: ClusterTopics) -> None:
        for index in range(100):
            topics.put(wanted(f"t{index}", index % 3))
        await until(lambda: len(remote.topics) == 100)

    decisions = run(act)
    assert {decision.state for decision in decisions.values()} == {State.RUNNING}
    assert remote.topics == {f"t{index}": index % 3 for index in range(100)}
    assert remote.at_once_max == 16
    assert remote.opened == 1


def test_a_temporarily_unreachable_cluster_gets_everything(remote: Remote) -> None:
    remote.refuse = lambda topic: ConnectionLost("nobody there") if len(remote.asked) < 20 else None

    async def act(topics: ClusterTopics) -> None:
        for index in range(40):
            topics.put(wanted(f"t{index}"))
        await until(lambda: len(remote.topics) == 40)

    run(act)


def test_a_cluster_that_stays_unreachable_is_given_up(remote: Remote, caplog: pytest.LogCaptureFixture) -> None:
    remote.refuse = lambda topic: ConnectionLost("nobody there")

    async def act(topics: ClusterTopics) -> None:
        for index in range(1000):
            topics.put(wanted(f"t{index}"))
        await until(lambda: "leaving them to the pipelines process" in caplog.text)
        asked = len(remote.asked)
        assert asked <= 16 + 5, "one topic at a time after the first attempt"
        await asyncio.sleep(0.05)
        assert len(remote.asked) == asked
        remote.refuse = lambda topic: None
        topics.put(wanted("later"))
        await until(lambda: "later" in remote.topics)

    with caplog.at_level(logging.WARNING):
        decisions = run(act)
    (record,) = caplog.records
    assert record.getMessage() == (
        "cannot create 1000 topics in cluster b, leaving them to the pipelines process: it cannot be reached"
    )
    unreachable = Decision(State.UNREACHABLE, "cluster b cannot be reached: nobody there")
    assert [decisions[f"t{index}"] for index in range(1000)] == [unreachable] * 1000, "those not tried too"
    assert decisions["later"].state is State.RUNNING


def test_a_rejected_topic_does_not_block_the_others(remote: Remote, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(topic: str) -> ClientError | None:
        return NamespaceNotFound(f"{topic}: no namespace") if topic.startswith("bad/") else None

    remote.refuse = refuse

    async def act(topics: ClusterTopics) -> None:
        for index in range(40):
            topics.put(wanted(f"bad/namespace/t{index}"))
        topics.put(wanted("good"))
        await until(lambda: "good" in remote.topics)
        assert remote.asked.index("good") == 40, "each was tried once until then"
        await until(lambda: len(caplog.records) == 40)

    with caplog.at_level(logging.INFO, logger="magnetar"):
        decisions = run(act)
    assert decisions["bad/namespace/t0"] == Decision(State.REFUSED, "in cluster b bad/namespace/t0: no namespace")
    assert decisions["good"].state is State.RUNNING
    assert remote.asked.count("bad/namespace/t0") == 6
    assert [record.levelname for record in caplog.records].count("WARNING") == 1, "one for the namespace"


def test_a_rejected_topic_is_checked_again(remote: Remote) -> None:
    """Its namespace may be created a little later."""
    remote.refuse = lambda topic: NamespaceNotFound("no namespace") if remote.asked.count(topic) < 3 else None

    async def act(topics: ClusterTopics) -> None:
        topics.put(wanted("t", 2))
        await until(lambda: remote.topics == {"t": 2})

    run(act)


def test_a_permanent_error_is_tried_once(remote: Remote, caplog: pytest.LogCaptureFixture) -> None:
    remote.refuse = lambda topic: NotSupported("only by REST")

    async def act(topics: ClusterTopics) -> None:
        topics.put(wanted("t"))
        await until(lambda: "only by REST" in caplog.text)

    with caplog.at_level(logging.WARNING):
        run(act)
    assert remote.asked == ["t"]


@pytest.mark.parametrize("there", [0, 2, 3])
def test_gr10_another_client_creates_it_at_the_same_moment(
    remote: Remote, there: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Then it is checked again, and left as it is."""
    remote.before_create = lambda topic: remote.topics.setdefault(topic, there) and None

    async def act(topics: ClusterTopics) -> None:
        topics.put(wanted("t", 2))
        await until(lambda: remote.asked == ["t", "t"])
        await asyncio.sleep(0.02)

    with caplog.at_level(logging.WARNING):
        run(act)
    assert (remote.topics, remote.asked, caplog.text) == ({"t": there}, ["t", "t"], "")


def test_the_latest_request_for_a_topic_counts(remote: Remote) -> None:
    async def act(topics: ClusterTopics) -> None:
        topics.put(wanted("t", 2))
        await until(lambda: remote.asked == ["t"])
        topics.put(wanted("t", 4, grown_from=2))
        await until(lambda: remote.topics == {"t": 4})

    run(act)


def test_gr3_where_creation_is_not_allowed_topics_are_only_checked(remote: Remote) -> None:
    remote.topics = {"same": 2, "other": 3}

    async def act(topics: ClusterTopics) -> None:
        for topic in ("same", "other", "missing"):
            topics.put(wanted(topic, 2, grown_from=1))
        await until(lambda: len(remote.asked) == 3)
        await asyncio.sleep(0.02)

    decisions = run(act, creates=False)
    assert {topic: decision.state for topic, decision in decisions.items()} == {
        "same": State.RUNNING,
        "other": State.RUNNING,
        "missing": State.WAITING,
    }
    assert remote.topics == {"same": 2, "other": 3}


def test_a_topic_that_is_no_longer_replicated_is_dropped(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_topics, "_PAUSE_FIRST_S", 0.1)
    remote.refuse = lambda topic: NamespaceNotFound("no namespace")

    async def act(topics: ClusterTopics) -> None:
        topics.put(wanted("t"))
        await until(lambda: remote.asked == ["t"])
        topics.discard("t")
        await asyncio.sleep(0.15)

    run(act)
    assert remote.asked == ["t"]


def test_a_cluster_without_an_address_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def act(topics: ClusterTopics) -> None:
        topics.put(wanted("t"))
        await until(lambda: "its record has no usable address" in caplog.text)

    with caplog.at_level(logging.WARNING):
        decisions = run(act, ClusterAddress())
    assert decisions["t"].state is State.UNREACHABLE


def test_unusable_authentication_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def act(topics: ClusterTopics) -> None:
        topics.put(wanted("t"))
        await until(lambda: "AuthenticationAthenz" in caplog.text)

    with caplog.at_level(logging.WARNING):
        run(act, ClusterAddress(service_url="http://b:8080", authentication_plugin="AuthenticationAthenz"))

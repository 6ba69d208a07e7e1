"""Topics of one task end together: an idle one is still watched while another is busy."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from magnetar.client import Client
from magnetar.pipelines import clusters
from magnetar.pipelines.copy.copier import Pace, copy
from magnetar.testing import TestBroker, broker
from tests.pipelines.two_clusters import assignment, create, new_topic


@pytest.fixture
def brokers() -> Iterator[tuple[TestBroker, TestBroker]]:
    with broker(clusterName="a") as a, broker(clusterName="b") as b:
        yield a, b
        for own in clusters._clusters.values():
            own.loop.close(*own._clients.values())
        clusters._clusters.clear()


def test_a_task_ends_when_all_its_topics_are_idle() -> None:
    pace = Pace(100.0, 5.0, 0.2)
    assert pace.deadline_s == 105.0
    assert not pace.is_silent(100.1)
    assert pace.is_silent(100.2)
    pace.saw_entries(100.3)
    assert not pace.is_silent(100.4)
    pace.saw_entries(100.2)
    assert pace.is_silent(100.5), "the later time counts"


def test_a_topic_is_copied_promptly_next_to_a_busy_one(
    brokers: tuple[TestBroker, TestBroker],
) -> None:
    a, b = brokers
    busy, quiet = new_topic(), new_topic()
    for topic in (busy, quiet):
        create(a, topic)
        create(b, topic)
    is_over = threading.Event()

    def publish() -> None:
        with Client(a.service_url) as client, client.producer(busy) as first, client.producer(quiet) as second:
            for number in range(200):
                first.send(b"x")
                if number == 20:
                    second.send(b"late")
                if is_over.wait(0.03):
                    return

    publisher = threading.Thread(target=publish)
    publisher.start()
    outcomes = copy([assignment(a, b, busy), assignment(a, b, quiet)], 2.5, 0.15)
    is_over.set()
    publisher.join()
    assert outcomes[0].entries > 20
    assert outcomes[1].entries == 1, "in the same task"

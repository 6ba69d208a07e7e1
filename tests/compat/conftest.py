"""One broker per test file, a client per test, and a new topic."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import count

import pulsar
import pytest

from magnetar.testing import TestBroker, broker
from tests.compat.stage import connect

_topics = count()


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[TestBroker]:
    """Has default settings. Its clock is never moved: a test that moves it starts its own broker."""
    with broker() as running:
        yield running


@pytest.fixture
def client(shared_broker: TestBroker) -> Iterator[pulsar.Client]:
    with contextlib.closing(connect(shared_broker)) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_topics)}"

"""One broker per test file, our client and the official one on it, and a new topic."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import count

import pulsar
import pytest

from magnetar.client import Client
from magnetar.testing import TestBroker, broker
from tests.compat.stage import connect

_topics = count()


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker() as running:
        yield running


@pytest.fixture
def client(running: TestBroker) -> Iterator[Client]:
    with Client(running.service_url, operation_timeout_s=10) as client:
        yield client


@pytest.fixture
def official(running: TestBroker) -> Iterator[pulsar.Client]:
    with contextlib.closing(connect(running)) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"client-{next(_topics)}"

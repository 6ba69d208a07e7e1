"""Clients of Spark's processes, and how long a broker that is away is tried again."""

from __future__ import annotations

import time

import pytest

from magnetar.client.errors import ConnectionLost, NotFound
from magnetar.spark import clients as connecting
from magnetar.spark.client_options import SparkClientOptions
from magnetar.spark.clients import forget_inline_client, inline_client, with_retry
from magnetar.spark.source.options import SourceOptions


def client_options(**more: str) -> SparkClientOptions:
    return SourceOptions.of({"service.url": "pulsar://127.0.0.1:1", "topic": "t"} | more).client


def test_an_error_that_may_pass_is_waited_out() -> None:
    errors = [ConnectionLost("away"), ConnectionLost("still away")]

    def ask() -> str:
        if errors:
            raise errors.pop()
        return "here"

    assert with_retry(ask, 10) == "here"


def test_patience_ends() -> None:
    asked = []

    def ask() -> None:
        asked.append(1)
        raise ConnectionLost("broker 127.0.0.1:1 cannot be reached")

    began_s = time.monotonic()
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
        with_retry(ask, 0.5)

    assert len(asked) > 1
    assert time.monotonic() - began_s < 5


def test_an_error_that_stays_is_raised_at_once() -> None:
    asked = []

    def ask() -> None:
        asked.append(1)
        raise NotFound("no such topic")

    with pytest.raises(NotFound):
        with_retry(ask, 10)
    assert asked == [1]


def test_a_process_has_one_client_for_the_same_options(monkeypatch: pytest.MonkeyPatch) -> None:
    options, other = client_options(), client_options(**{"pulsar.client.operationTimeoutMs": "1"})
    client = inline_client(options)

    assert inline_client(client_options()) is client
    assert inline_client(other) is not client
    with monkeypatch.context() as patch:
        patch.setattr(connecting.os, "getpid", lambda: -1)
        forked = inline_client(options)
        assert forked is not client
        forget_inline_client(options)
    forget_inline_client(options)
    assert inline_client(options) is not client
    for each in (options, other):
        forget_inline_client(each)

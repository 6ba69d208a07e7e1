"""Clients of Spark's processes."""

from __future__ import annotations

import pytest

from magnetar.spark import clients as connecting
from magnetar.spark.client_options import SparkClientOptions
from magnetar.spark.clients import forget_inline_client, inline_client
from magnetar.spark.source.options import SourceOptions


def client_options(**more: str) -> SparkClientOptions:
    return SourceOptions.of({"service.url": "pulsar://127.0.0.1:1", "topic": "t"} | more).client


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

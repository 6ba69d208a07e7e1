"""Clients of Spark's processes."""

from __future__ import annotations

import pytest

from magnetar.spark import clients as connecting
from magnetar.spark.client_options import SparkClientOptions
from magnetar.spark.clients import inline_client
from magnetar.spark.source.options import SourceOptions
from tests.spark.inline_clients import close_inline_clients


def client_options(**more: str) -> SparkClientOptions:
    return SourceOptions.of({"service.url": "pulsar://127.0.0.1:1", "topic": "t"} | more).client


def test_a_process_has_one_client_for_the_same_options(monkeypatch: pytest.MonkeyPatch) -> None:
    options, other = client_options(), client_options(**{"pulsar.client.operationTimeoutMs": "1"})
    client = inline_client(options)

    assert inline_client(client_options()) is client
    assert inline_client(other) is not client
    with monkeypatch.context() as patch:
        patch.setattr(connecting.os, "getpid", lambda: -1)
        assert inline_client(options) is not client
    close_inline_clients()

"""Start and end of the pipelines process, without Spark."""

from __future__ import annotations

import signal
import threading
from typing import ClassVar

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from magnetar.client import Security
from magnetar.pipelines import service
from magnetar.pipelines.declared_sources import SourceFailed
from magnetar.pipelines.jobs import SparkFailed


class DeadContext:
    """A context whose JVM was killed."""

    def __init__(self) -> None:
        self.was_stopped = False

    def stop(self) -> None:
        self.was_stopped = True
        raise Py4JNetworkError("Answer from Java side is empty")


class FailingVerb:
    """A verb that fails because Spark is gone."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self) -> None:
        self.calls.append("open")

    def start(self, context: object) -> None:
        self.calls.append("start")

    def check(self) -> None:
        self.calls.append("check")
        raise SparkFailed("the Spark session is gone")

    def stop(self) -> None:
        self.calls.append("stop")


class FakeArchiving:
    calls: ClassVar[list[object]] = []

    def __init__(self, settings: dict[str, str]) -> None:
        self.calls.append(settings)

    def begin(self) -> None:
        self.calls.append("begin")

    def end(self) -> None:
        self.calls.append("end")


def test_the_security_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert service._security("https://broker:8443") is None
    monkeypatch.setenv("MAGNETAR_TRUST_CERTS", "ca.pem")
    assert service._security("http://broker:8080") is None, "that is for other clusters"
    assert service._security("https://broker:8443") == Security(trust_certs_file="ca.pem")
    assert service._security("https://broker:8443", "own.pem") == Security(trust_certs_file="own.pem")
    monkeypatch.setenv("MAGNETAR_TOKEN", "file:///run/token")
    assert service._security("http://broker:8080") == Security(token_file="/run/token")


def test_a_killed_jvm_ends_the_process_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    context = DeadContext()
    monkeypatch.setattr(service, "capture", lambda output: [])
    monkeypatch.setattr(service, "_end_soon", lambda: None)
    monkeypatch.setattr(service, "_context", lambda master, printed: context)
    monkeypatch.setattr(signal, "signal", lambda *arguments: None)
    monkeypatch.setattr(service, "Archiving", FakeArchiving)
    verb = FailingVerb()
    FakeArchiving.calls.clear()
    assert service.run([verb], master=None) == 1
    assert context.was_stopped
    assert verb.calls == ["open", "start", "check", "stop"]
    assert FakeArchiving.calls == [service.SETTINGS, "begin", "end"]


def test_an_unusable_source_ends_the_process_and_does_not_wait_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()
    monkeypatch.setattr(service, "capture", lambda output: [])
    monkeypatch.setattr(service, "_end_soon", lambda: None)
    monkeypatch.setattr(service, "_context", lambda master, printed: is_over.wait())
    monkeypatch.setattr(signal, "signal", lambda *arguments: None)

    class Unusable(FailingVerb):
        def open(self) -> None:
            raise SourceFailed("no such broker")

    verb = Unusable()
    assert service.run([verb], master=None) == 1
    assert verb.calls == ["stop"]
    is_over.set()


def test_verbs_connect_while_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal ends the process at once, whatever Spark does."""
    is_open, handlers = threading.Event(), {}
    monkeypatch.setattr(service, "capture", lambda output: [])
    monkeypatch.setattr(service, "_end_soon", lambda: None)
    monkeypatch.setattr(service, "_context", lambda master, printed: is_open.wait() and threading.Event().wait())
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)

    class Connecting(FailingVerb):
        def open(self) -> None:
            super().open()
            is_open.set()
            handlers[signal.SIGTERM]()

    verb = Connecting()
    assert service.run([verb], master=None) == 0
    assert verb.calls == ["open", "stop"]

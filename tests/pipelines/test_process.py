"""The life of the process that replicates, without Spark."""

from __future__ import annotations

import signal

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from magnetar.client import Security
from magnetar.pipelines import process


class DeadSession:
    """As it is when its JVM was killed."""

    def __init__(self) -> None:
        self.was_stopped = False

    def stop(self) -> None:
        self.was_stopped = True
        raise Py4JNetworkError("Answer from Java side is empty")


def test_the_security_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert process._security("https://broker:8443") is None
    monkeypatch.setenv("MAGNETAR_TRUST_CERTS", "ca.pem")
    assert process._security("http://broker:8080") is None, "that is for other clusters"
    assert process._security("https://broker:8443") == Security(trust_certs_file="ca.pem")
    monkeypatch.setenv("MAGNETAR_TOKEN", "file:///run/token")
    assert process._security("http://broker:8080") == Security(token_file="/run/token")


def test_a_jvm_that_was_killed_ends_the_process_and_leaves_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    session = DeadSession()
    monkeypatch.setattr(process, "_log_to_stderr", lambda: None)
    monkeypatch.setattr(process, "_end_soon", lambda: None)
    monkeypatch.setattr(process, "_session", lambda master: session)
    monkeypatch.setattr(process, "_replicate", lambda *arguments: 1)
    monkeypatch.setattr(signal, "signal", lambda *arguments: None)
    assert process.run(object, master=None) == 1  # type: ignore[arg-type]
    assert session.was_stopped

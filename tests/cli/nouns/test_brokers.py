"""`magnetar brokers`: what only curl could show."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar import testing
from magnetar.health import Facts
from magnetar.version import __version__
from tests.cli.conftest import CommandLine


def test_status_of_a_broker_with_a_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with testing.broker(tmp_path / "data") as running:
        cli = CommandLine(running.http_url, capsys)
        page = cli.ok("brokers")
        assert __version__ in page and str(tmp_path / "data") in page
        for word in ("health", "used", "to be freed", "free"):
            assert word in page
        assert cli.json("brokers", "disk")["usedBytes"] > 0
        assert "free" in cli.ok("brokers", "disk")


def test_status_of_a_broker_in_memory(cli: CommandLine) -> None:
    assert cli.json("brokers")["disk"] is None
    assert "health" in cli.ok("brokers", "status") and "free" not in cli.ok("brokers", "status")
    assert cli("brokers", "disk").err == "the broker does not report its disk space\n"


def test_an_unhealthy_broker(cli: CommandLine, running: testing.TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts("serving", loop_lag_s=99.0, damaged=("persistent://public/default/t",))
    monkeypatch.setattr(running.server.vitals, "facts", lambda: facts)
    assert "the event loop was blocked for 99.0 s" in cli.fails("brokers", "health")
    status = cli("brokers", "status")
    assert status.code == 1 and "the event loop was blocked for 99.0 s" in status.out


def test_a_broker_with_warnings(cli: CommandLine, running: testing.TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Facts("serving", damaged=("persistent://public/default/t",))
    monkeypatch.setattr(running.server.vitals, "facts", lambda: facts)
    health = cli("brokers", "health")
    assert (health.code, health.out) == (0, "ok\n")
    assert health.err == "warning: 1 thing cannot be read: brokers/damaged or the broker's log names it\n"
    assert "1 thing cannot be read" in cli.ok("brokers")


def test_health_version_and_addresses(cli: CommandLine) -> None:
    assert cli.ok("brokers", "health") == "ok\n"
    assert cli.ok("brokers", "version") == f"{__version__}\n"
    assert cli.ok("brokers", "list").strip() == cli.url.removeprefix("http://")
    assert cli.ok("brokers", "backlog-quota-check") == "checked all backlog quotas\n"


def test_configuration(cli: CommandLine) -> None:
    name = "forceDeleteNamespaceAllowed"
    assert name in cli.ok("brokers", "list-dynamic-config").splitlines()
    assert cli.json("brokers", "get-runtime-config", name) == {name: "false"}
    assert cli.ok("brokers", "update-dynamic-config", "--config", name, "--value", "true") == f"set {name}=true\n"
    assert cli.json("brokers", "get-all-dynamic-config") == {name: "true"}
    assert cli.json("brokers", "get-runtime-config")[name] == "true"
    assert cli.ok("brokers", "delete-dynamic-config", "--config", name) == f"reset {name}\n"
    assert cli.json("brokers", "get-runtime-config", name) == {name: "false"}
    assert "no setting 'nosuch'" in cli.fails("brokers", "get-runtime-config", "nosuch")
    assert "did you mean" in cli.fails("brokers", "update-dynamic-config", "--config", name[:-1], "--value", "true")

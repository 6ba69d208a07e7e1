"""Notifications to a service manager, which is a real datagram socket here, also of a real broker."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.server.supervisor.notify import Supervisor


class Manager:
    """The receiving end, as of systemd."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(30)

    def receive(self) -> list[str]:
        return self._socket.recv(4096).decode().splitlines()

    def is_empty(self) -> bool:
        self._socket.setblocking(False)
        try:
            self._socket.recv(4096)
        except BlockingIOError:
            return True
        return False

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["a file", pytest.param("a name", marks=pytest.mark.skipif("sys.platform != 'linux'"))])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "n") if request.param == "a file" else f"@magnetar-test-{os.getpid()}")
    yield manager
    manager.close()


def test_ready_and_stopping(manager: Manager) -> None:
    supervisor = Supervisor(manager.address)
    supervisor.ready("serves\npulsar://here:6650")
    assert manager.receive() == ["READY=1", "STATUS=serves pulsar://here:6650"]
    supervisor.stopping()
    assert manager.receive() == ["STOPPING=1", "STATUS=stopping"]
    supervisor.close()


def test_signs_of_life_pause_while_something_fails(manager: Manager) -> None:
    supervisor = Supervisor(manager.address, watchdog_s=0.002)
    answers: Iterator[list[str]] = iter([[], ["timers do not run", "nor commits"], []])

    def failures() -> list[str]:
        found = next(answers, None)
        if found is None:
            raise InterruptedError
        return found

    with pytest.raises(InterruptedError):
        asyncio.run(supervisor.watch(failures))
    received = [manager.receive() for _ in range(3)]
    assert received == [["WATCHDOG=1"], ["STATUS=timers do not run; nor commits"], ["WATCHDOG=1"]]
    supervisor.close()


def test_without_a_manager_nothing_is_sent_and_nothing_is_watched() -> None:
    supervisor = Supervisor.of({})
    supervisor.ready("serves")
    asyncio.run(supervisor.watch(lambda: pytest.fail("asked")))
    supervisor.close()


@pytest.mark.parametrize("address", ["/no/such/socket", "nonsense", "/" + "x" * 200])
def test_a_manager_that_is_gone_changes_nothing(address: str) -> None:
    supervisor = Supervisor(address)
    supervisor.ready("serves")
    supervisor.stopping()
    supervisor.close()


def test_a_manager_that_does_not_read_holds_nothing_up(manager: Manager) -> None:
    supervisor = Supervisor(manager.address)
    for _ in range(10_000):
        supervisor.ready("serves")
    supervisor.close()


@pytest.mark.parametrize(
    ("variables", "watchdog_s"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
    ],
)
def test_the_variables_are_for_this_process_only(variables: dict[str, str], watchdog_s: float) -> None:
    environment = {"NOTIFY_SOCKET": "/run/n", "HOME": "/root", **variables}
    assert Supervisor.of(environment).watchdog_s == watchdog_s
    assert environment == {"HOME": "/root"}


def test_a_broker_notifies_its_manager(manager: Manager, tmp_path: Path) -> None:
    words = ["-m", "magnetar", "standalone", "--port", "0", "--http-port", "0", "--data", str(tmp_path / "data")]
    environment = {**os.environ, "NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "200000"}
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True, env=environment) as broker:
        state, status = manager.receive()
        assert broker.stdout is not None
        _, service_url, http_url = next(line for line in broker.stdout if line.startswith("ready")).split()
        assert (state, status) == ("READY=1", f"STATUS=serves {service_url} and {http_url}")
        assert [manager.receive() for _ in range(3)] == [["WATCHDOG=1"]] * 3
        broker.send_signal(signal.SIGTERM)
        received = manager.receive()
        while received == ["WATCHDOG=1"]:
            received = manager.receive()
        assert received == ["STOPPING=1", "STATUS=stopping"]
        assert broker.wait(30) == 0
    assert manager.is_empty()

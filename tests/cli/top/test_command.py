"""`magnetar top` against a real broker: one frame, JSON, and the screen in a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from time import monotonic

import pytest

from magnetar.testing import TestBroker
from tests.cli.conftest import CommandLine, Recorder

_WITHIN_S = 60.0


def test_one_frame_is_plain_text(cli: CommandLine) -> None:
    cli.ok("messages", "publish", "of-top", "one")
    out = cli.ok("top", "--once", "--sort", "name")
    assert out.startswith("Magnetar ") and "TOPICS by name" in out
    assert "\x1b" not in out


def test_json_is_the_overview(cli: CommandLine) -> None:
    found = cli.json("top")
    assert found["cluster"] == "standalone" and "attention" in found


def test_a_pipe_needs_once(cli: CommandLine) -> None:
    assert "--once prints one frame" in cli.fails("top", code=2)


@pytest.mark.parametrize("interval", ["0", "500ms"])
def test_an_interval_is_a_second_at_least(cli: CommandLine, interval: str) -> None:
    assert "top" not in cli("top", "--interval", interval).out


@pytest.mark.parametrize(("status", "body"), [(404, {"reason": "Cluster does not exist"}), (200, ["broker:8080"])])
def test_apache_pulsar_has_no_overview(recorder: Recorder, recorded: CommandLine, status: int, body: object) -> None:
    recorder.will_answer("GET", "/admin/v2/brokers/overview", body, status)
    assert "needs a Magnetar broker" in recorded.fails("top", "--once")


def test_a_refusal_is_shown_as_it_is(recorder: Recorder, recorded: CommandLine) -> None:
    recorder.will_answer("GET", "/admin/v2/brokers/overview", {"reason": "the broker is busy"}, 503)
    assert recorded.fails("top", "--once").startswith("the broker is busy")


class Screen:
    """A command in a pseudo-terminal."""

    def __init__(self, *words: str) -> None:
        self._own, theirs = pty.openpty()
        self.resize(24, 80)
        environment = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "COLUMNS": "", "LINES": ""}
        environment = {name: value for name, value in environment.items() if value}
        command = [sys.executable, "-m", "magnetar.cli.main", *words]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def resize(self, rows: int, columns: int) -> None:
        ioctl(self._own, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._own, keys.encode())

    def wait_for(self, text: str) -> None:
        deadline = monotonic() + _WITHIN_S
        while text not in self.text:
            assert monotonic() < deadline, self.text
            self._read()

    def _read(self) -> bool:
        """False at the end."""
        if not select.select([self._own], [], [], 0.1)[0]:
            return True
        try:
            read = os.read(self._own, 1 << 16).decode(errors="replace")
        except OSError:  # how Linux says that the other side is closed
            return False
        self.text += read
        return bool(read)

    def end(self) -> int:
        while self._read():
            if self.process.poll() is not None and not select.select([self._own], [], [], 0.1)[0]:
                break
        return self.process.wait(_WITHIN_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._own)


@contextmanager
def screen(*words: str) -> Iterator[Screen]:
    started = Screen(*words)
    try:
        yield started
    finally:
        started.close()


def test_the_screen_until_q(running: TestBroker) -> None:
    with screen("top", "--url", running.http_url, "--interval", "1s") as top:
        top.wait_for("BUSIEST TOPICS by messages in")
        top.type("s")
        top.wait_for("BUSIEST TOPICS by messages out")
        top.resize(40, 140)
        top.type("q")
        assert top.end() == 0
        assert "\x1b[?1049h" in top.text and "\x1b[?1049l" in top.text, "the alternate screen, and back"


def test_the_screen_until_ctrl_c(running: TestBroker) -> None:
    with screen("top", "--url", running.http_url) as top:
        top.wait_for("BUSIEST TOPICS")
        top.type("\x03")
        assert top.end() == 130
        assert "Traceback" not in top.text and "\x1b[?1049l" in top.text

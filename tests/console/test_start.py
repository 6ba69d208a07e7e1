"""The command: what is refused before anything is served, and the console beside a broker."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from magnetar import testing
from magnetar.cli.main import main
from magnetar.console.start import NEEDS_EXTRA


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for words in (["console"], ["standalone", "--console"]):
        assert main(words) == 2
        assert capsys.readouterr().err == f"magnetar: {NEEDS_EXTRA}\n"


def test_another_address_needs_authentication_of_the_broker(capsys: pytest.CaptureFixture[str]) -> None:
    with testing.broker() as broker, ThreadPoolExecutor(1) as thread:  # here, a browser of other tests may have a loop
        words = ["console", "--url", broker.http_url, "--bind", "0.0.0.0", "--port", "0"]
        assert thread.submit(main, words).result() == 2
    error = capsys.readouterr().err
    assert error.startswith("magnetar: --bind 0.0.0.0 lets other machines in")
    assert error.count("\n") == 1


def test_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with testing.broker() as broker:
        port = broker.http_url.rpartition(":")[2]
        assert main(["console", "--url", broker.http_url, "--port", port]) == 1
    assert re.fullmatch(r"magnetar: cannot listen on 127\.0\.0\.1:\d+: .*\n", capsys.readouterr().err)


def test_a_console_port_needs_a_console(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["standalone", "--console-port", "0"]) == 2
    assert capsys.readouterr().err == "magnetar: --console-port needs --console\n"


def test_a_plain_start_imports_nothing_of_the_console() -> None:
    code = "import sys, magnetar.cli.main, magnetar.server.standalone; print(any('console' in m for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_a_broker_with_its_console(tmp_path: Path) -> None:
    words = ["standalone", "--data", str(tmp_path / "data"), "--port", "0", "--http-port", "0", "--console"]
    command = [sys.executable, "-m", "magnetar", *words, "--console-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        lines = []
        while not lines or not lines[-1].startswith("console "):
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        assert lines[-2].startswith("ready pulsar://")
        http_url, console_url = lines[-2].split()[2], lines[-1].split()[1]
        page = httpx.get(http_url, headers={"accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, console_url)
        assert httpx.get(http_url).json()["product"] == "Magnetar"
        assert httpx.get(console_url).status_code == 200
        process.terminate()
        assert process.wait(20) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(console_url)

"""Consoles as processes, and the browser: shared parts of these tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NO_CHROMIUM = "no Chromium on this machine: apt install chromium"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PICTURES = Path(__file__).parents[2] / "docs" / "pictures" / "console"
TAKES_PICTURES = os.environ.get("MAGNETAR_CONSOLE_PICTURES") == "1"


class RunningConsole(NamedTuple):
    url: str
    process: subprocess.Popen[str]


@contextmanager
def console(broker_url: str, words: Sequence[str] = ()) -> Iterator[RunningConsole]:
    command = [sys.executable, "-m", "magnetar", "console", "--url", broker_url, "--port", "0", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline().strip()
        word, _, url = line.partition(" ")
        assert word == "console", line or process.stderr.read()
        yield RunningConsole(url, process)
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=20)
        assert errors == ""
        assert process.returncode == 0

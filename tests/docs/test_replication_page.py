"""The walk of docs/replication.md, by its own text: two brokers, ten commands, and the topic is in both clusters.

That the broker then starts a pipeline which copies the message is shown in tests/server/test_pipelines_process.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "replication.md").read_text(encoding="utf-8")
COMMANDS = re.search(r"<!-- runs in tests/docs/test_replication_page.py -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
PORTS = ("6650", "6651", "8080", "8081")
MAGNETAR = str(Path(sys.executable).parent / "magnetar")


def free_ports(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def run(folder: Path, words: list[str]) -> str:
    found = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, f"{shlex.join(words)}: {found.stderr}"
    return found.stdout


def wait_until(is_so: Callable[[], bool], seconds: float, what: Callable[[], object]) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < until, what()
        time.sleep(0.2)


def test_gr1_two_clusters_in_ten_commands(tmp_path: Path) -> None:
    assert COMMANDS is not None
    text = COMMANDS[1]
    for documented, free in zip(PORTS, free_ports(len(PORTS)), strict=True):
        text = text.replace(documented, free)
    lines = text.splitlines()
    assert len(lines) == 10
    brokers: list[subprocess.Popen[str]] = []
    environment = {**os.environ, "PATH": f"{Path(MAGNETAR).parent}{os.pathsep}{os.environ['PATH']}"}
    try:
        for line in lines:
            words = [MAGNETAR, *shlex.split(line.removesuffix("&"))[1:]]
            if line.endswith("&"):
                broker = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment)
                brokers.append(broker)
                assert broker.stdout is not None
                assert any(said.startswith("ready") for said in iter(broker.stdout.readline, ""))
            else:
                run(tmp_path, words)
        status = [*words, "--json"]
        remote = [MAGNETAR, "topics", "list", "public/default", "--json", *shlex.split(lines[7])[-2:]]

        def topics() -> list[str]:
            found: list[str] = json.loads(run(tmp_path, remote))
            return found

        wait_until(lambda: topics() == ["persistent://public/default/orders"], 30, topics)
        (row,) = json.loads(run(tmp_path, status))
        assert (row["topic"], row["remote"]) == ("persistent://public/default/orders", "west")
        assert row["backlog"] == 1 or row["state"] == "running"
    finally:
        for broker in brokers:
            broker.send_signal(signal.SIGINT)
        for broker in brokers:
            broker.communicate(timeout=30)

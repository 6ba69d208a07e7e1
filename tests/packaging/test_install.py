"""Wheel and sdist in an empty environment: a broker starts, keeps a message, gives it to a consumer and stops."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from magnetar.version import __version__

from .builds import environment, install, python_of, uv

VERSIONS = ("3.11", "3.12", "3.13")
THIS = f"{sys.version_info.major}.{sys.version_info.minor}"


def use(programs: Path, folder: Path) -> None:
    """What the README shows first, from a folder that has nothing to do with the package."""
    folder.mkdir()
    magnetar = programs / "magnetar"

    def run(*words: str) -> str:
        outcome = subprocess.run(
            [magnetar, *words], cwd=folder, capture_output=True, text=True, timeout=60, env=environment()
        )
        assert (outcome.returncode, outcome.stderr) == (0, ""), outcome.stderr
        return outcome.stdout

    assert run("--version") == f"magnetar {__version__}\n"
    words = ["standalone", "--port", "0", "--http-port", "0", "--data", "data"]
    with subprocess.Popen(
        [magnetar, *words], cwd=folder, stdout=subprocess.PIPE, text=True, env=environment()
    ) as broker:
        assert broker.stdout is not None
        _, _, url = next(line for line in broker.stdout if line.startswith("ready")).split()
        run("messages", "publish", "orders", "order 1", "--url", url)
        assert "order 1" in run("messages", "peek", "orders", "--json", "--url", url)
        assert "orders" in run("topics", "list", "--url", url)
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(30) == 0
    assert (folder / "data" / "MAGNETAR").exists()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel(wheel: Path, tmp_path: Path, version: str) -> None:
    use(install(wheel, python_of(version), tmp_path / "environment"), tmp_path / "elsewhere")


def test_the_sdist(sdist: Path, tmp_path: Path) -> None:
    use(install(sdist, python_of(THIS), tmp_path / "environment"), tmp_path / "elsewhere")


def test_the_fixture_of_pytest(wheel: Path, tmp_path: Path) -> None:
    """pytest finds it in a project that requires magnetar and nothing else of ours."""
    programs = install(wheel, python_of(THIS), tmp_path / "environment")
    uv("pip", "install", "--quiet", "--python", programs.parent, "pytest")
    (tmp_path / "test_orders.py").write_text(
        "from magnetar.client import Client\n\n\n"
        "def test_orders(magnetar_broker):\n"
        "    with Client(magnetar_broker.service_url) as client, client.producer('orders') as producer:\n"
        "        producer.send(b'order 1')\n"
    )
    words = [programs / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"]
    outcome = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment())
    assert outcome.returncode == 0, outcome.stdout

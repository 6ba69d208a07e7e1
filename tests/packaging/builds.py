"""uv, as `make package` uses it: builds once for all tests, and environments that have nothing else in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = shutil.which("uv") or (str(ROOT / ".uv/bin/uv") if (ROOT / ".uv/bin/uv").exists() else None)

_NO_INDEX = re.compile(r"error sending request|dns error|connection refused|network was disabled", re.IGNORECASE)


def uv(*words: object, cwd: Path = ROOT) -> str:
    """The output; skips the test where no package index can be reached, and fails for every other reason."""
    if UV is None:
        pytest.skip("uv is neither on PATH nor in .uv: `make setup` gets it")
    outcome = subprocess.run(
        [UV, *map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=600, env=environment()
    )
    if outcome.returncode and _NO_INDEX.search(outcome.stderr):
        pytest.skip(f"uv {words[0]}: no package index can be reached, and the cache of uv has not everything")
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout.strip()


def environment() -> dict[str, str]:
    """Without what would make another magnetar importable, or set its settings."""
    unwanted = ("PYTHONPATH", "VIRTUAL_ENV", "MAGNETAR_", "PULSAR_", "COVERAGE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}


def build(folder: Path) -> None:
    words = ("--build-constraints", ROOT / "requirements/build.txt", "--require-hashes", "--out-dir", folder)
    uv("build", "--quiet", *words)


def python_of(version: str) -> str:
    """The interpreter of this version, or a skipped test."""
    if UV is None:
        pytest.skip("uv is neither on PATH nor in .uv: `make setup` gets it")
    words = ["python", "find", "--no-project", "--no-python-downloads", version]
    found = subprocess.run([UV, *words], cwd=ROOT, capture_output=True, text=True, timeout=60, env=environment())
    if found.returncode:
        pytest.skip(f"uv finds no Python {version} on this machine")
    return found.stdout.strip()


def install(package: Path, python: str, folder: Path) -> Path:
    """A new environment with this package and its dependencies only; the folder of its programs."""
    uv("venv", "--quiet", "--python", python, folder)
    build_words = ("--build-constraints", ROOT / "requirements/build.txt")
    uv("pip", "install", "--quiet", "--python", folder, *build_words, package)
    uv("pip", "check", "--quiet", "--python", folder)
    return folder / "bin"

"""A load in its own process, like real clients: it runs until stopped and leaves its results."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .killable import KillableBroker

_ROOT = Path(__file__).parent.parent.parent


@contextlib.contextmanager
def load_on(module: str, broker: KillableBroker, folder: Path) -> Iterator[dict[str, Any]]:
    """Runs the load during the block; afterwards the dictionary holds its results."""
    file = folder / "result.json"
    with (folder / "load.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.crash.{module}", broker.service_url, str(file)],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        results: dict[str, Any] = {}
        try:
            assert process.stdout is not None and process.stdin is not None
            assert process.stdout.readline() == "running\n"
            yield results
            process.communicate(timeout=60)
            assert process.returncode == 0
            results.update(json.loads(file.read_text()))
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

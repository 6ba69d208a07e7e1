"""A forgotten or mistyped `--cluster` never renames the cluster of a data folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def _standalone(data: Path, *words: str) -> tuple[int, str]:
    """Starts a broker, stops it once it is ready, and returns its exit code and everything it printed."""
    command = [sys.executable, "-m", "magnetar", "standalone", "--data", str(data), "--port", "0", "--http-port", "0"]
    with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        printed = ""
        for line in process.stdout:
            printed += line
            if line.startswith("ready "):
                process.terminate()
        return process.wait(), printed


def test_a_data_folder_keeps_the_name_of_its_cluster(tmp_path: Path) -> None:
    assert ", cluster east\n" in _standalone(tmp_path, "--cluster", "east")[1]
    code, printed = _standalone(tmp_path)
    assert (code, ", cluster east\n" in printed) == (0, True), printed
    code, printed = _standalone(tmp_path, "--cluster", "west")
    assert code == 1
    assert f"data folder {tmp_path}: the data belongs to cluster east, not west" in printed
    assert ", cluster west\n" in _standalone(tmp_path, "--cluster", "west", "--rename-cluster")[1]
    assert ", cluster west\n" in _standalone(tmp_path)[1]

"""Output of the pipelines process: our lines on stderr, everything else in a bounded file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from magnetar.pipelines.output import FILE_BYTES_MAX

_PROGRAM = """
import logging, os, sys, threading, time
from pathlib import Path
from magnetar.pipelines import output

path = Path(sys.argv[1]) if sys.argv[1] else None
output.FILE_BYTES_MAX = 10_000
lines = output.capture(output.Output("info", "json", path))
for number in range(1000):
    os.write(2, b"ERROR from the JVM %d\\n" % number)
logging.getLogger("magnetar.pipelines").info("ours")
thread = threading.Thread(target=lambda: [][1], name="t")
thread.start()
thread.join()
while not lines or not lines[-1].endswith("999"):
    time.sleep(0.01)
"""


def test_what_others_print_goes_to_a_bounded_file_and_ours_to_stderr(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "spark.log"
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["component"], line["message"]) for line in lines] == [
        ("pipelines", "ours"),
        ("pipelines", "thread t ended: IndexError: list index out of range"),
    ]
    assert path.read_text().endswith("ERROR from the JVM 999\n")
    kept = sorted(file.name for file in path.parent.iterdir())
    assert kept == ["spark.log", "spark.log.1"]
    assert all(file.stat().st_size <= 10_000 for file in path.parent.iterdir())
    assert FILE_BYTES_MAX == 5 << 20


def test_the_file_of_its_own_is_private_and_has_no_name_that_others_can_foresee(tmp_path: Path) -> None:
    names = set()
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, ""],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            umask=0,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        first = json.loads(done.stderr.splitlines()[0])["message"]
        file = Path(first.removeprefix("Spark and its JVM write to "))
        assert file.parent.parent == tmp_path
        assert file.parent.stat().st_mode & 0o777 == 0o700
        assert file.read_text().endswith("ERROR from the JVM 999\n")
        names.add(file.parent.name)
    assert len(names) == 2

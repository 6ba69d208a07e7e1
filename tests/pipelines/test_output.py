"""Output of the pipelines process: our lines on stderr, everything else in a bounded file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from magnetar.pipelines.output import FILE_BYTES_MAX

_PROGRAM = """
import logging, os, sys, threading, time
from pathlib import Path
from magnetar.pipelines import output

path = Path(sys.argv[1])
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

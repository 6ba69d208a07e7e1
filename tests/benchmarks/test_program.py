"""Programs in their own processes: their log, their exit, and their CPU time."""

from __future__ import annotations

import select
import sys
from pathlib import Path

import program
import pytest
from process import CpuMeter, running
from program import ProgramFailed, outcome_of, started
from spark_rows import cpu_percent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a test's programs."""
    monkeypatch.setattr(program, "HERE", tmp_path)
    return tmp_path


def test_results_are_lines_of_json(folder: Path) -> None:
    (folder / "speaker.py").write_text(
        """import sys
print("a library prints something")
print('{"word": "%s"}' % sys.argv[1], flush=True)
print('{"rest": "%s"}' % sys.stdin.read(), flush=True)
"""
    )
    with started("speaker", "first", 2, folder=folder / "logs") as speaker:
        assert speaker.answer(10.0) == {"word": "first"}
        speaker.check_runs()
        speaker.end()
        assert speaker.answer(10.0) == {"rest": ""}
        with pytest.raises(ProgramFailed, match="speaker first exited with code 0"):
            speaker.check_runs()


def test_a_crash_is_a_failure_with_the_end_of_the_log(folder: Path) -> None:
    (folder / "dying.py").write_text("import sys; sys.exit('no broker there')")
    with pytest.raises(ProgramFailed, match=r"dying now exited with code 1; .*\n.*no broker there"):
        outcome_of("dying", "now", folder=folder, limit_s=10.0)
    with started("dying", "now", folder=folder) as dying, pytest.raises(ProgramFailed, match="exited with code 1"):
        dying.end()


def test_a_silent_program_is_a_failure_and_is_stopped(folder: Path) -> None:
    (folder / "silent.py").write_text("import time; time.sleep(60)")
    with (
        pytest.raises(ProgramFailed, match="silent still printed nothing for 0 s"),
        started("silent", "still", folder=folder) as silent,
    ):
        silent.answer(0.1)
    assert not Path(f"/proc/{silent.pid}").exists()


BUSY = "t = time.process_time()\nwhile time.process_time() - t < {}: pass\n"


def test_cpu_time_includes_live_and_exited_children(tmp_path: Path) -> None:
    child = f"import time\n{BUSY.format(0.6)}"
    parent = f"""import subprocess, sys
print("ready", flush=True)
input()
subprocess.run([sys.executable, "-c", {child!r}])
print("done", flush=True)
input()
"""
    with running([sys.executable, "-c", parent], tmp_path / "log", talks=True) as process:
        assert process.stdin is not None and process.stdout is not None and process.stdout.readline() == b"ready\n"
        meter = CpuMeter(process.pid)
        process.stdin.write(b"go\n")
        process.stdin.flush()
        while not select.select([process.stdout], [], [], 0.05)[0]:
            meter.look()
        meter.look()
        assert 0.3 <= meter.used_s < 5.0


def test_each_process_has_its_share_of_a_core(tmp_path: Path) -> None:
    busy_code = f"import time\nprint('ready', flush=True)\n{BUSY.format(30)}"
    idle_code = "print('ready', flush=True)\ninput()"
    with (
        running([sys.executable, "-c", busy_code], tmp_path / "log", talks=True) as busy,
        running([sys.executable, "-c", idle_code], tmp_path / "log", talks=True) as idle,
    ):
        for process in (busy, idle):
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        of_busy, of_idle = cpu_percent((busy.pid, idle.pid), 0.3)
    assert of_idle < of_busy < 130.0

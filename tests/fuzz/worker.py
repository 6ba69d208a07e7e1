"""A process of its own for hostile input, with limits of memory and time: plays inputs and reports.

`Worker` starts it and talks to it, one line of JSON each way; a process that ends or does not answer is a failure too,
and the next input gets a new one. `python -m tests.fuzz.worker` is the process.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

ANSWER_TIMEOUT_S = 100.0
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Failure:
    reason: str
    seed: str = ""
    """Of the input, if it was made from one."""

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.reason}" if self.seed else self.reason


class Worker:
    """Use as a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def fuzz(self, target: str, first: int, runs: int) -> Failure | None:
        """Plays inputs made from seeds, up to the first failure."""
        return self._ask({"target": target, "first": first, "runs": runs})

    def replay(self, path: Path) -> Failure | None:
        return self._ask({"path": str(path)})

    def _ask(self, job: dict[str, Any]) -> Failure | None:
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            is_ready = selector.select(ANSWER_TIMEOUT_S)
        line = process.stdout.readline() if is_ready else b""
        if line:
            answer = json.loads(line)
            if answer is None:
                return None
            self._end()  # after a failure, memory and caches are not what they were
            return Failure(**answer)
        self._end()
        what = f"the process ended with code {process.returncode}" if is_ready else "no answer"
        return Failure(what, seed=f"{job['target']}/{job['first']}" if "target" in job else "")

    def _start(self) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", "tests.fuzz.worker")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=_ROOT
        )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in filter(None, (process.stdin, process.stdout)):
                pipe.close()


# -- the process


def seeded(target: str, number: int) -> Random:
    return Random(f"{target}/{number}")


def _done(job: dict[str, Any]) -> dict[str, str] | None:
    from . import corpus
    from .limits import TooExpensive
    from .targets import play_file, targets

    seed = ""
    try:
        if "path" in job:
            path = Path(job["path"])
            play_file(path.parent.name, corpus.read(path))
            return None
        target = targets()[job["target"]]
        for number in range(job["first"], job["first"] + job["runs"]):
            seed = f"{job['target']}/{number}"
            target.play(target.make(seeded(job["target"], number)))
    except (Exception, TooExpensive) as error:
        summary = f"{type(error).__name__}: {error}"[:2000]
        return {"reason": f"{summary}\n{traceback.format_exc()[-6000:]}", "seed": seed}
    return None


def main() -> None:
    from .limits import limit_memory, slowness

    answers = sys.stdout
    sys.stdout = sys.stderr
    slowness()
    limit_memory()
    for line in sys.stdin:
        print(json.dumps(_done(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()

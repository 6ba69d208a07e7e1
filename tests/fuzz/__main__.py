"""`python -m tests.fuzz [--hours H | --runs N] [TARGET …]`: new inputs for every command and route.

An input that fails is written into the corpus, and its target rests; the exit code is 1. A TARGET is the name of a
command or a route as in `PUT /admin/v2/tenants/{tenant}`; a file of the corpus is replayed instead.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from time import monotonic, time_ns

from . import corpus
from .targets import targets
from .worker import Failure, Worker, seeded

_CHUNK = 20  # inputs per turn of a target


class Campaign:
    """Turns of all targets, shared by several workers. `runs` is per target, 0 means until the time is over."""

    def __init__(self, names: Sequence[str], *, runs: int, until: float) -> None:
        self._names = list(names)
        self._until = until
        self._end = runs
        self._first = time_ns() // 1_000_000_000 * 1000
        self._turn = 0
        self._lock = Lock()
        self.played = 0
        self.failed: list[Path] = []

    def run(self) -> None:
        with Worker() as worker:
            while (turn := self._next()) is not None:
                name, first, runs = turn
                failure = worker.fuzz(name, first, runs)
                with self._lock:
                    self.played += runs
                    if failure is not None:
                        self._keep(name, failure)

    def _next(self) -> tuple[str, int, int] | None:
        with self._lock:
            if not self._names or monotonic() > self._until:
                return None
            lap, place = divmod(self._turn, len(self._names))
            done = lap * _CHUNK
            if self._end and done >= self._end:
                return None
            self._turn += 1
            return self._names[place], self._first + done, min(_CHUNK, self._end - done or _CHUNK)

    def _keep(self, name: str, failure: Failure) -> None:
        number = int(failure.seed.rpartition("/")[2])
        path = corpus.add(targets()[name].folder, targets()[name].make(seeded(name, number)))
        self.failed.append(path)
        if name in self._names:
            self._names.remove(name)
        print(f"{name} failed, the input is {path}\n{failure.reason}", flush=True)


def _replay(paths: Sequence[Path]) -> int:
    failed = 0
    with Worker() as worker:
        for path in paths:
            failure = worker.replay(path)
            failed += failure is not None
            print(f"{path}: {failure or 'passed'}", flush=True)
    return int(failed > 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("names", nargs="*", metavar="TARGET", help="a command, a route, or a file of the corpus")
    parser.add_argument("--hours", type=float, default=1.0, help="time to run (default 1)")
    parser.add_argument("--runs", type=int, default=0, help="inputs per target, whatever time they take")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default 1)")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in targets()]
    if unknown and all(Path(name).is_file() for name in unknown):
        return _replay([Path(name) for name in unknown])
    if unknown:
        parser.error(f"no target is called {unknown[0]}; commands and routes are targets")
    until = float("inf") if options.runs else monotonic() + options.hours * 3600
    campaign = Campaign(options.names or list(targets()), runs=options.runs, until=until)
    started = monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        for worker in [pool.submit(campaign.run) for _ in range(options.jobs)]:
            worker.result()
    print(f"{campaign.played} inputs in {monotonic() - started:.0f} s, {len(campaign.failed)} failed")
    return int(bool(campaign.failed))


if __name__ == "__main__":
    sys.exit(main())

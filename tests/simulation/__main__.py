"""`python -m tests.simulation [SEED | --dead-letters NUMBER]`: replays one seed, or runs seeds until one fails.

With --dead-letters it ends after NUMBER seeds with dead letters; seeds without any are run but not counted.
"""

from __future__ import annotations

import argparse
import sys
from itertools import count
from time import monotonic, time_ns

from .failure import BrokenPromise
from .world import World


class Totals:
    def __init__(self) -> None:
        self._started = monotonic()
        self._seeds = self._dead_letters = self._crashes = 0
        self.with_failures = 0

    def add(self, world: World) -> None:
        self._seeds += 1
        self._dead_letters += world.dead_letters.written
        self._crashes += world.crashes
        self.with_failures += world.dead_letters.written > 0

    @property
    def is_round(self) -> bool:
        return self._seeds % 100 == 0

    def __str__(self) -> str:
        return (
            f"{self._seeds} seeds in {monotonic() - self._started:.0f} s, {self._crashes} crashes;"
            f" {self._dead_letters} dead letters in {self.with_failures} seeds, none lost, none duplicated"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", nargs="?", type=int, help="seed to replay, with a traceback if it fails")
    parser.add_argument(
        "--dead-letters", type=int, default=0, metavar="NUMBER", help="end after this many seeds with dead letters"
    )
    options = parser.parse_args()
    if options.seed is not None:
        World(options.seed).run()
        print(f"seed {options.seed} passed")
        return 0
    totals = Totals()
    for seed in count(time_ns() // 1_000_000_000 * 1000):
        world = World(seed)
        try:
            world.run()
        except BrokenPromise as broken:
            print(broken, file=sys.stderr)
            return 1
        totals.add(world)
        is_over = 0 < options.dead_letters <= totals.with_failures
        if totals.is_round or is_over:
            print(f"seed {seed} passed; {totals}", flush=True)
        if is_over:
            return 0
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

"""`python -m tests.simulation [SEED | --deaths NUMBER]`: replays one seed, or runs one after the other until one fails.

With a number it ends after as many seeds in which messages became dead letters; those without are run and not counted.
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
        self._seeds = self._letters = self._crashes = 0
        self.deadly = 0

    def add(self, world: World) -> None:
        self._seeds += 1
        self._letters += world.graveyard.letters
        self._crashes += world.crashes
        self.deadly += world.graveyard.letters > 0

    @property
    def is_round(self) -> bool:
        return self._seeds % 100 == 0

    def __str__(self) -> str:
        return (
            f"{self._seeds} seeds in {monotonic() - self._started:.0f} s, {self._crashes} crashes;"
            f" {self._letters} dead letters in {self.deadly} seeds, none lost, none twice"
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", nargs="?", type=int, help="replay this one, with a traceback if it fails")
    parser.add_argument("--deaths", type=int, default=0, metavar="NUMBER", help="end after as many seeds with deaths")
    options = parser.parse_args()
    if options.seed is not None:
        World(options.seed).run()
        print(f"seed {options.seed} holds")
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
        is_over = 0 < options.deaths <= totals.deadly
        if totals.is_round or is_over:
            print(f"seed {seed} holds; {totals}", flush=True)
        if is_over:
            return 0
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

"""`python -m tests.survival [SEED | --seeds NUMBER]`: replays one seed, or runs new ones until one fails."""

from __future__ import annotations

import argparse
import sys
from itertools import count, islice
from time import monotonic, time_ns

from tests.simulation.failure import BrokenPromise

from .world import World


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.survival")
    parser.add_argument("seed", nargs="?", type=int, help="seed to replay, with a traceback if it fails")
    parser.add_argument("--seeds", type=int, default=0, metavar="NUMBER", help="end after this many seeds")
    options = parser.parse_args()
    if options.seed is not None:
        World(options.seed).run()
        print(f"seed {options.seed} passed")
        return 0
    started, planted, unread, messages = monotonic(), 0, 0, 0
    for number, seed in enumerate(islice(count(time_ns() // 1_000_000_000 * 1000), options.seeds or None), 1):
        world = World(seed)
        try:
            world.run()
        except BrokenPromise as broken:
            print(broken, file=sys.stderr)
            return 1
        planted += world.planter.raised
        unread += world.failed_reads
        messages += sum(map(len, world.ledger.confirmed.values()))
        if number % 100 == 0 or number == options.seeds:
            passed = f"{number} seeds in {monotonic() - started:.0f} s, up to {seed}"
            print(
                f"{passed}; {messages} messages, {planted} exceptions and {unread} failed reads lost none", flush=True
            )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

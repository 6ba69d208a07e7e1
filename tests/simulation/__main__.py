"""`python -m tests.simulation [SEED]`: replays one seed, or runs one after the other until one fails."""

from __future__ import annotations

import sys
from itertools import count
from time import monotonic, time_ns

from .failure import BrokenPromise
from .world import World


def main() -> int:
    arguments = sys.argv[1:]
    seeds = [int(arguments[0])] if arguments else count(time_ns() // 1_000_000_000 * 1000)
    started = monotonic()
    for done, seed in enumerate(seeds, 1):
        try:
            World(seed).run()
        except BrokenPromise as broken:
            if arguments:
                raise  # with the traceback, for whoever replays it
            print(broken, file=sys.stderr)
            return 1
        if arguments or done % 100 == 0:
            print(f"seed {seed} holds; {done} seeds in {monotonic() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)

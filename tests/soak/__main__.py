"""`python -m tests.soak --minutes 10 --connections 1000 --topics 10000 --rate 20000`: code 1 if a promise breaks."""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
from pathlib import Path

from .load import Size
from .soak import soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=1000, help="half of them produce, half consume")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=20_000, help="messages a second")
    parser.add_argument("--batch", type=int, default=20, help="messages in an entry")
    parser.add_argument("--size", type=int, default=100, help="bytes of a message")
    parser.add_argument("--changes", type=float, default=5.0, help="consumers that go and come back, a second")
    parser.add_argument("--vandal", type=float, default=50.0, help="hostile frames a second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    size = Size(
        options.connections, options.topics, options.rate, options.batch, options.size, changes_per_s=options.changes
    )
    with tempfile.TemporaryDirectory(prefix="magnetar-soak-") as folder:
        report = soak(Path(folder), size, seed=options.seed, vandal_per_s=options.vandal, seconds=options.minutes * 60)
    print(report)
    broken = report.broken()
    for promise in broken:
        print(f"BROKEN: {promise}", file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())

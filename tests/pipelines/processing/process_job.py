"""A process that is killed at any moment: doubles numbers, drops some and fails on some. Prints a line per round."""

from __future__ import annotations

import sys
import time

from magnetar.pipelines import Received, process

DROPPED, FAILED = 10, 7  # last digits


def double(message: Received) -> bytes | None:
    number = int(message.value)
    time.sleep(0.0005)
    if number % 100 == FAILED:
        raise ValueError(f"no {number}")
    return None if number % 100 == DROPPED else b"%d" % (2 * number)


def main() -> None:
    service_url, admin_url = sys.argv[1:]
    job = process(
        "orders",
        subscription="s",
        into="doubles",
        service_url=service_url,
        admin_url=admin_url,
        master="local[2,3]",
        round_messages=400,
    )(double)
    found = job.run(until="caught-up", show=lambda progress: print(f"done {progress.done}", flush=True))
    print(f"over {found.done}", flush=True)


if __name__ == "__main__":
    main()

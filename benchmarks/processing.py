"""`magnetar process` with a trivial function, against consumer loops of the official Python client on the same cores.

`python benchmarks/processing.py --messages 500000`. Both sides read a topic with two partitions, write every message to
another topic, and acknowledge; the client with one loop and with two, of which the faster counts. The target is 1.5
times its rate.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from contestant import Contestant, Magnetar
from measurement import topic
from program import outcome_of
from scale import Log, Values

PARTITIONS = 2
RATIO_MIN = 1.5
KINDS = ("row", "arrow", "async")
LOOPS = (1, 2)

_SIZE = 1024
_SETTLE_S = 10.0
_LIMIT_S = 180.0
_RATE_MIN = 2_000  # messages a second; slower counts as a failure


class ProcessingFailed(Exception):
    """Messages are missing, or were written twice."""


def processing_rows(contestant: Contestant, messages: int, log: Log, size: int = _SIZE) -> Values:
    source = topic("process")
    limit_s = _LIMIT_S + messages / _RATE_MIN
    folder = contestant.folder.parent / "spark"
    values: Values = {}
    with contestant.started() as broker:
        path = f"/admin/v2/{source.replace('://', '/')}"
        broker.put(f"{path}/partitions", PARTITIONS)
        sides = [("process", kind) for kind in KINDS] + [("consume", str(loops)) for loops in LOOPS]
        for side in sides:
            start = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
            broker.put(f"{path}/subscription/{'-'.join(side)}", start)
        words: tuple[object, ...] = ("send-async", broker.service_url, source, messages, size)
        outcome_of("official_client", *words, folder=folder, limit_s=limit_s)
        time.sleep(_SETTLE_S)  # storage compacts new data
        for side, choice in sides:
            name = f"{side}-{choice}"
            words = (side, broker.service_url, broker.http_url, source, name, topic(name), choice)
            found = outcome_of("processing_loops", *words, folder=folder, limit_s=limit_s)
            if found["total"] != messages:
                raise ProcessingFailed(f"{name} wrote {found['total']:,} of {messages:,} messages")
            values[name] = found["messages"] / found["seconds"]
            log(f"{name}: {values[name]:,.0f} msg/s")
    values["process-client"] = max(values[f"consume-{loops}"] for loops in LOOPS)
    ratio = values["process-row"] / values["process-client"]
    log(f"process, one call per message: {ratio:.2f} times the official Python client, the target is {RATIO_MIN}")
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--size", type=int, default=_SIZE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="processing-bench-") as folder:
        processing_rows(Magnetar(Path(folder, "broker")), options.messages, print, options.size)


if __name__ == "__main__":
    main()

"""Archiving a backlog to Parquet, against Spark writing the same rows as Parquet from files: MB/s of the best attempts.

`python benchmarks/archive.py --messages 500000`. The target is at least half of the rate from files.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from contestant import Contestant, Magnetar
from measurement import topic
from program import outcome_of
from scale import Log, Values

PARTITIONS = 2
RATIO_MIN = 0.5
ATTEMPTS = 3

_MB = 1_000_000
_SIZE = 1024
_LIMIT_S = 180.0
_RATE_MIN = 2_000  # messages a second; slower counts as a failure


class ArchiveFailed(Exception):
    """Messages are missing in the archive, or are in it twice."""


def archive_rows(contestant: Contestant, messages: int, log: Log) -> Values:
    warm, full = topic("archive-warm"), topic("archive")
    with contestant.started() as broker, tempfile.TemporaryDirectory(dir=contestant.folder.parent) as folder:
        for name in (warm, full):
            path = f"/admin/v2/{name.replace('://', '/')}"
            broker.put(f"{path}/partitions", PARTITIONS)
            for attempt in range(ATTEMPTS):
                start = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
                broker.put(f"{path}/subscription/{attempt}", start)
        words = ("archive", broker.service_url, broker.http_url, warm, full, messages, ATTEMPTS, folder)
        limit_s = _LIMIT_S + ATTEMPTS * messages / _RATE_MIN
        found = outcome_of("archive_job", *words, folder=contestant.folder.parent / "spark", limit_s=limit_s)
    if not found["messages"] == found["messages_max"] == messages:
        raise ArchiveFailed(f"{found['messages']:,} of {messages:,} messages are in the archive")
    size = messages * _SIZE / _MB
    values = {"archive": size / found["archive_s"], "archive-spark": size / found["copy_s"]}
    log(
        f"archive {values['archive']:,.1f} MB/s, Spark from files {values['archive-spark']:,.1f} MB/s:"
        f" ratio {values['archive'] / values['archive-spark']:.2f}, the target is {RATIO_MIN}"
    )
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=500_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="archive-bench-") as folder:
        archive_rows(Magnetar(Path(folder, "broker")), options.messages, print)


if __name__ == "__main__":
    main()

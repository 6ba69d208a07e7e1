"""Redriving dead letters, against the fastest loop with the official Python client: messages a second and their ratio.

`python benchmarks/redrive.py --messages 100000`. The loop takes turns with its ways of batching, and the best counts.
The target is a ratio of at least 3.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from contestant import Contestant, Magnetar, Running
from measurement import topic
from program import outcome_of, started
from redrive_loop import BATCHING, SUBSCRIPTION
from scale import Log, Values

RATIO_MIN = 3.0
SIZES = {1024: "redrive-1kb", 100: "redrive-100b"}

_WARM_LETTERS = 50_000  # of each size: until the JVM has compiled what it runs
_EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
_LIMIT_S = 180.0
_RATE_MIN = 500  # letters a second; slower counts as a failure


class RedriveFailed(Exception):
    """Letters are missing in their origin, or are in it twice."""


def redrive_rows(contestant: Contestant, letters: int, log: Log) -> Values:
    values: Values = {}
    folder = contestant.folder.parent / "spark"
    with contestant.started() as broker:
        side = _Letters(broker, folder)
        limit_s = _LIMIT_S + letters / _RATE_MIN
        warm = [side.publish(f"{key}-warm", _WARM_LETTERS, size) for size, key in SIZES.items()]
        origins = {key: side.publish(key, letters, size) for size, key in SIZES.items()}
        words = ("redrive", broker.service_url, broker.http_url, *warm, *origins.values())
        with started("redrive_job", *words, folder=folder) as job:
            for _ in warm:
                job.answer(limit_s)
            for key, origin in origins.items():
                values[key] = letters / job.answer(limit_s)["seconds"]
                side.check(origin, letters)
            job.end()
        for size, key in SIZES.items():
            loops = {kind: side.loop(f"{key}-{kind}", letters, size, kind) for kind in BATCHING}
            values[f"{key}-loop"] = max(loops.values())
            shown = ", ".join(f"{kind} {rate:,.0f}" for kind, rate in loops.items())
            log(
                f"redrive of letters of {size} B: {values[key]:,.0f} a second, loops by batching {shown}:"
                f" ratio {values[key] / values[f'{key}-loop']:.2f}, the target is {RATIO_MIN:g}"
            )
    return values


class _Letters:
    """Topics with dead letters on one broker."""

    def __init__(self, broker: Running, folder: Path) -> None:
        self._broker = broker
        self._folder = folder

    def publish(self, name: str, count: int, size: int) -> str:
        """The origin of new letters."""
        origin = topic(name)
        self._broker.put(_path(origin), None)
        self._broker.put(f"{_path(origin)}/subscription/{SUBSCRIPTION}", _EARLIEST)
        self._run("letters", origin, count, size)
        return origin

    def loop(self, name: str, letters: int, size: int, batching: str) -> float:
        """Letters a second."""
        origin = self.publish(name, letters, size)
        found = self._run("loop", origin, letters, batching)
        self.check(origin, letters)
        return letters / float(found["seconds"])

    def check(self, origin: str, letters: int) -> None:
        """Raises `RedriveFailed`."""
        arrived = self._broker.get(f"{_path(origin)}/stats")["msgInCounter"]
        if arrived != letters:
            raise RedriveFailed(f"{origin} received {arrived:,} messages for {letters:,} letters")

    def _run(self, load: str, origin: str, letters: int, how: object) -> dict[str, object]:
        words = (load, self._broker.service_url, origin, letters, how)
        return outcome_of("redrive_loop", *words, folder=self._folder, limit_s=_LIMIT_S + letters / _RATE_MIN)


def _path(name: str) -> str:
    return f"/admin/v2/{name.replace('://', '/')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="redrive-bench-") as folder:
        redrive_rows(Magnetar(Path(folder, "broker")), options.messages, print)


if __name__ == "__main__":
    main()

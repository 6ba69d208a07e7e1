"""The command behind `make bench`: selects and orders the rows, repeats them, and prints the table.

Apache Pulsar and Magnetar run one after the other, never together; with --repeat they alternate. Owns no figures: rows
for both are in `measurement` and `replication`, rows for Magnetar alone in `scale`, `administration`, `overview`,
`redelivery` and `spark_rows`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import measurement
import pulsar  # type: ignore[import-untyped]
import scale
from administration import administration
from contestant import ApachePulsar, Contestant, Magnetar, RequestFailed, StartFailed
from dead_letters import DeadLettersFailed
from failed_messages import FAILED_MESSAGES, FAILED_MESSAGES_FAILURES
from java import CACHE, JavaMissing, find_java
from measurement import ON_A_RUNNING_BROKER, SECURED, WITHOUT_PERF, measure_round
from overview import overview
from perf import Perf, PerfFailed
from program import ProgramFailed
from redelivery import dead_letters_by_broker, redelivery
from replication import BETWEEN_TWO, measure_pair
from replication import WITH_PERF as GEO_WITH_PERF
from scale import ScaleFailed
from secured import secured
from spark_rows import SparkFailed, spark_idle, spark_latency, spark_read, spark_write
from table import as_data, as_page, compare, render

SPARK = {
    "spark-read": spark_read,
    "spark-write": spark_write,
    "spark-latency": spark_latency,
    "spark-idle": spark_idle,
}
OURS_ONLY = {
    **scale.OURS_ONLY,
    "admin": administration,
    "overview": overview,
    "dead-letters-by-broker": dead_letters_by_broker,
    "redelivery": redelivery,
    **SPARK,
    **FAILED_MESSAGES,
}
ON_ONE = ("start", *ON_A_RUNNING_BROKER)
COMPARED = (*ON_ONE, *SECURED, *BETWEEN_TWO)
ROWS = (*COMPARED, *OURS_ONLY)
WITH_PERF = frozenset((*ON_ONE, *SECURED, "spark-read")) - WITHOUT_PERF | GEO_WITH_PERF
FAILURES = (
    ScaleFailed,
    DeadLettersFailed,
    RequestFailed,
    PerfFailed,
    ProgramFailed,
    SparkFailed,
    *FAILED_MESSAGES_FAILURES,
    pulsar.PulsarException,
)

Samples = dict[str, list[float]]


def main(arguments: Sequence[str] | None = None) -> int:
    options = argument_parser().parse_args(arguments)
    try:
        return Comparison(options).run()
    except JavaMissing as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except StartFailed as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted, all processes stopped", file=sys.stderr)
        return 130


def stop_in_order_on_signals() -> None:
    """SIGTERM and SIGHUP act like Ctrl-C: every started process is stopped."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/run", description="Measure Magnetar against Apache Pulsar.")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="ROW",
        choices=ROWS,
        default=ROWS,
        help=f"run only these rows: {', '.join(ROWS)}",
    )
    parser.add_argument("--quick", action="store_true", help="short runs; the figures are not quotable")
    parser.add_argument("--repeat", type=_rounds, default=1, metavar="N", help="rounds; the table shows medians")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table and all samples as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table as Markdown")
    parser.add_argument(
        "--journal-sync",
        action="store_true",
        help="run Apache Pulsar with journalSyncData=true, a cluster's default; standalone's default is false",
    )
    parser.add_argument("--skip-apache", action="store_true", help="measure Magnetar alone")
    parser.add_argument(
        "--folder",
        type=Path,
        default=CACHE / "bench",
        metavar="DIR",
        help="data and logs, default .cache/bench",
    )
    return parser


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


class Comparison:
    def __init__(self, options: argparse.Namespace) -> None:
        self.rows = [row for row in ROWS if row in options.only]
        self.compared = [row for row in self.rows if row in COMPARED]
        self.effort = measurement.QUICK if options.quick else measurement.FULL
        self.scale = scale.QUICK if options.quick else scale.FULL
        self.quick: bool = options.quick
        self.rounds: int = options.repeat
        self.json: Path | None = options.json
        self.markdown: Path | None = options.markdown
        self.journal_sync: bool = options.journal_sync
        self.with_apache: bool = bool(self.compared) and not options.skip_apache
        self.with_perf = any(row in WITH_PERF for row in self.rows)
        self.folder: Path = options.folder.resolve()
        self.apache: Samples = defaultdict(list)
        self.magnetar: Samples = defaultdict(list)
        self.failures: list[str] = []

    def run(self) -> int:
        began = time.monotonic()
        if self.with_apache or self.with_perf:
            find_java()  # fails before anything is measured
        setting = self._setting()
        print("\n".join(f"{key}: {value}" for key, value in setting.items()), flush=True)
        for number in range(self.rounds):
            self._round(number)
        lines = compare(self.apache, self.magnetar)
        print(f"\n{render(lines)}\n\nA ratio above 1 favours Magnetar. Took {time.monotonic() - began:.0f} s.")
        for failure in self.failures:
            print(f"failed: {failure}", file=sys.stderr)
        if self.json is not None:
            samples = {"apache": self.apache, "magnetar": self.magnetar}
            document = {"setting": setting, "table": as_data(lines), "samples": samples, "failures": self.failures}
            self.json.write_text(json.dumps(document, indent=2) + "\n")
        if self.markdown is not None:
            self.markdown.write_text(as_page(lines, setting, self.command()))
        return 1 if self.failures else 0

    def _setting(self) -> dict[str, str]:
        memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        release = platform.release().split("-")[0]
        setting = {
            "machine": f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {platform.system()} {release}",
            "Magnetar": f"every acknowledged message is fsynced, Python {platform.python_version()}",
        }
        if self.with_apache:
            sync = "true, fsynced" if self.journal_sync else "false, the standalone default, not fsynced"
            version = find_java().pulsar_version
            setting["Apache Pulsar"] = f"{version} standalone, -Xmx2g with ZGC, journalSyncData={sync}"
        if self.with_perf:
            setting["load"] = "pulsar-perf on the same machine"
        if any(row in SPARK or row in FAILED_MESSAGES for row in self.rows):
            setting["Spark"] = f"{_version('pyspark')}, official Python client {_version('pulsar-client')}"
        if self.quick:
            setting["quick"] = "short runs, figures not quotable"
        return setting

    def command(self) -> str:
        """The command that reproduces the table."""
        words = ["--quick"] if self.quick else []
        words += ["--only", *self.rows] if len(self.rows) < len(ROWS) else []
        words += ["--repeat", str(self.rounds)] if self.rounds > 1 else []
        words += ["--journal-sync"] if self.journal_sync else []
        words += ["--skip-apache"] if self.compared and not self.with_apache else []
        return f'make bench ARGS="{" ".join(words)}"' if words else "make bench"

    def _round(self, number: int) -> None:
        if self.with_apache:
            folder = self.folder / "apache-pulsar"
            apache = ApachePulsar(folder, find_java(), journal_sync=self.journal_sync)
            self._announce(number, apache)
            with discarding_data(apache):
                self._compared_rows(apache, self.apache)
        magnetar = Magnetar(self.folder / "magnetar")
        self._announce(number, magnetar)
        with discarding_data(magnetar):
            if self.compared:
                self._compared_rows(magnetar, self.magnetar)
            self._rows_of_ours(magnetar)

    def _announce(self, number: int, contestant: Contestant) -> None:
        _log(f"round {number + 1} of {self.rounds}: {contestant.name}")

    def _compared_rows(self, contestant: Contestant, samples: Samples) -> None:
        perf = Perf(find_java, self.folder / "perf" / contestant.folder.name)
        if any(row in ON_ONE for row in self.compared):
            self._rows_on_one(contestant, perf, samples)
        if rows := [SECURED[row] for row in self.compared if row in SECURED]:
            self._secured_rows(secured(contestant), rows, samples)
        if between_two := [row for row in self.compared if row in BETWEEN_TWO]:
            values = measure_pair(contestant, perf, self.effort, between_two, _log, self.failures.append)
            for key, value in values.items():
                samples[key].append(value)

    def _rows_on_one(self, contestant: Contestant, perf: Perf, samples: Samples) -> None:
        on_running = [row for row in self.compared if row in ON_A_RUNNING_BROKER]
        values = measure_round(contestant, perf, self.effort, on_running, _log, self.failures.append)
        if "start" not in self.compared:
            del values["start-binary"], values["start-http"]
        elif isinstance(contestant, Magnetar):
            self._start_again(contestant, samples)
        for key, value in values.items():
            samples[key].append(value)

    def _secured_rows(self, contestant: Contestant, rows: Sequence[str], samples: Samples) -> None:
        perf = Perf(find_java, self.folder / "perf" / contestant.folder.name)
        with discarding_data(contestant):
            values = measure_round(contestant, perf, self.effort, rows, _log, self.failures.append)
        for row in rows:
            if row in values:
                samples[f"secured-{row}"].append(values[row])

    def _rows_of_ours(self, magnetar: Contestant) -> None:
        for row in self.rows:
            if row not in OURS_ONLY:
                continue
            try:
                values = OURS_ONLY[row](magnetar, self.scale, _log)
            except (*FAILURES, OSError) as error:
                self.failures.append(f"{magnetar.name}, {row}: {error or type(error).__name__}")
                continue
            for key, value in values.items():
                self.magnetar[key].append(value)

    def _start_again(self, contestant: Contestant, samples: Samples) -> None:
        """Repeats starts that take a fraction of a second; the median covers all of them."""
        for _ in range(self.effort.starts - 1):
            with contestant.started() as broker:
                samples["start-binary"].append(broker.binary_s)
                samples["start-http"].append(broker.http_s)


@contextlib.contextmanager
def discarding_data(contestant: Contestant) -> Iterator[None]:
    """Deletes gigabytes of data after the block and keeps the logs."""
    try:
        yield
    finally:
        contestant.discard_data()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _log(line: str) -> None:
    print(f"  {line}", flush=True)

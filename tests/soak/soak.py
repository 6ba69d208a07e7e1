"""One soak: a broker process, the vandal's process, the load, and the report of what happened."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

from tests.crash.killable import KillableBroker

from .load import Load, Size
from .report import Report

_ROOT = Path(__file__).parents[2]
_STOP_TIMEOUT_S = 60.0
_SAMPLES = 200


def soak(folder: Path, size: Size, *, seed: int, vandal_per_s: float, entries: int = 0, seconds: float = 0.0) -> Report:
    """Publishes `entries` entries, or for some seconds at the rate of `size`."""
    log = folder / "broker.log"
    broker = KillableBroker(folder / "data", ("logFormat=json",), log=log)
    broker.start()
    try:
        port = urlsplit(broker.service_url).port or 0
        report = Report(wanted_per_s=0 if entries else size.messages_per_s)
        with _vandal(port, seed, vandal_per_s) as vandal:
            asyncio.run(_run(report, Load(port, size, seed), size, broker.process_id, entries, seconds))
            _end(vandal, report)
    finally:
        broker.kill()
    report.faults = faults_in(log.read_text(encoding="utf-8"))
    return report


def faults_in(log: str) -> list[str]:
    """Unexpected errors in a broker's log; what is not a line of it, such as a crash of a library, is one too."""
    found = []
    for line in log.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            found.append(line)
            continue
        if "traceback" in event or event["level"] == "error":
            found.append(event["message"])
    return found


async def _run(report: Report, load: Load, size: Size, process_id: int, entries: int, seconds: float) -> None:
    started = monotonic()
    await load.open()
    report.opened_s = monotonic() - started
    sampling = asyncio.create_task(_sample(report, process_id, seconds / _SAMPLES)) if seconds else None
    report.seconds = await load.publish(entries=entries, seconds=seconds)
    if sampling is not None:
        sampling.cancel()
    await load.drain()
    report.messages = load.tally.distinct * size.messages_per_entry
    latencies = load.tally.latencies
    report.p50_ms, report.p99_ms = latencies.percentile_ms(0.5), latencies.percentile_ms(0.99)
    report.largest_ms = latencies.largest_ms
    report.reconnected_s = await load.reconnect_all()
    report.lost = len(load.tally.lost()) + load.tally.total - load.tally.receipts
    report.repeated = load.tally.deliveries - load.tally.distinct
    report.changes = load.changes
    report.lost_connections = load.lost_connections
    report.errors = load.errors
    load.close()


async def _sample(report: Report, process_id: int, every_s: float) -> None:
    started = monotonic()
    while True:
        await asyncio.sleep(every_s)
        report.memory.append((monotonic() - started, _memory_mb(process_id)))


def _memory_mb(process_id: int) -> float:
    """Resident memory of the broker."""
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no line VmRSS")


@contextlib.contextmanager
def _vandal(port: int, seed: int, frames_per_s: float) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.soak.vandal_process", str(port), str(seed), str(frames_per_s)]
    process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in filter(None, (process.stdin, process.stdout)):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _end(vandal: subprocess.Popen[str], report: Report) -> None:
    output, _ = vandal.communicate("end\n", timeout=_STOP_TIMEOUT_S)
    if output:
        counts = json.loads(output)
        report.vandal_frames, report.vandal_thrown_out = counts["frames"], counts["thrown_out"]

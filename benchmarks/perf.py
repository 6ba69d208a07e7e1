"""pulsar-perf, Apache Pulsar's load generator: runs it and parses its log."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from contestant import Running
from java import Java
from process import running, tail

MAIN_CLASS = "org.apache.pulsar.testclient.PulsarPerfTestTool"
TOKEN_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
MEMORY = ("-Xmx1g", "-XX:MaxDirectMemorySize=1g")
INTERVAL_S = 10  # interval of the throughput lines, fixed in pulsar-perf
_PATIENCE_S = 120.0
_ASK_S = 0.5

_NUMBER = r"\s*([\d.,]+)"
_THROUGHPUT = re.compile(rf"Throughput (?:produced|received):{_NUMBER} msg ---{_NUMBER}\s+msg/s")
_AGGREGATED = re.compile(rf"Aggregated throughput stats ---{_NUMBER} records (?:sent|received) ---{_NUMBER} msg/s")
_LATENCY = re.compile(
    rf"Aggregated latency stats --- Latency: mean:{_NUMBER} ms - med:{_NUMBER} - 95pct:{_NUMBER} - 99pct:{_NUMBER}"
)


class PerfFailed(Exception):
    """pulsar-perf failed; the text ends with its log."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Results of one run of pulsar-perf."""

    interval_rates: tuple[float, ...]  # messages per second, one value per ten seconds
    messages: int
    rate: float
    latency_p50_ms: float
    latency_p99_ms: float

    @property
    def warm_rate(self) -> float:
        """Mean rate without the first ten seconds, in which both JVMs compile their code."""
        warm = self.interval_rates[1:]
        if not warm:
            raise PerfFailed(f"pulsar-perf reported {len(self.interval_rates)} intervals, at least 2 are needed")
        return sum(warm) / len(warm)


class Perf:
    """Runs pulsar-perf against a broker and keeps its logs in `folder`."""

    def __init__(self, java: Callable[[], Java], folder: Path) -> None:
        self._java = java
        self._folder = folder
        self._runs = 0

    def produce(self, broker: Running, topic: str, *options: str, limit_s: float) -> Figures:
        return parse(self._run(broker, "produce", topic, options, limit_s, _never))

    def consume(
        self, broker: Running, topic: str, *options: str, limit_s: float, enough: Callable[[], bool]
    ) -> Figures:
        """Runs until `enough`, called every half second, returns true."""
        return parse(self._run(broker, "consume", topic, options, limit_s, enough))

    def _run(
        self,
        broker: Running,
        verb: str,
        topic: str,
        options: tuple[str, ...],
        limit_s: float,
        enough: Callable[[], bool],
    ) -> Path:
        """Runs pulsar-perf and returns its log."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._runs += 1
        settings = self._folder / "client.conf"
        lines = [f"brokerServiceUrl={broker.service_url}/", f"webServiceUrl={broker.http_url}/"]
        if broker.login is not None:
            lines += [f"authPlugin={TOKEN_PLUGIN}", f"authParams=token:{broker.login.token}"]
            lines += [f"tlsTrustCertsFilePath={broker.login.authority}", "tlsEnableHostnameVerification=true"]
        settings.touch(0o600)
        settings.write_text("".join(f"{line}\n" for line in lines))
        log = self._folder / f"{self._runs:03}-{verb}.log"
        log.write_bytes(b"")
        command = self._java().command(MEMORY, MAIN_CLASS, str(settings), verb, *options, topic)
        until = time.monotonic() + limit_s + _PATIENCE_S
        with running(command, log) as process:
            while not _ended(process) and not enough():
                if time.monotonic() > until:
                    raise PerfFailed(
                        f"pulsar-perf {verb} was still running after {limit_s + _PATIENCE_S:.0f} s; "
                        f"its log ends with:\n{tail(log)}"
                    )
        return log


def _never() -> bool:
    return False


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process exits within a short wait."""
    try:
        process.wait(_ASK_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def parse(log: Path) -> Figures:
    """Parses a log with a summary, which pulsar-perf prints when it ends or is stopped."""
    text = log.read_text(errors="replace")
    aggregated = _AGGREGATED.search(text)
    if aggregated is None:
        raise PerfFailed(f"pulsar-perf reported nothing; its log ends with:\n{tail(log)}")
    if not _number(aggregated[1]):
        raise PerfFailed(f"pulsar-perf sent or received no message; its log ends with:\n{tail(log)}")
    latency = _LATENCY.search(text)
    return Figures(
        interval_rates=tuple(_number(found[2]) for found in _THROUGHPUT.finditer(text)),
        messages=int(_number(aggregated[1])),
        rate=_number(aggregated[2]),
        latency_p50_ms=_number(latency[2]) if latency else 0.0,
        latency_p99_ms=_number(latency[4]) if latency else 0.0,
    )


def _number(text: str) -> float:
    return float(text.replace(",", ""))

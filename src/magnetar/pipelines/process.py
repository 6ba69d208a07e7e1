"""The process that replicates: starts a Spark session, runs a pipeline on it, and ends when it is told to.

It is told by SIGTERM, SIGINT, or the end of its stdin, which a broker that starts it holds: a broker that was killed
takes its pipelines along. Owns the life of the process and what it prints. It keeps nothing, so it may be killed at any
time and started anywhere.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

import magnetar.spark
from magnetar.client import Security
from magnetar.errors import MagnetarError
from magnetar.pipelines.declared_sources import DeclaringSource, Source
from magnetar.pipelines.replicate.driver import Pipeline, PipelineFailed
from magnetar.security.credentials import token_settings

log = logging.getLogger("magnetar.pipelines")
spark_log = logging.getLogger("magnetar.pipelines.spark")

TOKEN_VARIABLE = "MAGNETAR_TOKEN"
TRUST_VARIABLE = "MAGNETAR_TRUST_CERTS"

_FORMAT = "%(asctime)s %(levelname)s pipelines: %(message)s"
_LAST_LINES = 30
_END_S = 15.0  # then the process ends, whatever Spark still does

SETTINGS: dict[str, Any] = {
    "spark.scheduler.mode": "FAIR",  # a job that filters for long does not hold up the small ones
    "spark.log.level": "ERROR",
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m magnetar.pipelines", description="Replicates topics.")
    parser.add_argument("--url", required=True, help="the HTTP address of the source broker")
    parser.add_argument("--service-url", help="its binary address; asked for if missing")
    parser.add_argument("--master", help="the Spark master")
    parser.add_argument("--retry-max", type=float, default=10.0, help="the longest back-off, in seconds")
    parser.add_argument("--until-stdin-ends", action="store_true", help="end with whoever holds the other end of stdin")
    given = parser.parse_args(arguments)
    return run(
        lambda: DeclaringSource(given.url, service_url=given.service_url, security=_security(given.url)),
        master=given.master,
        retry_max_s=given.retry_max,
        until_stdin_ends=given.until_stdin_ends,
    )


def _security(url: str) -> Security | None:
    """Of the environment, which no list of processes shows. It may be meant for other clusters, which are encrypted."""
    token, trust = os.environ.get(TOKEN_VARIABLE), os.environ.get(TRUST_VARIABLE)
    if not url.startswith("https:"):
        trust = None
    if not token and not trust:
        return None
    settings: dict[str, Any] = dict(token_settings(token)) if token else {}
    return Security(trust_certs_file=trust or None, **settings)


def run(
    open_source: Callable[[], Source],
    *,
    master: str | None,
    retry_max_s: float = 10.0,
    until_stdin_ends: bool = False,
) -> int:
    """Returns the exit code when the process was told to end, or cannot go on."""
    _log_to_stderr()
    is_told = threading.Event()

    def end(*_: object) -> None:
        is_told.set()
        _end_soon()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    if until_stdin_ends:
        threading.Thread(target=_watch_stdin, args=(is_told,), name="stdin", daemon=True).start()
    try:
        source = open_source()
        spark = _session(master)
    except MagnetarError as error:
        log.error("%s", error)
        return 1
    try:
        return 0 if is_told.is_set() else _replicate(spark, source, is_told, retry_max_s)
    finally:
        _end_soon()
        with suppress(Py4JError, OSError):  # the JVM may be what ended
            spark.stop()


def _replicate(spark: SparkSession, source: Source, is_told: threading.Event, retry_max_s: float) -> int:
    pipeline = Pipeline(spark, source, retry_max_s=retry_max_s)
    pipeline.start()
    log.info("replicating from %s on %s", source.endpoint.admin_url, spark.sparkContext.master)
    try:
        while not is_told.wait(0.5):  # signals are handled between waits
            pipeline.wait(0)
    except PipelineFailed as error:
        log.error("%s", error)
        return 1
    finally:
        _end_soon()
        pipeline.stop()
    log.info("stopped")
    return 0


def _watch_stdin(is_told: threading.Event) -> None:
    while os.read(0, 1024):
        pass
    is_told.set()
    _end_soon()


def _end_soon() -> None:
    """Nothing is lost by it: what is copied is acknowledged, and all else is copied again."""
    timer = threading.Timer(_END_S, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _log_to_stderr() -> None:
    """To where stderr is now, for Spark is given another one."""
    logging.basicConfig(stream=os.fdopen(os.dup(2), "w", buffering=1), format=_FORMAT, level=logging.WARNING)
    logging.getLogger("magnetar").setLevel(logging.INFO)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # whoever called it gets the error, and says it in one line


def _session(master: str | None) -> SparkSession:
    with _captured_stderr() as lines:
        try:
            return magnetar.spark.session(master, app_name="magnetar pipelines", **SETTINGS)
        except MagnetarError:
            raise
        except Exception as error:
            for line in lines:
                log.error("spark: %s", line)
            raise PipelineFailed(f"Spark did not start: {error}") from error


@contextmanager
def _captured_stderr() -> Iterator[deque[str]]:
    """What the JVM that starts inside of the block prints, for as long as it lives: of use only if something fails."""
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    read_end, write_end = os.pipe()
    before = os.dup(2)
    threading.Thread(target=_drain, args=(read_end, lines), name="spark-log", daemon=True).start()
    sys.stderr.flush()
    os.dup2(write_end, 2)
    os.close(write_end)
    try:
        yield lines
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


def _drain(read_end: int, lines: deque[str]) -> None:
    with os.fdopen(read_end, errors="replace") as stream:
        for line in stream:
            lines.append(line.rstrip())
            spark_log.debug("%s", line.rstrip())

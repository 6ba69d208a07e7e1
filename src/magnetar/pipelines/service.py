"""The pipelines process: starts Spark, runs verbs on it, and ends with a signal or without a broker.

A broker that starts the process holds its stdin, see `lifeline`. Owns the life of the process. It
may be killed at any time and started anywhere: it keeps no state, except for what a verb remembers beside the log of
Spark. It knows no verb.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from magnetar.client import Security
from magnetar.errors import MagnetarError
from magnetar.pipelines import lifeline
from magnetar.pipelines.declared_sources import DeclaringBroker
from magnetar.pipelines.handed import Handed
from magnetar.pipelines.jobs import SparkFailed
from magnetar.pipelines.output import Output, capture
from magnetar.security.pulsar_parameters import token_settings
from magnetar.spark.runtime import start
from magnetar.spark.runtime.archiving import Archiving

log = logging.getLogger("magnetar.pipelines")

TOKEN_VARIABLE = "MAGNETAR_TOKEN"
TRUST_VARIABLE = "MAGNETAR_TRUST_CERTS"

LOG_DEFAULT = Output()
_LOOK_S = 0.1
_END_S = 15.0  # then the process exits, even if Spark does not stop

SETTINGS: dict[str, Any] = {
    "spark.scheduler.mode": "FAIR",  # a long query does not block small jobs
    "spark.log.level": "ERROR",
    "spark.python.daemon.module": "magnetar.pipelines.worker_daemon",
}


class Verb(Protocol):
    """One verb at work on one source."""

    def open(self) -> None:
        """While Spark starts: connects, and prepares what needs no Spark. Raises `MagnetarError`."""
        ...

    def start(self, context: SparkContext) -> None: ...

    def check(self) -> None:
        """Raises `SparkFailed` when it cannot go on."""
        ...

    def stop(self) -> None: ...


class DeclaredVerb(Protocol):
    """Creates a verb for the records that a broker declares. What the next process must know is in `folder`; without
    one, nothing is remembered."""

    def __call__(self, broker: DeclaringBroker, retry_max_s: float, folder: Path | None = None) -> Verb: ...


def main(verbs: Sequence[DeclaredVerb], arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m magnetar.pipelines", description="Run the pipelines of a broker.")
    parser.add_argument("--url", required=True, help="HTTP address of the broker")
    parser.add_argument("--service-url", help="its binary address; default: by lookup")
    parser.add_argument("--master", help="Spark master")
    parser.add_argument("--trust-certs", help="file of the authorities that sign its certificate")
    parser.add_argument("--retry-max", type=float, default=10.0, help="longest back-off, in seconds")
    parser.add_argument("--log-level", default=LOG_DEFAULT.level)
    parser.add_argument("--log-format", default=LOG_DEFAULT.form)
    parser.add_argument("--spark-log", type=Path, help="file for the output of Spark")
    parser.add_argument("--linger", type=float, metavar="SECONDS", help="end this long after stdin is closed")
    given = parser.parse_args(arguments)
    handed = None if given.linger is None else Handed()
    broker = DeclaringBroker(given.url, given.service_url, _security(given.url, given.trust_certs, handed), handed)
    folder = None if given.spark_log is None else given.spark_log.parent
    return run(
        [create(broker, given.retry_max, folder) for create in verbs],
        master=given.master,
        output=Output(given.log_level, given.log_format, given.spark_log),
        linger_s=given.linger or 0.0,
        handed=handed,
    )


def _security(url: str, trust: str | None = None, handed: Handed | None = None) -> Security | None:
    """A broker hands its token over. A process without a broker takes one from the environment, which no list of
    processes shows. Certificates are ignored for a plain address."""
    token, trust = os.environ.get(TOKEN_VARIABLE), trust or os.environ.get(TRUST_VARIABLE)
    if not url.startswith("https:"):
        trust = None
    if handed is not None:
        return Security(trust_certs_file=trust or None, token_supplier=handed.token)
    if not token and not trust:
        return None
    settings: dict[str, Any] = dict(token_settings(token)) if token else {}
    return Security(trust_certs_file=trust or None, **settings)


def run(
    verbs: Sequence[Verb],
    *,
    master: str | None,
    output: Output = LOG_DEFAULT,
    linger_s: float = 0.0,
    handed: Handed | None = None,
) -> int:
    """Runs until a signal; with `handed`, which the broker fills, until stdin was closed for `linger_s` seconds.
    Returns the exit code."""
    printed = capture(output)
    is_over = threading.Event()

    def end(*_: object) -> None:
        is_over.set()
        if handed is not None:
            handed.end()
        _end_soon()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    if handed is not None:
        lifeline.watch(linger_s, end, handed)
    starting = _Starting(master, printed)
    try:
        for verb in verbs:
            verb.open()
        context = starting.wait(is_over)
    except MagnetarError as error:
        log.error("%s", error)
        _stop(verbs)
        return 1
    if context is None:
        _stop(verbs)
        return 0
    archiving = Archiving(SETTINGS)
    archiving.begin()
    try:
        return _run_on(context, verbs, is_over)
    finally:
        _end_soon()
        archiving.end()
        with suppress(Py4JError, OSError):  # the JVM may be gone
            context.stop()


class _Starting:
    """Spark, which starts in a thread: a JVM takes seconds, in which verbs connect."""

    def __init__(self, master: str | None, printed: deque[str]) -> None:
        self._is_over = threading.Event()
        self._context: SparkContext | None = None
        self._failure: Exception | None = None
        threading.Thread(target=self._start, args=(master, printed), name="spark", daemon=True).start()

    def _start(self, master: str | None, printed: deque[str]) -> None:
        try:
            self._context = _context(master, printed)
        except Exception as error:  # raised by `wait`
            self._failure = error
        self._is_over.set()

    def wait(self, is_over: threading.Event) -> SparkContext | None:
        """None if the process ends before. Raises `MagnetarError`."""
        while not self._is_over.wait(_LOOK_S):  # signals are handled between waits
            if is_over.is_set():
                return None
        if self._failure is not None:
            raise self._failure
        return self._context


def _stop(verbs: Sequence[Verb]) -> None:
    _end_soon()
    for verb in verbs:
        verb.stop()


def _run_on(context: SparkContext, verbs: Sequence[Verb], is_over: threading.Event) -> int:
    try:
        for verb in verbs:
            verb.start(context)
        while not is_over.wait(_LOOK_S):
            for verb in verbs:
                verb.check()
    except SparkFailed as error:
        log.error("%s", error)
        return 1
    finally:
        _stop(verbs)
    log.info("stopped")
    return 0


def _end_soon() -> None:
    """Loses nothing: verbs acknowledge what is done, and the next process does the rest."""
    timer = threading.Timer(_END_S, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _context(master: str | None, printed: deque[str]) -> SparkContext:
    try:
        return start.context(master, app_name="magnetar pipelines", **SETTINGS)
    except MagnetarError:
        raise
    except Exception as error:
        for line in list(printed):
            log.error("spark: %s", line)
        raise SparkFailed(f"Spark did not start: {error}") from error

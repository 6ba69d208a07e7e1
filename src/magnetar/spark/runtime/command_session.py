"""The Spark session of one command: quiet, quick to start, and stopped at its end.

What the JVM prints while it starts is shown only if it does not start. Knows nothing of topics.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from pyspark.sql import SparkSession

from magnetar.errors import MagnetarError
from magnetar.spark.runtime.start import session

SETTINGS: dict[str, Any] = {
    "spark.log.level": "OFF",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
"""For short work: the quick compiler, and few tasks after a shuffle."""

_LOG_SHOWN = 2000


class SparkNotStarted(MagnetarError):
    """The text has the end of what Spark printed."""


@contextmanager
def command_session(master: str | None, name: str, *, is_short: bool = True) -> Iterator[SparkSession]:
    """A running session is used as it is, and left running. A command that is not `is_short` has Spark's own compiler
    settings. Raises `SparkNotStarted`."""
    logging.getLogger("SQLQueryContextLogger").disabled = True  # errors are shown, in one sentence
    is_own = SparkSession.getActiveSession() is None
    settings = dict(SETTINGS) if is_own else {}
    if not is_short:
        settings.pop("spark.driver.extraJavaOptions", None)
    with tempfile.TemporaryFile() as log:
        try:
            with _stderr_to(log):
                spark = session(master, name, **settings)
        except Exception as error:
            log.seek(0)
            text = log.read()[-_LOG_SHOWN:].decode(errors="replace").strip()
            raise SparkNotStarted(f"Spark does not start: {error}" + (f"\n{text}" if text else "")) from error
        try:
            yield spark
        finally:
            if is_own:
                with _stderr_to(log):
                    spark.stop()


@contextmanager
def _stderr_to(file: IO[bytes]) -> Iterator[None]:
    """The file descriptor, which a JVM that is started meanwhile inherits."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)

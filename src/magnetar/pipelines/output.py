"""Output of the pipelines process: our own lines in the log on stderr, what Spark and its JVM print in a file.

The file is bounded: it is renamed at `FILE_BYTES_MAX`, and one older file is kept. The last lines are remembered, for
the report of a start that failed.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path

from magnetar.log.output import write_log

log = logging.getLogger("magnetar.pipelines")

FILE_BYTES_MAX = 5 << 20
LAST_LINES = 30


@dataclass(frozen=True)
class Output:
    """`spark_log` is the file for the output of Spark; the default is one in the folder for temporary files."""

    level: str = "info"
    form: str = "text"
    spark_log: Path | None = None


def capture(output: Output) -> deque[str]:
    """Starts the log, and sends stderr to the file from now on; returns the last lines of it as they come."""
    write_log(os.fdopen(os.dup(2), "w", buffering=1), level=output.level, form=output.form)
    threading.excepthook = _on_thread_failure
    path = output.spark_log or Path(tempfile.mkdtemp(prefix="magnetar-spark-"), "spark.log")
    if output.spark_log is None:  # otherwise it is known to the broker, which logged it
        log.info("Spark and its JVM write to %s", path)
    lines: deque[str] = deque(maxlen=LAST_LINES)
    read_end, write_end = os.pipe()
    threading.Thread(target=_drain, args=(read_end, _file(path), lines), name="spark-output", daemon=True).start()
    sys.stderr.flush()
    os.dup2(write_end, 2)
    os.close(write_end)
    return lines


@contextmanager
def held_back() -> Iterator[None]:
    """Holds stderr back, also that of a JVM that starts inside the block, for good; prints it if the block fails."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        except BaseException:
            file.seek(0)
            os.write(before, file.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)


class _BoundedFile(RotatingFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk loses the line. Printed to stderr, the error would come back here."""


def _file(path: Path) -> logging.Handler:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _BoundedFile(path, maxBytes=FILE_BYTES_MAX, backupCount=1, encoding="utf-8", errors="replace")
    except OSError as error:
        log.warning("output of Spark is lost, %s cannot be written: %s", path, error.strerror)
        return logging.NullHandler()


def _drain(read_end: int, file: logging.Handler, lines: deque[str]) -> None:
    with os.fdopen(read_end, errors="replace") as stream:
        for line in stream:
            lines.append(line.rstrip())
            file.emit(logging.LogRecord("spark", logging.INFO, "", 0, line.rstrip(), None, None))


def _on_thread_failure(failure: threading.ExceptHookArgs) -> None:
    """One line instead of a traceback: when the JVM is gone, several threads fail at once."""
    if failure.exc_type is not SystemExit:
        name = failure.thread.name if failure.thread is not None else "?"
        log.warning("thread %s ended: %s: %s", name, failure.exc_type.__name__, failure.exc_value)

"""The output of the log: one handler for our lines and those of libraries, on one stream.

Owns which loggers are heard, and writes at most so many lines of each kind. Installed by the programs (`magnetar
standalone`, the pipelines process), never by the library: a broker in a test stays quiet.
"""

from __future__ import annotations

import logging
import threading
from typing import TextIO

from magnetar.bounds import LOG_LINES
from magnetar.log.events import SUPPRESSED, Occurrence
from magnetar.log.limit import WINDOW_S, LineLimit
from magnetar.log.line import JsonLine, TextLine, level_name

PER_MINUTE = LOG_LINES.limit
"""Lines of a kind that is no event."""

_SILENT = ("py4j",)  # what it logs is raised too, and logged by the caller in one line


class LogHandler(logging.Handler):
    """Writes lines to a stream. A stream that fails loses the line, not the broker."""

    def __init__(self, stream: TextIO, form: str) -> None:
        super().__init__()
        self.setFormatter(JsonLine() if form == "json" else TextLine())
        self._stream = stream
        self._limit = LineLimit()
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "root" and "py4j" in record.pathname:  # it logs there what it raises
            return
        self._report_suppressed(record.created)
        kind, per_minute = _kind_of(record)
        if self._limit.admits(kind, per_minute, record.created):
            self._write(record)
        elif self._timer is None:  # reports the count even if nothing else is logged
            self._timer = threading.Timer(WINDOW_S, self._window_over)
            self._timer.daemon = True
            self._timer.start()

    def _window_over(self) -> None:
        self.acquire()
        try:
            self._timer = None
            self._report_suppressed(None)
        finally:
            self.release()

    def _report_suppressed(self, now_s: float | None) -> None:
        for kind, count in self._limit.take_suppressed(now_s):
            values = {"count": count, "kind": kind, "seconds": int(WINDOW_S)}
            message = Occurrence(SUPPRESSED, values)
            self._write(logging.LogRecord("magnetar.event.log", SUPPRESSED.level, "", 0, message, None, None))

    def _write(self, record: logging.LogRecord) -> None:
        try:
            self._stream.write(self.format(record) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass  # closed, or its disk is full

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._window_over()
        super().close()


def _kind_of(record: logging.LogRecord) -> tuple[str, int]:
    """Of our own lines the place that writes them; of a library's, which may put values into its text, the logger."""
    if isinstance(record.msg, Occurrence):
        return record.msg.event.name, record.msg.event.per_minute
    if record.name.startswith("magnetar"):
        return f"{record.name.removeprefix('magnetar.')}:{record.lineno}", PER_MINUTE
    return f"{record.name} {level_name(record.levelno)}", PER_MINUTE


def write_log(stream: TextIO, *, level: str, form: str) -> LogHandler:
    """Sends the log of this process to a stream: our own lines from `level` on, those of libraries from warnings on.

    `level` and `form` are values of the settings `logLevel` and `logFormat`.
    """
    stop_log()
    root = logging.getLogger()
    handler = LogHandler(stream, form)
    root.addHandler(handler)
    ours = getattr(logging, level.upper())
    root.setLevel(max(ours, logging.WARNING))
    logging.getLogger("magnetar").setLevel(ours)
    for name in _SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return handler


def stop_log() -> None:
    """Undoes `write_log`; the counts of lines that were not written are written first."""
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, LogHandler)]:
        root.removeHandler(handler)
        handler.close()
        root.setLevel(logging.WARNING)
        logging.getLogger("magnetar").setLevel(logging.NOTSET)

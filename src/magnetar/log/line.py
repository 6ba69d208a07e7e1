"""Lines of the log: a record as text or as a JSON object, always one line.

Owns the names of the fields and the form of the time: RFC 3339 in UTC with milliseconds.
"""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from pathlib import Path

from magnetar.bounds import LOG_TEXT, LOG_TRACEBACK
from magnetar.log.events import Occurrence, bounded

TEXT_MAX = LOG_TEXT.limit
"""Characters of a message that is no event."""

TRACEBACK_MAX = LOG_TRACEBACK.limit
_FRAMES = 8  # the innermost, of an unexpected error in a text log

FIELDS = {
    "time": "Time of the event, UTC, RFC 3339 with milliseconds.",
    "level": "`debug`, `info`, `warning` or `error`.",
    "component": "Part of the broker, or the library that wrote the line.",
    "event": "Name of the event, one of the table below; missing in other lines.",
    "message": "The same as a sentence, as in a text log.",
    "traceback": "Of an unexpected error, which is a bug: where it came from.",
}
"""Fields that every JSON line may have. The fields of an event are added to them."""


def level_name(number: int) -> str:
    return logging.getLevelName(number).lower() if number < logging.CRITICAL else "error"


def component_of(record: logging.LogRecord) -> str:
    """The component of an event; of other lines the first part of the logger's name, without ours."""
    if isinstance(record.msg, Occurrence):
        return record.msg.event.component
    return record.name.removeprefix("magnetar.").partition(".")[0]


def time_of(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head = f"{time_of(record)} {level_name(record.levelno).upper():<7} {component_of(record)}: "
        return head + message_of(record) + _origin(record)


class JsonLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": time_of(record),
            "level": level_name(record.levelno),
            "component": component_of(record),
        }
        if isinstance(record.msg, Occurrence):
            line["event"] = record.msg.event.name
        line["message"] = message_of(record)
        if isinstance(record.msg, Occurrence):
            line |= {name: _value(value) for name, value in record.msg.values.items()}
        if record.exc_info and record.exc_info[0] is not None:
            line["traceback"] = "".join(traceback.format_exception(*record.exc_info))[-TRACEBACK_MAX:]
        return json.dumps(line)


def message_of(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except (TypeError, ValueError, KeyError):  # a library's own mistake must not cost the line
        text = str(record.msg)
    return bounded(text, TEXT_MAX)


def _value(value: object) -> object:
    return value if isinstance(value, bool | int | float) or value is None else bounded(str(value))


def _origin(record: logging.LogRecord) -> str:
    """An unexpected error on one line: its text and the innermost frames."""
    if not record.exc_info or record.exc_info[1] is None:
        return ""
    error = record.exc_info[1]
    frames = traceback.extract_tb(record.exc_info[2])[-_FRAMES:]
    path = " > ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)
    return f": {type(error).__name__}: {bounded(str(error))} [{bounded(path, TEXT_MAX)}]"

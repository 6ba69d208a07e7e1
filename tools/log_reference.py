"""Generates docs/log.md: `python -m tools.log_reference > docs/log.md`.

Owns the text; events, fields and limits come from `magnetar.log`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

from magnetar.log.events import EVENTS, VALUE_MAX
from magnetar.log.limit import WINDOW_S
from magnetar.log.line import FIELDS
from magnetar.log.output import PER_MINUTE
from magnetar.pipelines.output import FILE_BYTES_MAX

_INTRODUCTION = """\
# Log

`magnetar standalone` and its pipelines process write one log to stderr, one line for each event, as text or as JSON:

```
magnetar standalone --log-format json --log-level warning
```

The same as settings: `logFormat=json`, `logLevel=warning`. Levels are `debug`, `info` (the default), `warning` and
`error`. The banner and the line `ready …` go to stdout. A broker of `magnetar.testing` writes no log; its events go to
Python's `logging`, to loggers below `magnetar.event`.

```
2026-11-18T01:20:31.042Z INFO    server: Magnetar 0.1 of cluster standalone serves pulsar://127.0.0.1:6650 and …
2026-11-18T01:20:40.513Z WARNING session: subscription s of persistent://public/default/t refused for 10.0.0.9:51342 …
2026-11-18T01:21:07.380Z INFO    admin: DELETE /admin/v2/persistent/public/default/t from 10.0.0.9:51360: 204
```

This page is generated from the code by `make docs`.
"""

_BOUNDS = f"""\
## Bounds

A line is one line: control characters, line separators and characters that change the direction of text are escaped,
and a value is cut after {VALUE_MAX} characters. The table has the most lines of each event per {WINDOW_S:.0f} seconds;
of any other kind of line {PER_MINUTE} are written. The rest is counted in an event `suppressed`. A client that fails in
a loop cannot fill the disk.

Libraries (uvicorn, httpx, asyncio) write into the same log from warnings on. A line without an event is written by the
program itself for what has no name, such as settings without effect at the start.

## Spark

Spark and its JVM write their own output to `logs/spark.log` in the data folder, whose path is in the event
`pipelines_started`. It is renamed to `spark.log.1` at {FILE_BYTES_MAX >> 20} MB, and one older file is kept.
`magnetar pipelines` without a broker writes it to the folder for temporary files, and logs its path. When Spark does
not start, its last lines are logged too.
"""


def render() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION.rstrip()
    yield from ("", "## JSON", "", "| field | meaning |", "|---|---|")
    for name, meaning in FIELDS.items():
        yield f"| `{name}` | {meaning} |"
    yield from (
        "",
        "An event adds its own fields. Numbers are numbers, everything else is a string.",
        "",
        "## Events",
        "",
        "| event | level | component | fields | lines per minute | meaning |",
        "|---|---|---|---|---|---|",
    )
    for event in EVENTS:
        fields = ", ".join(f"`{name}`" for name in event.fields)
        level = logging.getLevelName(event.level).lower()
        yield f"| `{event.name}` | {level} | {event.component} | {fields} | {event.per_minute} | {event.meaning} |"
    yield from ("", _BOUNDS.rstrip())


if __name__ == "__main__":
    sys.stdout.write(render())

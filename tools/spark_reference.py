"""Generates the tables of docs/spark.md and docs/failed-messages.md from those in the code:
`python -m tools.spark_reference docs/spark.md docs/failed-messages.md`.

Owns their layout. Each is placed between `<!-- table: name -->` and `<!-- end -->`; the rest of the page is kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from magnetar.spark.client_options import CLIENT_OPTIONS
from magnetar.spark.codec.columns import ENTRIES, METADATA, ON_REQUEST, RAW_VALUE, Column
from magnetar.spark.dead_letters.letters import LETTER_COLUMNS
from magnetar.spark.kafka_options import KAFKA_OPTIONS
from magnetar.spark.option import Option, Use
from magnetar.spark.runtime.settings import REQUIRED, TUNED, SparkSetting
from magnetar.spark.sink.columns import WRITTEN
from magnetar.spark.sink.options import SINK_OPTIONS
from magnetar.spark.source.options import SOURCE_OPTIONS

_MARKER = re.compile(r"(?<=<!-- table: )([a-z ]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


def _options(options: Iterable[Option]) -> Iterator[str]:
    yield from ("| option | default | allowed | meaning |", "|---|---|---|---|")
    for option in options:
        default = "" if option.default is None else f"`{option.kind.show(option.default)}`"
        only = f" For {option.used_in} only." if option.use in (Use.BATCH, Use.STREAM) else ""
        yield f"| `{option.name}` | {default} | {_cell(option.kind.allowed)} | {_cell(option.kind.meaning)}{only} |"


def _columns(columns: Iterable[Column]) -> Iterator[str]:
    yield from ("| column | type | meaning |", "|---|---|---|")
    for column in columns:
        yield f"| `{column.name}` | {column.type.simpleString()} | {_cell(column.meaning)} |"


def _written() -> Iterator[str]:
    yield from ("| column | type | meaning |", "|---|---|---|")
    yield f"| `{RAW_VALUE.name}` | binary or string | the payload; null writes a message without a payload |"
    for name, (types, meaning) in WRITTEN.items():
        yield f"| `{name}` | {' or '.join(types)} | {_cell(meaning)} |"


def _settings(settings: Iterable[SparkSetting]) -> Iterator[str]:
    yield from ("| setting | value | why |", "|---|---|---|")
    for setting in settings:
        yield f"| `{setting.name}` | `{setting.value}` | {_cell(setting.why)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _of_kafka() -> Iterator[str]:
    yield from ("| option of Kafka | here |", "|---|---|")
    for name, hint in KAFKA_OPTIONS.items():
        yield f"| `{name}` | {_cell(hint)} |"


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "client options": lambda: _options(CLIENT_OPTIONS),
    "source options": lambda: _options(SOURCE_OPTIONS),
    "sink options": lambda: _options(SINK_OPTIONS),
    "columns": lambda: _columns((RAW_VALUE, *METADATA)),
    "columns on request": lambda: _columns(ON_REQUEST),
    "columns of entries": lambda: _columns(ENTRIES),
    "columns that are written": _written,
    "options of kafka": _of_kafka,
    "settings of every session": lambda: _settings(REQUIRED),
    "settings of tuned sessions": lambda: _settings(TUNED),
}


TABLES_OF_LETTERS: dict[str, Callable[[], Iterator[str]]] = {"columns of letters": lambda: _columns(LETTER_COLUMNS)}


def render(page: str, tables: Mapping[str, Callable[[], Iterator[str]]] = TABLES) -> str:
    """The page with all tables generated."""
    names = [name for name, _ in _MARKER.findall(page)]
    if sorted(names) != sorted(tables):
        raise ValueError(f"the page has tables {', '.join(sorted(names))}; it must have {', '.join(sorted(tables))}")
    return _MARKER.sub(lambda found: found[1] + found[2] + "\n".join((*tables[found[1]](), "")), page)


def main(spark: Path, failed_messages: Path) -> None:
    for path, tables in ((spark, TABLES), (failed_messages, TABLES_OF_LETTERS)):
        path.write_text(render(path.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

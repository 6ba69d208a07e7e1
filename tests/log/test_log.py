"""The log: events, lines of text and JSON, escaping, and limits."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.bounds import LOG_TEXT, LOG_TRACEBACK
from magnetar.log import events
from magnetar.log.events import EVENTS, TOPIC_CREATED, TOPIC_DELETED, VALUE_MAX, Event, bounded, emit
from magnetar.log.limit import KINDS_MAX, WINDOW_S, LineLimit
from magnetar.log.line import FIELDS
from magnetar.log.output import PER_MINUTE, stop_log, write_log
from tools.log_reference import render

SOURCE = Path(__file__).parents[2] / "src" / "magnetar"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield io.StringIO()
    stop_log()


def test_a_line_of_text_has_a_utc_time_level_component_and_a_sentence(stream: io.StringIO) -> None:
    write_log(stream, level="info", form="text")
    emit(TOPIC_CREATED, topic="persistent://public/default/t", origin="auto-created")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    catalog:"
        r" topic persistent://public/default/t created \(auto-created\)\n",
        stream.getvalue(),
    )


def test_a_line_of_json_has_fixed_fields_and_those_of_its_event(stream: io.StringIO) -> None:
    write_log(stream, level="info", form="json")
    emit(events.SLOW_COMMIT, groups=2, milliseconds=1500)
    line = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "warning",
        "component": "storage",
        "event": "slow_commit",
        "message": "a commit of 2 groups took 1500 ms",
        "groups": 2,
        "milliseconds": 1500,
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_value_cannot_start_a_line_or_talk_to_the_terminal(
    stream: io.StringIO, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # the test runner cannot report text that is not Unicode
    write_log(stream, level="info", form=form)
    evil = "a\n2026-01-01T00:00:00.000Z INFO    admin: fake\r\x1b[2J\u2028\u202e\x9b\ud800" + "x" * 10_000
    emit(TOPIC_DELETED, topic=evil)
    logging.getLogger("magnetar.server").warning("free %s", evil)
    logging.getLogger("uvicorn.error").warning(evil)
    assert stream.getvalue().count("\n") == 3
    for line in stream.getvalue().splitlines():
        assert len(line) < 5000
        assert line.isprintable(), line
        message = json.loads(line)["message"] if form == "json" else line
        assert "\\n2026" in message and "\\x1b[2J\\u2028\\u202e\\x9b\\ud800" in message
        assert "more characters)" in message


def test_bound_log_value_is_cut_and_its_length_noted() -> None:
    assert bounded("x" * VALUE_MAX) == "x" * VALUE_MAX
    assert bounded("x" * (VALUE_MAX + 7)) == "x" * VALUE_MAX + "… (7 more characters)"


def test_the_level_is_obeyed_and_libraries_are_heard_from_warnings_on(stream: io.StringIO) -> None:
    write_log(stream, level="warning", form="text")
    emit(TOPIC_CREATED, topic="t", origin="explicit")
    logging.getLogger("httpx").info("HTTP Request: GET http://x")
    assert stream.getvalue() == ""
    write_log(stream, level="debug", form="text")
    logging.getLogger("magnetar.pipelines.lanes").debug("a job")
    logging.getLogger("httpx").info("HTTP Request: GET http://x")
    logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    lines = [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()]
    assert lines == ["DEBUG   pipelines: a job", "WARNING uvicorn: Invalid HTTP request received."]


def test_an_unexpected_error_is_one_line_that_names_its_place(stream: io.StringIO) -> None:
    write_log(stream, level="info", form="text")
    try:
        raise KeyError("gone\n")
    except KeyError as error:
        logging.getLogger("magnetar.server").error("please report it", exc_info=error)
        write_log(stream, level="info", form="json")
        logging.getLogger("magnetar.server").error("please report it", exc_info=error)
    text, line = stream.getvalue().splitlines()
    assert text.partition(" server: ")[2].startswith("please report it: KeyError: 'gone\\n' [test_log.py:")
    assert "Traceback" in json.loads(line)["traceback"]


def test_bound_log_text_is_cut(stream: io.StringIO) -> None:
    write_log(stream, level="info", form="text")
    logging.getLogger("magnetar.server").info("x" * (LOG_TEXT.limit + 7))
    assert stream.getvalue().rstrip().endswith("x… (7 more characters)")


def test_bound_log_traceback_keeps_its_end(stream: io.StringIO) -> None:
    write_log(stream, level="info", form="json")
    try:
        raise ValueError("x" * LOG_TRACEBACK.limit + "the end")
    except ValueError as error:
        logging.getLogger("magnetar.server").error("please report it", exc_info=error)
    shown = json.loads(stream.getvalue())["traceback"]
    assert len(shown) == LOG_TRACEBACK.limit and shown.endswith("the end\n")


def test_bound_log_lines_of_a_kind_and_the_rest_is_counted(stream: io.StringIO) -> None:
    write_log(stream, level="info", form="json")
    for number in range(events.LOOKUP_REFUSED.per_minute + 40):
        emit(events.LOOKUP_REFUSED, topic=f"t{number}", client="c", version="v", error="E", reason="r")
    emit(TOPIC_DELETED, topic="other kinds are not affected")
    for _ in range(PER_MINUTE + 5):
        logging.getLogger("asyncio").error("socket.send() raised exception %s", object())
    stop_log()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    refused = [line for line in lines if line.get("event") == "lookup_refused"]
    assert len(refused) == events.LOOKUP_REFUSED.per_minute
    assert [line["topic"] for line in lines if line.get("event") == "topic_deleted"] == ["other kinds are not affected"]
    counted = {line["kind"]: line["count"] for line in lines if line.get("event") == "suppressed"}
    assert counted == {"lookup_refused": 40, "asyncio error": 5}


def test_the_count_is_written_when_the_minute_is_over() -> None:
    limit = LineLimit()
    assert [limit.admits("a", 2, 100.0 + second) for second in range(4)] == [True, True, False, False]
    assert list(limit.take_suppressed(101.0)) == []
    assert list(limit.take_suppressed(100.0 + WINDOW_S)) == [("a", 2)]
    assert limit.admits("a", 2, 100.0 + WINDOW_S)
    assert list(limit.take_suppressed(1e9)) == []


def test_bound_log_kinds() -> None:
    limit = LineLimit()
    for number in range(KINDS_MAX * 3):
        limit.admits(f"kind {number}", 0, 1.0)
    assert len(list(limit.take_suppressed())) == KINDS_MAX + 1


def test_a_broken_stream_loses_lines_only() -> None:
    stream = io.StringIO()
    write_log(stream, level="info", form="text")
    stream.close()
    emit(TOPIC_DELETED, topic="t")
    stop_log()


def test_without_a_log_events_are_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    emit(events.STORAGE_FAILED, reason="x")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.name)
def test_every_event_is_written_somewhere_with_its_fields(event: Event) -> None:
    name = next(name for name, value in vars(events).items() if value is event)
    users = [
        path
        for path in SOURCE.rglob("*.py")
        if path.name != "events.py" and re.search(rf"\b{name}\b", path.read_text(encoding="utf-8"))
    ]
    assert users, f"nothing writes {event.name}"
    assert event.name == name.lower()
    assert not set(event.fields) & set(FIELDS), "a field of an event would hide one that every line has"


def test_the_reference_page_is_generated_from_the_events() -> None:
    page = Path(__file__).parents[2] / "docs" / "log.md"
    assert page.read_text(encoding="utf-8") == render(), "run make docs"

"""The HTML report: nothing of a message becomes markup, and charts are drawn within their frame."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.cli.deadletters.charts import HEIGHT, SERIES_MAX, WIDTH, bar, nice_top, short_number, stacked_bars
from magnetar.cli.deadletters.report import parse_since
from magnetar.cli.deadletters.report_page import OTHERS, page, top_reasons
from magnetar.errors import InvalidSetting
from tests.cli.deadletters.summaries import HOSTILE, NOW, hostile_summary

VOID = {"meta", "rect", "line", "br"}


class Page(HTMLParser):
    """The elements of a page, and its texts."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(markup)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_sp4_nothing_of_a_message_becomes_markup() -> None:
    found = Page(page(hostile_summary()))
    assert not {"script", "img", "a", "link", "iframe"} & set(found.names)
    assert not [name for name, _ in found.attributes if name.startswith("on") or name in ("src", "href", "style")]
    shown = HOSTILE.replace("\u202e", "\N{REPLACEMENT CHARACTER}")
    assert len([text for text in found.texts if shown in text]) >= 12, "reasons, topics, keys, payloads, fingerprints"
    assert "\u202e" not in "".join(found.texts)


@given(st.text(max_size=40))
def test_sp4_any_text_is_escaped(text: str) -> None:
    summary = hostile_summary(bins=3)
    row = {**summary.causes[0], "reason": text, "exception": text, "fingerprint": text, "example": text}
    sample = {
        **next(iter(summary.samples.values()))[0],
        "key": text,
        "payload": text,
        "error": text,
        "letter_topic": text,
    }
    names = Page(page(hostile_summary(bins=3))).names
    assert set(Page(page(replace(summary, causes=[row], samples={(1, 2, text): [sample]}))).names) <= set(names)


def test_sp4_a_report_of_nothing() -> None:
    empty = replace(
        hostile_summary(),
        totals=dict.fromkeys(hostile_summary().totals, 0) | {"first": None, "last": None},
        causes=[],
        changes=[],
        origins=[],
        bins=[],
        samples={},
    )
    assert "There are no dead letters." in Page(page(empty)).texts


def test_sp4_bars_stay_in_their_frame() -> None:
    chart = stacked_bars(["a", "b", "c"], [("x", [1, 0, 7]), ("y", [3, 0, 0])], "t")
    bars = [
        tuple(map(float, each))
        for each in re.findall(r'x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', chart)
    ]
    assert len(bars) == 3
    assert all(x >= 0 and x + width <= WIDTH and y >= 0 and y + height <= HEIGHT for x, y, width, height in bars)
    assert "<title>c\nx: 7</title>" in chart
    assert 'width="0.50"' in bar(1, 10**9) and 'width="0.00"' in bar(0, 5) and 'width="100.00"' in bar(5, 5)


@given(st.integers(0, 10**12))
def test_an_axis_ends_at_a_round_number(highest: int) -> None:
    top = nice_top(highest)
    assert top >= max(highest, 1) and str(top).strip("0") in ("1", "2", "5") and top <= max(1, 2.5 * highest)
    assert len(short_number(highest)) <= 6


def test_sp4_many_reasons_are_others() -> None:
    summary = hostile_summary(bins=1)
    many = replace(summary.bins[0], reasons={f"r{number}": 100 - number for number in range(20)})
    names = top_reasons(replace(summary, bins=[many]))
    assert (len(names), names[-1]) == (SERIES_MAX, OTHERS)
    assert f"others: {sum(100 - number for number in range(SERIES_MAX - 1, 20)):,}" in page(
        replace(summary, bins=[many])
    )


def test_sp4_since() -> None:
    assert parse_since("12h", NOW) == "2026-11-16T00:30:00+00:00"
    assert parse_since("2026-11-15T22:00:00Z", NOW) == "2026-11-15T22:00:00+00:00"
    assert parse_since("2026-11-15", NOW) == datetime(2026, 11, 15, tzinfo=UTC).isoformat()
    with pytest.raises(InvalidSetting, match="neither a time such as"):
        parse_since("yesterday", NOW)

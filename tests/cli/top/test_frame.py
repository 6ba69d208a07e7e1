"""Frames of top, from answers to lines: nothing that matters is cut, whatever the size of the terminal."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from rich.console import Console

from magnetar.cli.top.answers import Answers, Sort
from magnetar.cli.top.frame import WIDE, compact, cut, frame, short, span
from magnetar.cli.top.sparkline import BARS, KEPT_MS, History, sparkline

TOTALS = {
    "topics": 1234, "partitionedTopics": 2, "unloaded": 3, "subscriptions": 1, "producers": 4, "consumers": 5,
    "rateIn": 1234.5, "rateOut": 0.0, "throughputIn": 1_500_000.0, "throughputOut": 0.0, "backlog": 6789, "unacked": 7,
    "delayed": 8, "storedBytes": 3_000_000, "deadLettersWaiting": 9,
}  # fmt: skip
LONG = "persistent://acme/shop/" + "clicks-of-a-very-long-name-" * 4 + "end"


def item(**changes: Any) -> dict[str, Any]:
    topic = "persistent://public/default/orders"
    return {
        "severity": "error",
        "kind": "paused-subscription",
        "subject": f"billing of {topic}",
        "text": "is paused: too many",
        "command": f"magnetar subscriptions resume {topic} billing",
        "topic": topic,
        "subscription": "billing",
        **changes,
    }


def answers(*attention: dict[str, Any], topics: int = 3, left_out: int = 0, **changes: Any) -> Answers:
    overview: dict[str, Any] = {
        "time": 1,
        "cluster": "standalone",
        "version": "1.0",
        "uptimeS": 93_784.0,
        "health": {"state": "ok", "checks": []},
        "totals": TOTALS,
        "namespaces": [],
        "deadLetters": {"byReason": [], "hours": [], "uncounted": 0},
        "replication": {"states": {}, "worst": []},
        "pipelines": {"states": {}},
        "attention": list(attention),
        "attentionLeftOut": left_out,
        **changes,
    }
    return Answers(overview, [row(index) for index in range(topics)], Sort.BACKLOG)


def row(index: int) -> dict[str, Any]:
    name = LONG if index == 1 else f"persistent://public/default/t{index}"
    return {
        "topic": name, "partitions": index * 4, "rateIn": 1234.56, "rateOut": 0.5, "throughputIn": 1.0,
        "throughputOut": 1.0, "backlog": 123_456_789, "storedBytes": 1_234_567_890, "subscriptions": 1, "producers": 1,
        "consumers": 1, "deadLetters": 12, "state": "stuck",
    }  # fmt: skip


def lines(found: Answers, width: int = 80, height: int | None = None, **options: Any) -> list[str]:
    console = Console(width=width, markup=False, highlight=False, emoji=False, color_system=None)
    with console.capture() as captured:
        console.print(frame(found, options.pop("history", History()), width, height, **options))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_header_has_it_all() -> None:
    found = lines(answers(), 100)
    assert found[0] == "Magnetar 1.0  cluster standalone  up 1 d 2 h  healthy"
    assert found[1].startswith("in      1,234.5 msg/s     1.4 MB/s")
    text = "  ".join(found[3:6])
    for part in ("1,234 topics (2 partitioned, 3 not used yet)", "1 subscription", "backlog 6,789", "dead letters 9"):
        assert part in text


def test_a_quiet_broker_says_so() -> None:
    assert "nothing needs attention" in lines(answers(topics=0))
    assert "no topics" in lines(answers(topics=0))


@pytest.mark.parametrize("width", [40, 80, 140, 300])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    found = lines(answers(item(), item(text="x " * 300), topics=5), width)
    assert max(map(len, found)) <= width


@pytest.mark.parametrize("width", [40, 80, 140])
def test_commands_and_reasons_are_whole(width: int) -> None:
    command = shlex.join(["magnetar", "subscriptions", "resume", LONG, "it's"])
    found = lines(answers(item(command=command, text="is paused: " + "reason " * 20 + "end")), width)
    assert command in "".join(found)
    assert "reason end" in " ".join(line.strip() for line in found)


@pytest.mark.parametrize("width", [70, 80, 140])
def test_numbers_are_never_cut_and_names_keep_their_ends(width: int) -> None:
    found = lines(answers(), width)
    (long,) = [line for line in found if line.startswith("acme/shop/")]
    for number in ("1,235", "0.5", "123.5M", "1.1 GB", "12", "stuck"):
        assert number in long
    assert "end [4]" in long


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 14), (140, 40), (140, 20)])
def test_a_frame_fits_the_terminal(width: int, height: int) -> None:
    many = [item(severity="warning", subject=f"s{index}") for index in range(30)]
    found = lines(answers(*many, topics=50, left_out=5), width, height)
    assert len(found) <= height
    assert any(line.startswith("and ") and line.endswith(" more") for line in found)
    assert any(line.startswith("t0") for line in found), "and topics have room"


def test_a_wide_terminal_has_the_rest_beside_the_topics() -> None:
    found = answers(
        deadLetters={
            "byReason": [{"reason": "TypeError", "waiting": 6}],
            "hours": [{"hour": 0, "reasons": {"TypeError": 2}}, {"hour": 1, "reasons": {}}],
            "uncounted": 3,
        },
        replication={"states": {"running": 3, "unreachable": 1}, "worst": []},
        pipelines={"states": {"failed": 1}},
    )
    wide, narrow = lines(found, WIDE), lines(found, WIDE - 1)
    assert any("TOPICS by backlog" in line and "DEAD LETTERS 9 wait" in line for line in wide)
    assert "DEAD LETTERS 9 wait" in narrow
    for shown in ("\n".join(wide), "\n".join(narrow)):
        assert "REPLICATION 1 unreachable, 3 running" in shown and "PIPELINES 1 failed" in shown
        assert "TypeError" in shown and "others" in shown


def test_control_characters_do_not_reach_the_terminal() -> None:
    evil = item(subject="\x1b[31mred", text="a\x07b", topic="", subscription="", command="magnetar \x1b]0;x")
    found = "\n".join(lines(answers(evil)))
    assert "\x1b" not in found and "\x07" not in found


def test_a_broker_that_is_gone_leaves_its_last_frame() -> None:
    found = lines(answers(), problem="no answer: cannot connect")
    assert "no answer: cannot connect" in found and any("TOPICS" in line for line in found)


def test_rates_become_sparklines() -> None:
    history = History()
    for second in range(5):
        history.add(second * 2000, float(second), 0.0)
    assert lines(answers(), history=history)[1].endswith(sparkline([0, 1, 2, 3, 4], 40))


def test_sparklines() -> None:
    assert sparkline([0, 1, 2, 4], 10) == "▁▂▄█".replace("▂", BARS[2]).replace("▄", BARS[4])
    assert sparkline([0, 0], 10) == "▁▁"
    assert sparkline([1, 2, 3], 2) == BARS[5] + BARS[7]
    assert sparkline([], 10) == sparkline([1], 0) == ""


def test_history_is_five_minutes_and_each_answer_counts_once() -> None:
    history = History()
    for time_ms in (0, 2000, 2000, KEPT_MS, KEPT_MS + 2000):
        history.add(time_ms, float(time_ms), 1.0)
    assert history.rates_in == [2000.0, float(KEPT_MS), KEPT_MS + 2000.0]
    assert history.rates_out == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (9999, "9,999"), (10_000, "10.0k"), (12_345_678, "12.3M"), (0.25, "0.2"), (5e10, "50.0G")],
)
def test_compact_numbers(number: float, text: str) -> None:
    assert compact(number) == text


def test_words() -> None:
    assert (span(0), span(61), span(3600), span(200_000)) == ("0 s", "1 min 1 s", "1 h", "2 d 7 h")
    assert (short("persistent://public/default/a"), short("persistent://acme/n/a")) == ("a", "acme/n/a")
    assert short("non-persistent://public/default/a") == "non-persistent://public/default/a"
    assert (cut("abcdefgh", 8), cut("abcdefgh", 5)) == ("abcdefgh", "ab…gh")


def test_every_sort_leads_to_the_next() -> None:
    found, sort = [], Sort.NAME
    for _ in Sort:
        found.append(sort)
        sort = sort.after
    assert found == list(Sort) and sort is Sort.NAME

"""The overview: what needs attention, the totals, namespaces and dead letters by reason.

Read from `brokers/overview`; without it, as on Apache Pulsar, the namespaces and the number of their topics.
"""

from __future__ import annotations

import asyncio

import msgspec

from magnetar.console.layout.elements import TableColumn, badge, box, empty, href, link, link_cell, table, text, tiles
from magnetar.console.layout.units import count, counted, duration, rate, size, throughput
from magnetar.console.layout.view import ConsoleView
from magnetar.console.rest.errors import BrokerError, BrokerUnreachable, LoginRefused
from magnetar.console.rest.listing import namespaces_of, overview_of, topic_names_of
from magnetar.console.rest.model import Attention, NamespaceRow, Overview

REFRESH_S = 5.0
_NAMESPACES_MAX = 100
PUBLISH_HINT = 'magnetar messages publish public/default/hello "Hello, world"'


class Namespaces(msgspec.Struct, frozen=True):
    """What is known without an overview. `topics` is None where this role may not list them."""

    rows: list[tuple[str, int | None]]
    left_out: int


def show(view: ConsoleView) -> None:
    async def load() -> Overview | Namespaces:
        found = await overview_of(view.api)
        return found if found is not None else await _namespaces(view)

    def render(found: Overview | Namespaces) -> None:
        if isinstance(found, Overview):
            _overview(view, found)
        else:
            _known_namespaces(found)

    view.part(load, render, every_s=REFRESH_S)


async def _namespaces(view: ConsoleView) -> Namespaces:
    names = await namespaces_of(view.api)
    shown = names[:_NAMESPACES_MAX]

    async def topics(name: str) -> int | None:
        try:
            return len(await topic_names_of(view.api, name))
        except (LoginRefused, BrokerUnreachable):
            raise
        except BrokerError:
            return None

    counts = await asyncio.gather(*map(topics, shown))
    return Namespaces(list(zip(shown, counts, strict=True)), len(names) - len(shown))


def _known_namespaces(found: Namespaces) -> None:
    if not any(number for _, number in found.rows):
        empty("There are no topics yet", "Publish a first message, and its topic is created:", PUBLISH_HINT)
    if not found.rows:
        return
    text("h2", "Namespaces")
    rows = [(link_cell(name, namespace_address(name)), count(number)) for name, number in found.rows]
    table("Namespaces", (TableColumn("Namespace"), TableColumn("Topics", is_number=True)), rows)
    if found.left_out:
        text("p", f"{counted(found.left_out, 'further namespace')} not shown.", "hint")


def _overview(view: ConsoleView, found: Overview) -> None:
    if found.attention:
        text("h2", "Needs attention")
        with box("div", "attention"):
            for one in found.attention:
                _attention(one)
    _totals(found)
    if not found.totals.topics:
        empty("There are no topics yet", "Publish a first message, and its topic is created:", PUBLISH_HINT)
    if found.dead_letters.by_reason:
        text("h2", "Dead letters by reason")
        columns = (TableColumn("Reason"), TableColumn("Waiting", is_number=True))
        table(
            "Dead letters by reason",
            columns,
            [(one.reason, counted(one.waiting, "message")) for one in found.dead_letters.by_reason],
        )
    if found.namespaces:
        text("h2", "Namespaces")
        _namespace_table(found.namespaces)
    for title, states in (("Replication", found.replication.states), ("Pipelines", found.pipelines.states)):
        if states:
            text("h2", title)
            table(
                title,
                (TableColumn("State"), TableColumn("Number", is_number=True)),
                [(a, count(b)) for a, b in states.items()],
            )


def _attention(one: Attention) -> None:
    with box("div", "card"):
        with box("p"):
            badge(one.severity or "notice", one.severity if one.severity in ("error", "critical", "warning") else "")
            if one.topic:
                link(one.subject, topic_address(one.topic))
            else:
                text("strong", one.subject)
        text("p", one.text)
        if one.command:
            text("pre", one.command, "command", tabindex="0", aria_label="Command")


def _totals(found: Overview) -> None:
    total = found.totals
    tiles(
        (
            ("Topics", count(total.topics), "/topics"),
            ("Messages in", rate(total.rate_in), ""),
            ("Messages out", rate(total.rate_out), ""),
            ("Bytes in", throughput(total.throughput_in), ""),
            ("Bytes out", throughput(total.throughput_out), ""),
            ("Backlog", counted(total.backlog, "message"), "/topics?sort=backlog&order=desc"),
            ("Unacknowledged", counted(total.unacked, "message"), ""),
            ("Delayed", counted(total.delayed, "message"), ""),
            ("Dead letters waiting", counted(total.dead_letters_waiting, "message"), "/dead-letters"),
            ("Stored", size(total.stored_bytes), ""),
            ("Subscriptions", count(total.subscriptions), ""),
            ("Producers", count(total.producers), ""),
            ("Consumers", count(total.consumers), ""),
            ("Up for", duration(found.uptime_s), ""),
        )
    )


def _namespace_table(rows: list[NamespaceRow]) -> None:
    columns = (
        TableColumn("Namespace"),
        *(TableColumn(name, is_number=True) for name in ("Topics", "In", "Out", "Backlog", "Stored", "Dead letters")),
    )
    table(
        "Namespaces",
        columns,
        [
            (
                link_cell(one.name, namespace_address(one.name)),
                count(one.topics),
                rate(one.rate_in),
                rate(one.rate_out),
                counted(one.backlog, "message"),
                size(one.stored_bytes),
                counted(one.dead_letters_waiting, "message"),
            )
            for one in rows[:_NAMESPACES_MAX]
        ],
    )


def namespace_address(name: str) -> str:
    """The topics of a namespace."""
    return href("topics", query={"namespace": name})


def topic_address(full: str) -> str:
    """The page of a topic."""
    domain, _, rest = full.partition("://")
    return (
        href("topics", domain, *rest.split("/", 2)) if rest.count("/") >= 2 else href("topics", query={"search": full})
    )

"""Dead letter topics of all namespaces: how many letters wait, where they come from, and since when."""

from __future__ import annotations

from magnetar.console.layout.elements import TableColumn, box, empty, href, link, link_cell, table, text
from magnetar.console.layout.units import NONE, counted, duration
from magnetar.console.layout.view import ConsoleView
from magnetar.console.rest.dead_letters import TOPICS_MAX, dead_letter_topics
from magnetar.console.rest.model import DeadLetterTopicAnswer

_NAMESPACE_MAX = 200


def show(view: ConsoleView) -> None:
    if not view.capabilities.is_magnetar:
        empty(
            "This cluster does not list dead letters", "Apache Pulsar has no such list: open the topic of dead letters."
        )
        return
    namespace = view.query.get("namespace", "").strip()[:_NAMESPACE_MAX]
    with box("form", "filters", action="/dead-letters", method="get", aria_label="Filter dead letter topics"):
        with box("label"):
            text("span", "Namespace")
            box("input", type="text", name="namespace", value=namespace, placeholder="tenant/namespace")
        text("button", "Show", "button", type="submit")
        if namespace:
            link("Clear", "/dead-letters", "button")
    view.part(lambda: dead_letter_topics(view.api, namespace), _list)


def address_of(full: str) -> str:
    """The dead letters of a topic."""
    domain, _, rest = full.partition("://")
    return href("dead-letters", domain, *rest.split("/", 2))


def _list(found: list[DeadLetterTopicAnswer]) -> None:
    if not found:
        empty(
            "There are no dead letters",
            "A message that fails too often becomes one, if its subscription has a dead letter policy:",
            "magnetar namespaces set-dead-letter-policy public/default --max-redeliver-count 3",
        )
        return
    columns = (
        TableColumn("Dead letter topic"),
        TableColumn("Waiting", is_number=True),
        TableColumn("Handled", is_number=True),
        TableColumn("Last hour", is_number=True),
        TableColumn("Oldest", is_number=True),
        TableColumn("Of topic"),
        TableColumn("Of subscription"),
    )
    rows = [
        (
            link_cell(one.topic.removeprefix("persistent://"), address_of(one.topic)),
            counted(one.waiting, "message"),
            counted(one.handled, "message"),
            counted(one.last_hour, "message"),
            duration(one.oldest_age_seconds),
            (one.origin_topic or NONE).removeprefix("persistent://"),
            one.origin_subscription or NONE,
        )
        for one in found
    ]
    table("Dead letter topics", columns, rows)
    if len(found) == TOPICS_MAX:
        text("p", f"Only {TOPICS_MAX} topics are shown: choose a namespace.", "hint")

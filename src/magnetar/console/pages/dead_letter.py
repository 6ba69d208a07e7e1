"""One dead letter: why it died, where it comes from, its history, headers and payload."""

from __future__ import annotations

import base64
import json

from magnetar.console.layout.elements import Cell, TableColumn, box, empty, fields, href, link, link_cell, table, text
from magnetar.console.layout.payload import preformatted, show_payload
from magnetar.console.layout.units import NONE, count
from magnetar.console.layout.view import ConsoleView
from magnetar.console.pages.messages import show_properties
from magnetar.console.pages.overview import topic_address
from magnetar.console.pages.redrives import show_redrives
from magnetar.console.rest.dead_letters import condition_of, letter_of
from magnetar.console.rest.model import DeadLetterAnswer
from magnetar.console.rest.topic import parsed, segments_of
from magnetar.names import TopicName


def title(view: ConsoleView) -> str:
    return f"Dead letter {view.path['message']}"


def show(view: ConsoleView) -> None:
    path = view.path
    topic = parsed(path["domain"], path["tenant"], path["namespace"], path["topic"])
    if topic is None:
        empty("There is no topic of this name", "A name has the form tenant/namespace/topic.")
        return
    with box("p"):
        link(f"All of {topic.base.full}", href("dead-letters", *segments_of(topic)))
    view.part(lambda: letter_of(view.api, topic, path["message"]), lambda found: _letter(view, topic, found))


def _letter(view: ConsoleView, topic: TopicName, one: DeadLetterAnswer) -> None:
    if one.fault:
        text("p", one.fault, "note")
    fields(_headers(view, one))
    if one.error:
        text("h2", "Error")
        preformatted(one.error, "Error text")
    if one.failures:
        text("h2", "History")
        _history(view, one)
    text("h2", "Payload")
    show_payload(_payload(one))
    show_properties(one.properties)
    show_redrives(view, topic, condition_of("", "", one.id), 1, f"with id {one.id}")


def _headers(view: ConsoleView, one: DeadLetterAnswer) -> list[tuple[str, Cell]]:
    found: list[tuple[str, Cell]] = [
        ("Reason", f"{one.reason}{f': {one.description}' if one.description else ''}"),
        ("Died", view.moment(one.time)),
        ("Of topic", link_cell(one.origin_topic, topic_address(one.origin_topic)) if one.origin_topic else NONE),
        ("Of subscription", one.origin_subscription or NONE),
        ("Message there", one.origin_message_id or NONE),
        ("Failures", count(one.count)),
        ("Consumer", one.consumer or NONE),
        ("Key", NONE if one.key is None else one.key),
        ("Producer", one.producer_name or NONE),
    ]
    if one.event_time:
        found.append(("Event time", view.moment(one.event_time)))
    return found


def _history(view: ConsoleView, one: DeadLetterAnswer) -> None:
    columns = (
        TableColumn("Topic"),
        TableColumn("Subscription"),
        TableColumn("Reason"),
        TableColumn("Failures", is_number=True),
        TableColumn("First"),
        TableColumn("Last"),
        TableColumn("Consumer"),
        TableColumn("Error"),
    )
    rows = [
        (
            failure.topic or NONE,
            failure.subscription or NONE,
            failure.reason or NONE,
            count(failure.count),
            view.moment(failure.first),
            view.moment(failure.last),
            failure.consumer or NONE,
            failure.error or NONE,
        )
        for failure in one.failures
    ]
    table("History of failures", columns, rows)


def _payload(one: DeadLetterAnswer) -> bytes:
    if one.payload is None:
        return b""
    if one.payload_encoding == "base64":
        return base64.b64decode(str(one.payload))
    return one.payload.encode() if isinstance(one.payload, str) and one.payload_encoding != "json" else json.dumps(
        one.payload, ensure_ascii=False
    ).encode()  # fmt: skip

"""Messages of a topic, read by position without consuming them: a part of the page of a topic."""

from __future__ import annotations

import base64

from magnetar.client.message import Message
from magnetar.console.layout.elements import box, empty, fields, href, link, text
from magnetar.console.layout.payload import show_payload
from magnetar.console.layout.units import moment_of_ms
from magnetar.console.layout.view import ConsoleView
from magnetar.console.rest.errors import LoginRefused, RequestRefused, RightRefused
from magnetar.console.rest.model import PartitionedMetadataAnswer
from magnetar.console.rest.topic import MESSAGES_PER_PAGE, Peeked, peek, segments_of
from magnetar.names import TopicName

_POSITION_MAX = 10**15
_PROPERTIES_MAX = 50


def show_messages(view: ConsoleView, topic: TopicName) -> None:
    """The position is in the address: `from=end` counts from the newest."""
    from_end = view.query.get("from", "end") != "start"
    given = view.query.get("position", "1")
    is_valid = given.isascii() and given.isdigit() and 0 < len(given) < 16 and int(given) > 0
    position = min(int(given), _POSITION_MAX) if is_valid else 1
    _chooser(topic, position, from_end=from_end)

    async def load() -> list[Peeked] | int:
        """The number of partitions, if each has its own messages."""
        if topic.partition < 0:
            metadata = await view.api.get(PartitionedMetadataAnswer, *segments_of(topic), "partitions")
            if metadata.partitions:
                return metadata.partitions
        try:
            return await peek(view.api, topic, position, from_end=from_end)
        except (LoginRefused, RightRefused):
            raise
        except RequestRefused as error:
            if error.status in (404, 412):  # without messages
                return []
            raise

    view.part(load, lambda found: _messages(view, topic, found, position, from_end=from_end))


def _chooser(topic: TopicName, position: int, *, from_end: bool) -> None:
    address = href("topics", *segments_of(topic))
    with box("form", "filters", action=f"{address}#messages", method="get", aria_label="Choose messages"):
        with box("label"):
            text("span", "Count from")
            with box("select", name="from"):
                for value, name in (("end", "the newest message"), ("start", "the oldest message")):
                    chosen = {"selected": "selected"} if (value == "end") == from_end else {}
                    text("option", name, value=value, **chosen)
        with box("label"):
            text("span", "Position")
            box("input", type="number", name="position", value=str(position), min="1", max=str(_POSITION_MAX))
        text("button", "Show", "button", type="submit")


def _messages(view: ConsoleView, topic: TopicName, found: list[Peeked] | int, position: int, *, from_end: bool) -> None:
    if isinstance(found, int):
        text("p", "Each partition has its own messages: open one of the partitions above.", "hint")
        return
    if not found:
        name = f"{topic.tenant}/{topic.namespace}/{topic.local}"
        command = f'magnetar messages publish {name} "Hello, world"'
        empty("There are no messages", "Acknowledged messages are deleted. Publish one:", command)
        return
    for one in found:
        _message(view, one)
    with box("nav", "paging", aria_label="Further messages"):
        query = {"from": "end" if from_end else "start"}
        address = ("topics", *segments_of(topic))
        if position > 1:
            before = max(1, position - MESSAGES_PER_PAGE)
            name = "Newer" if from_end else "Older"
            link(name, f"{href(*address, query={**query, 'position': before})}#messages", "button")
        if len(found) >= MESSAGES_PER_PAGE:
            after = position + MESSAGES_PER_PAGE
            name = "Older" if from_end else "Newer"
            link(name, f"{href(*address, query={**query, 'position': after})}#messages", "button")


def _message(view: ConsoleView, one: Peeked) -> None:
    with box("article", "card", aria_label=f"Message {one.id}"):
        text("h3", f"Message {one.id}")
        if one.message is None:
            text("p", one.fault, "note")
            return
        fields(_headers(view, one.message))
        show_properties(one.message.properties)
        show_payload(one.message.value, one.schema, _key_bytes(one.message))


def show_properties(properties: dict[str, str]) -> None:
    if properties:
        text("p", "Properties", "hint")
        fields(list(properties.items())[:_PROPERTIES_MAX])
        if len(properties) > _PROPERTIES_MAX:
            text("p", f"{len(properties) - _PROPERTIES_MAX:,} further properties are not shown.", "hint")


def _headers(view: ConsoleView, message: Message) -> list[tuple[str, str]]:
    zone = view.session.zone
    found = [("Published", moment_of_ms(message.publish_time_ms, zone)), ("Producer", message.producer_name)]
    if message.key is not None:
        found.append(("Key, base64" if message.key_is_base64 else "Key", message.key))
    if message.event_time_ms:
        found.append(("Event time", moment_of_ms(message.event_time_ms, zone)))
    if message.deliver_at_ms:
        found.append(("Deliver at", moment_of_ms(message.deliver_at_ms, zone)))
    found.append(("Sequence id", str(message.sequence_id)))
    if message.replicated_from:
        found.append(("Replicated from", message.replicated_from))
    return found


def _key_bytes(message: Message) -> bytes | None:
    if message.key is None:
        return None
    return base64.b64decode(message.key) if message.key_is_base64 else message.key.encode()

"""Views of messages, and peeking at a subscription by REST.

A payload is shown as text if it is UTF-8, otherwise in base64.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from magnetar.cli.path import topic_path
from magnetar.cli.rest import Refused, Rest, RestError
from magnetar.names import TopicName

if TYPE_CHECKING:
    from magnetar.client import Message

HTTP_NOT_FOUND = 404


def peeked_messages(rest: Rest, topic: TopicName, subscription: str, count: int) -> Iterator[dict[str, object]]:
    """The messages in the next `count` entries of a subscription, without consuming them."""
    from magnetar.client.consume.peeked import messages_of_response

    # Peeking creates a missing subscription, and a misspelt one would retain messages.
    existing = rest.get(*topic_path(topic, "subscriptions"))
    if subscription not in existing:
        known = f"it has {', '.join(sorted(existing))}" if existing else "it has none"
        raise RestError(f"{topic} has no subscription {subscription}; {known}")
    for position in range(1, count + 1):
        try:
            response = rest.request("GET", topic_path(topic, "subscription", subscription, "position", str(position)))
        except Refused as error:
            if error.status == HTTP_NOT_FOUND:
                return  # no more messages
            raise
        for message in messages_of_response(topic.full, topic.partition, response.headers, response.content):
            yield described(message)


def described(message: Message) -> dict[str, object]:
    """A message as JSON."""
    fields: dict[str, object] = {"id": str(message.id), "topic": message.topic}
    if message.key is not None:
        fields["key"] = message.key
        if message.key_is_base64:
            fields["keyIsBase64"] = True
    if message.properties:
        fields["properties"] = message.properties
    if message.publish_time_ms:
        fields["publishTime"] = shown_time(message.publish_time_ms)
    if message.event_time_ms:
        fields["eventTime"] = shown_time(message.event_time_ms)
    if message.deliver_at_ms:
        fields["deliverAt"] = shown_time(message.deliver_at_ms)
    if message.producer_name:
        fields["producer"] = message.producer_name
    if message.replicated_from:
        fields["replicatedFrom"] = message.replicated_from
    if message.is_null:
        return {**fields, "value": None}
    text = _text(message.value)
    if text is None:
        return {**fields, "valueBase64": base64.b64encode(message.value).decode()}
    return {**fields, "value": text}


def shown_message(message: dict[str, object]) -> str:
    """A message on one line, with its time, key and properties in brackets."""
    remarks = [str(message["publishTime"])] if "publishTime" in message else []
    remarks += [
        f"{name}={message[name]}" for name in ("key", "eventTime", "deliverAt", "replicatedFrom") if name in message
    ]
    properties = message.get("properties")
    if isinstance(properties, dict):
        remarks += [f"{name}={value}" for name, value in properties.items()]
    if "error" in message:
        value = f"({message['error']})"
    elif "valueBase64" in message:
        value = f"base64:{message['valueBase64']}"
    else:
        value = "(no value)" if message["value"] is None else str(message["value"])
    return f"{message['id']}  [{', '.join(printable(remark) for remark in remarks)}]  {printable(value)}"


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def printable(text: str) -> str:
    """Escapes line ends and control characters, which could change the terminal."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def shown_time(time_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

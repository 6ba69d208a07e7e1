"""`magnetar messages …`: publish, consume, peek and tail, by the binary protocol."""

from __future__ import annotations

import sys
import time as clock
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar.cli.argument import Properties, ServiceUrl, Topic, parse_duration, parse_time, properties_of, whole
from magnetar.cli.client import client_of
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Stream
from magnetar.cli.policies.setting import SubscriptionKind
from magnetar.cli.rest import Rest
from magnetar.cli.views.messages import described, peeked_messages, shown_message
from magnetar.names import TopicName

if TYPE_CHECKING:
    from magnetar.client import Consumer, Reader

group = CommandGroup("messages", "Publish and consume messages, peek at them, follow a topic.")

PEEK_DEFAULT = 10
_CONSUME_QUEUE = 100


RolePrefix = Annotated[
    str | None,
    typer.Option(
        "--subscription-role-prefix",
        metavar="ROLE",
        help="The beginning of the reader's subscription: the role, with subscriptionAuthMode=Prefix.",
    ),
]


@group.command("publish")
def publish(
    rest: Rest,
    topic: Topic,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="MESSAGE", help="The messages to publish.", show_default="--file or stdin"),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="A file to publish as one message.")] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of the messages.")] = None,
    properties: Properties = None,
    event_time: Annotated[
        int | None,
        typer.Option("--event-time", metavar="TIME", parser=parse_time, help="The event time: 2026-01-31T18:00:00Z."),
    ] = None,
    deliver_after: Annotated[
        int | None,
        typer.Option("--deliver-after", metavar="DURATION", parser=parse_duration, help="Delay delivery: 90s, 5m, 3h."),
    ] = None,
    service_url: ServiceUrl = None,
) -> Stream:
    """Publish messages from arguments, a file or the lines of stdin, and print their ids."""
    if values and file is not None:
        raise typer.BadParameter("messages and --file cannot be combined")
    given = properties_of(properties)
    payloads = _payloads(values, file)

    def published() -> Iterator[dict[str, object]]:
        with client_of(rest, service_url) as client, client.producer(topic.full) as producer:
            for payload in payloads:
                message_id = producer.send(
                    payload,
                    key=key,
                    properties=given,
                    event_time_ms=event_time,
                    deliver_at_ms=None if deliver_after is None else _now_ms() + deliver_after * 1000,
                )
                yield {"id": str(message_id), "topic": topic.full}

    return Stream(published(), lambda one: str(one["id"]), none="nothing to publish")


def _payloads(values: list[str] | None, file: Path | None) -> Iterator[bytes]:
    if file is not None:
        try:
            return iter([file.read_bytes()])
        except OSError as error:
            raise typer.BadParameter(f"--file {file} cannot be read: {error.strerror}") from error
    if values:
        return (value.encode("utf-8", "surrogateescape") for value in values)
    return (line.rstrip(b"\r\n") for line in sys.stdin.buffer)


@group.command("peek")
def peek(
    rest: Rest,
    topic: Topic,
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", parser=whole(1), help="The number of messages.")
    ] = PEEK_DEFAULT,
    subscription: Annotated[
        str | None, typer.Option("--subscription", "-s", help="Peek at the backlog of this subscription.")
    ] = None,
    service_url: ServiceUrl = None,
    role_prefix: RolePrefix = None,
) -> Stream:
    """Show the first messages of a topic or a subscription, without consuming them."""
    if subscription is not None:
        if service_url is not None:
            raise typer.BadParameter("--service-url cannot be combined with --subscription, which uses --url")
        if role_prefix is not None:
            raise typer.BadParameter("--subscription-role-prefix cannot be combined with --subscription")
        messages = peeked_messages(rest, topic, subscription, count)
        return Stream(
            _first(messages, count), shown_message, none=f"subscription {subscription} has no messages to read"
        )
    return Stream(_stored(rest, topic, count, service_url, role_prefix), shown_message, none=f"{topic} has no messages")


def _first(messages: Iterator[dict[str, object]], count: int) -> Iterator[dict[str, object]]:
    for _, message in zip(range(count), messages, strict=False):
        yield message


def _stored(
    rest: Rest, topic: TopicName, count: int, service_url: str | None, role_prefix: str | None
) -> Iterator[dict[str, object]]:
    from magnetar.client import EARLIEST

    with (
        client_of(rest, service_url, role_prefix) as client,
        client.reader(topic.full, EARLIEST, queue_size=count) as reader,
    ):
        for _ in range(count):
            if not reader.has_next():
                return
            yield _read(reader)


class Start(StrEnum):
    EARLIEST = "Earliest"
    LATEST = "Latest"


@group.command("consume")
def consume(
    rest: Rest,
    topic: Topic,
    subscription: Annotated[
        str,
        typer.Option(
            "--subscription-name",
            "-s",
            metavar="NAME",
            help="The subscription; created if missing.",
            show_default=False,
        ),
    ],
    count: Annotated[
        int, typer.Option("--num-messages", "-n", metavar="N", parser=whole(0), help="Stop after so many; 0 for never.")
    ] = 1,
    kind: Annotated[
        SubscriptionKind, typer.Option("--subscription-type", "-t", case_sensitive=False, help="Its type.")
    ] = SubscriptionKind.Shared,
    start: Annotated[
        Start,
        typer.Option("--subscription-position", "-p", case_sensitive=False, help="Where a new subscription starts."),
    ] = Start.LATEST,
    timeout: Annotated[
        int | None,
        typer.Option(
            "--timeout", metavar="DURATION", parser=parse_duration, help="Stop when no message came for so long."
        ),
    ] = None,
    peek_only: Annotated[bool, typer.Option("--no-ack", help="Acknowledge nothing: all are delivered again.")] = False,
    service_url: ServiceUrl = None,
) -> Stream:
    """Receive messages of a subscription, print and acknowledge each."""
    from magnetar.client import EARLIEST, LATEST

    def received() -> Iterator[dict[str, object]]:
        options: dict[str, Any] = {
            "subscription_type": kind.value,
            "initial_position": EARLIEST if start is Start.EARLIEST else LATEST,
            "queue_size": min(count or _CONSUME_QUEUE, _CONSUME_QUEUE),  # others get what is not printed here
        }
        with (
            client_of(rest, service_url) as client,
            client.consumer(topic.full, subscription, **options) as consumer,
        ):
            yield from _received(consumer, count, timeout, acknowledges=not peek_only)

    return Stream(received(), shown_message, none=f"subscription {subscription} has no messages to read")


def _received(
    consumer: Consumer, count: int, timeout_s: int | None, *, acknowledges: bool
) -> Iterator[dict[str, object]]:
    from magnetar.client.errors import EndOfTopic, Timeout, UnreadableMessage

    seen = 0
    while not count or seen < count:
        try:
            message = consumer.receive(timeout_s)
        except (Timeout, EndOfTopic):
            return
        except UnreadableMessage as error:  # not acknowledged: it is for a client that can read it
            yield {"id": str(error.message_id), "topic": error.topic, "value": None, "error": str(error)}
        else:
            yield described(message)
            if acknowledges:
                consumer.acknowledge(message)
        seen += 1


@group.command("tail")
def tail(
    rest: Rest,
    topic: Topic,
    from_start: Annotated[bool, typer.Option("--from-start", help="Begin with the first stored message.")] = False,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", metavar="N", parser=whole(1), help="Stop after this many messages.", show_default="never"
        ),
    ] = None,
    service_url: ServiceUrl = None,
    role_prefix: RolePrefix = None,
) -> Stream:
    """Show messages as they arrive, until interrupted or the topic is terminated."""
    from magnetar.client import EARLIEST, LATEST
    from magnetar.client.errors import EndOfTopic

    def followed() -> Iterator[dict[str, object]]:
        start = EARLIEST if from_start else LATEST
        with client_of(rest, service_url, role_prefix) as client, client.reader(topic.full, start) as reader:
            seen = 0
            while count is None or seen < count:
                try:
                    yield _read(reader)
                except EndOfTopic:
                    return
                seen += 1

    return Stream(followed(), shown_message)


def _read(reader: Reader) -> dict[str, object]:
    """The next message, or the reason why it cannot be read."""
    from magnetar.client.errors import UnreadableMessage

    try:
        return described(reader.read())
    except UnreadableMessage as error:
        return {"id": str(error.message_id), "topic": error.topic, "value": None, "error": str(error)}


def _now_ms() -> int:
    return clock.time_ns() // 1_000_000

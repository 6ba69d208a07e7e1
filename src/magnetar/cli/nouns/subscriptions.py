"""`magnetar subscriptions …`: subscriptions, their positions, backlog and policies."""

from __future__ import annotations

import time as clock
from typing import Annotated, Any

import typer

from magnetar.cli.argument import (
    LATEST,
    MessagePosition,
    Properties,
    Subscription,
    Topic,
    parse_duration,
    parse_position,
    parse_time,
    properties_of,
    whole,
)
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Page, Record, Stream, Table, counted
from magnetar.cli.path import is_partitioned, subscription_path, topic_path
from magnetar.cli.policies.commands import add_subscription_policies
from magnetar.cli.rest import Rest
from magnetar.cli.views.damage import shown_skip
from magnetar.cli.views.messages import peeked_messages, shown_message
from magnetar.cli.views.stats import problems_of, subscriptions_table

group = CommandGroup("subscriptions", "Manage the subscriptions of topics.")

PositionOption = Annotated[
    MessagePosition | None,
    typer.Option(
        "--messageId",
        "-m",
        metavar="POSITION",
        parser=parse_position,
        help="The position: earliest, latest or ledger:entry.",
    ),
]
Exclude = Annotated[bool, typer.Option("--exclude-reset-position", "-e", help="Exclude the message itself.")]
TimeOption = Annotated[
    int | None,
    typer.Option(
        "--time", "-t", metavar="DURATION", parser=parse_duration, help="The time to go back: 90s, 5m, 3h, 2d."
    ),
]
DateOption = Annotated[
    int | None,
    typer.Option("--datetime", "-d", metavar="TIME", parser=parse_time, help="The time: 2026-01-31T18:00:00Z."),
]
PEEK_DEFAULT = 1


@group.command("list")
def list_subscriptions(rest: Rest, topic: Topic) -> Page:
    """List the subscriptions of a topic with their state and backlog."""
    if is_partitioned(rest, topic):
        stats = rest.get(*topic_path(topic, "partitioned-stats"), query={"perPartition": False})
    else:
        stats = rest.get(*topic_path(topic, "stats"))
    table = subscriptions_table(stats)
    value = [{"name": name, **one} for name, one in sorted(stats["subscriptions"].items())]
    shown = Table(value, table.columns, table.rows, none=f"{topic} has no subscriptions")
    return Page(value, [shown, *problems_of(stats["subscriptions"])])


@group.command("create")
def create(
    rest: Rest,
    topic: Topic,
    subscription: Subscription,
    message_id: PositionOption = None,
    properties: Properties = None,
    replicated: Annotated[
        bool, typer.Option("--replicated", "-r", help="Replicate its position to other clusters.")
    ] = False,
) -> Done:
    """Create a subscription, at the latest position unless another is given."""
    body: dict[str, object] = {**(LATEST if message_id is None else message_id).body()}
    if properties:
        body["properties"] = properties_of(properties)
    rest.put(*subscription_path(topic, subscription), body=body, query={"replicated": replicated})
    return Done(f"created subscription {subscription} of {topic}")


@group.command("delete")
def delete(
    rest: Rest,
    topic: Topic,
    subscription: Subscription,
    force: Annotated[bool, typer.Option("--force", "-f", help="Disconnect its consumers first.")] = False,
) -> Done:
    """Delete a subscription with its backlog."""
    rest.delete(*subscription_path(topic, subscription), query={"force": force})
    return Done(f"deleted subscription {subscription} of {topic}")


@group.command("skip")
def skip(
    rest: Rest,
    topic: Topic,
    subscription: Subscription,
    count: Annotated[int, typer.Option("--count", "-n", metavar="N", parser=whole(1), help="The number of messages.")],
) -> Done:
    """Skip the next messages of a subscription."""
    rest.post(*subscription_path(topic, subscription, "skip", str(count)))
    return Done(f"skipped {counted(count, 'message')} of {subscription}")


@group.command("skip-all")
def skip_all(rest: Rest, topic: Topic, subscription: Subscription) -> Done:
    """Skip all messages of a subscription."""
    rest.post(*subscription_path(topic, subscription, "skip_all"))
    return Done(f"skipped all messages of {subscription}")


@group.command("skip-damaged")
def skip_damaged(rest: Rest, topic: Topic, subscription: Subscription) -> Record:
    """Skip messages that cannot be read; a subscription without a readable position starts over."""
    value = rest.post(*subscription_path(topic, subscription, "skipDamaged"))
    return Record(value, fields={name: shown_skip(one) for name, one in value.items()})


@group.command("reset")
def reset(
    rest: Rest,
    topic: Topic,
    subscription: Subscription,
    time: TimeOption = None,
    datetime: DateOption = None,
    message_id: PositionOption = None,
    exclude: Exclude = False,
) -> Done:
    """Reset a subscription to a time or a message; its consumers reconnect."""
    _exactly_one({"--time": time, "--datetime": datetime, "--messageId": message_id})
    if message_id is not None:
        body = {**message_id.body(), "excluded": exclude}
        rest.post(*subscription_path(topic, subscription, "resetcursor"), body=body)
    elif exclude:
        raise typer.BadParameter("--exclude-reset-position needs --messageId")
    else:
        timestamp = datetime if datetime is not None else max(0, _now_ms() - (time or 0) * 1000)
        rest.post(*subscription_path(topic, subscription, "resetcursor", str(timestamp)))
    return Done(f"reset subscription {subscription} of {topic}")


@group.command("expire")
def expire(
    rest: Rest,
    topic: Topic,
    subscription: Annotated[
        str | None, typer.Argument(metavar="SUBSCRIPTION", help="A subscription.", show_default="all of the topic")
    ] = None,
    time: Annotated[
        int | None,
        typer.Option(
            "--expireTime",
            "-t",
            metavar="DURATION",
            parser=parse_duration,
            help="The age of messages to expire: 5m, 3h, 2d.",
        ),
    ] = None,
    message_id: Annotated[
        MessagePosition | None,
        typer.Option(
            "--position",
            "-p",
            metavar="POSITION",
            parser=parse_position,
            help="The last message to expire: ledger:entry.",
        ),
    ] = None,
    exclude: Exclude = False,
) -> Done:
    """Expire messages that are older than a time, or up to a position."""
    _exactly_one({"--expireTime": time, "--position": message_id})
    if message_id is not None:
        if subscription is None:
            raise typer.BadParameter("--position needs a subscription")
        body = {**message_id.body(), "excluded": exclude}
        rest.post(*subscription_path(topic, subscription, "expireMessages"), body=body)
    elif subscription is None:
        rest.post(*topic_path(topic, "all_subscription", "expireMessages", str(time)))
    else:
        rest.post(*subscription_path(topic, subscription, "expireMessages", str(time)))
    return Done(f"expired messages of {subscription or f'all subscriptions of {topic}'}")


@group.command("peek")
def peek(
    rest: Rest,
    topic: Topic,
    subscription: Subscription,
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", parser=whole(1), help="The number of entries.")
    ] = PEEK_DEFAULT,
) -> Stream:
    """Show the next messages of a subscription, without consuming them."""
    messages = peeked_messages(rest, topic, subscription, count)
    return Stream(messages, shown_message, none=f"subscription {subscription} has no messages to read")


@group.command("analyze-backlog")
def analyze_backlog(
    rest: Rest,
    topic: Topic,
    subscription: Subscription,
    position: Annotated[
        MessagePosition | None,
        typer.Option(
            "--position",
            "-p",
            metavar="POSITION",
            parser=parse_position,
            help="The first message to count: ledger:entry.",
        ),
    ] = None,
) -> Record:
    """Count the messages in the backlog of a subscription by reading them."""
    body = None if position is None else position.body()
    value: dict[str, Any] = rest.post(*subscription_path(topic, subscription, "analyzeBacklog"), body=body)
    return Record(value)


@group.command("properties")
def properties(rest: Rest, topic: Topic, subscription: Subscription) -> Record:
    """Show the properties of a subscription."""
    return Record(
        rest.get(*subscription_path(topic, subscription, "properties")), none=f"{subscription} has no properties"
    )


@group.command("update-properties")
def update_properties(
    rest: Rest,
    topic: Topic,
    subscription: Subscription,
    properties: Properties = None,
    clear: Annotated[bool, typer.Option("--clear", "-c", help="Remove all properties.")] = False,
) -> Done:
    """Replace the properties of a subscription."""
    if bool(properties) == clear:
        raise typer.BadParameter("give either --property or --clear")
    rest.put(*subscription_path(topic, subscription, "properties"), body=properties_of(properties))
    return Done(f"updated the properties of {subscription}")


@group.command("pause")
def pause(
    rest: Rest,
    topic: Topic,
    subscription: Subscription,
    reason: Annotated[
        str | None, typer.Option("--reason", "-r", metavar="TEXT", help="The reason shown in the statistics.")
    ] = None,
) -> Done:
    """Stop delivery to the consumers of a subscription until it is resumed."""
    rest.post(*subscription_path(topic, subscription, "pause"), body={"reason": reason} if reason else None)
    return Done(f"paused {subscription} of {topic}")


@group.command("resume")
def resume(rest: Rest, topic: Topic, subscription: Subscription) -> Done:
    """Resume delivery after `pause` or after a circuit breaker paused it."""
    rest.post(*subscription_path(topic, subscription, "resume"))
    return Done(f"resumed {subscription} of {topic}")


add_subscription_policies(group)


def _exactly_one(options: dict[str, object]) -> None:
    given = [name for name, value in options.items() if value is not None]
    if len(given) != 1:
        raise typer.BadParameter(f"give exactly one of {', '.join(options)}")


def _now_ms() -> int:
    return clock.time_ns() // 1_000_000

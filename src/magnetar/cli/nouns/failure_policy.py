"""The commands of `magnetar subscriptions` about messages that fail: dead letters, back-off, circuit breaker, pausing.

Owns their options and the spelling of their bodies. What they mean is the broker's affair; Apache Pulsar has none.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from magnetar.cli.argument import (
    INT_MAX,
    Subscription,
    Topic,
    names_in,
    parse_duration,
    parse_topic,
    whole,
)
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Record
from magnetar.cli.path import topic_path
from magnetar.cli.rest import Rest
from magnetar.names import TopicName

MS_PER_SECOND = 1000


def parse_waits(text: str) -> list[int]:
    """Milliseconds, of a list with commas: 500ms, 1s, 10s, 1m."""
    waits = []
    for word in names_in(text):
        number = word.lower().removesuffix("ms")
        if number != word.lower() and number.isascii() and number.isdecimal() and len(number) <= 18:
            waits.append(int(number))
        else:
            waits.append(parse_duration(word) * MS_PER_SECOND)
    if not waits:
        raise typer.BadParameter("give at least one time, such as 1s,10s,1m")
    return waits


MaxRedeliverCount = Annotated[
    int,
    typer.Option(
        "--max-redeliver-count",
        "-m",
        metavar="N",
        parser=whole(1, INT_MAX),
        help="A message that failed more often becomes a dead letter.",
    ),
]
DeadLetterTopic = Annotated[
    TopicName | None,
    typer.Option(
        "--dead-letter-topic",
        "-t",
        metavar="TOPIC",
        parser=parse_topic,
        help="Where dead letters go.",
        show_default="TOPIC-SUBSCRIPTION-DLQ",
    ),
]
InitialSubscription = Annotated[
    str | None,
    typer.Option(
        "--initial-subscription-name", "-i", metavar="NAME", help="A subscription that the dead letter topic gets."
    ),
]
Waits = Annotated[
    Any,  # a list; Typer would ask for its items one by one
    typer.Option(
        "--delays",
        "-d",
        metavar="TIME,…",
        parser=parse_waits,
        help="After the first failure, the second, ..., such as 500ms,1s,10s,1m; the last one holds from then on.",
    ),
]
Percent = Annotated[
    int,
    typer.Option("--percent", "-p", metavar="N", parser=whole(0, 99), help="Pause if more of the messages are dead."),
]
Window = Annotated[
    int | None,
    typer.Option(
        "--window",
        "-w",
        metavar="TIME",
        parser=parse_duration,
        help="Of those finished within this time.",
        show_default="1m",
    ),
]
Minimum = Annotated[
    int, typer.Option("--minimum", "-n", metavar="N", parser=whole(1), help="But not if there were fewer in it.")
]
Reason = Annotated[str | None, typer.Option("--reason", "-r", metavar="TEXT", help="What the statistics say of it.")]


def policy_body(count: int, topic: TopicName | None, subscription: str | None) -> dict[str, object]:
    """A policy of dead letters as the REST API takes it."""
    body: dict[str, object] = {"maxRedeliverCount": count}
    if topic is not None:
        body["deadLetterTopic"] = topic.full
    if subscription:
        body["initialSubscriptionName"] = subscription
    return body


def _path(topic: TopicName, subscription: str, what: str) -> tuple[str, ...]:
    return topic_path(topic, "subscription", subscription, what)


def add_failure_policy_commands(group: CommandGroup) -> None:
    _add_policy(group)
    _add_backoff(group)
    _add_breaker(group)
    _add_pausing(group)


def _add_policy(group: CommandGroup) -> None:
    @group.command("get-dead-letter-policy")
    def get_policy(rest: Rest, topic: Topic, subscription: Subscription) -> Record:
        """Show when messages of a subscription become dead letters, and who said so."""
        value = rest.get(*_path(topic, subscription, "deadLetterPolicy"))
        return Record(value, none=f"{subscription} has no dead letter policy, nor has its namespace")

    @group.command("set-dead-letter-policy")
    def set_policy(
        rest: Rest,
        topic: Topic,
        subscription: Subscription,
        max_redeliver_count: MaxRedeliverCount,
        dead_letter_topic: DeadLetterTopic = None,
        initial_subscription_name: InitialSubscription = None,
    ) -> Done:
        """Let the broker move messages that fail too often to a dead letter topic, whatever client reads them."""
        body = policy_body(max_redeliver_count, dead_letter_topic, initial_subscription_name)
        rest.post(*_path(topic, subscription, "deadLetterPolicy"), body=body)
        return Done(f"set dead-letter-policy of {subscription}")

    @group.command("remove-dead-letter-policy")
    def remove_policy(rest: Rest, topic: Topic, subscription: Subscription) -> Done:
        """Remove the dead letter policy of a subscription; that of its namespace holds then."""
        rest.delete(*_path(topic, subscription, "deadLetterPolicy"))
        return Done(f"removed dead-letter-policy of {subscription}")


def _add_backoff(group: CommandGroup) -> None:
    @group.command("get-redelivery-backoff")
    def get_backoff(rest: Rest, topic: Topic, subscription: Subscription) -> Record:
        """Show how long failed messages of a subscription wait, in milliseconds, after each failure."""
        value = rest.get(*_path(topic, subscription, "redeliveryBackoff"))
        return Record(value, none=f"{subscription} delivers failed messages again at once")

    @group.command("set-redelivery-backoff")
    def set_backoff(rest: Rest, topic: Topic, subscription: Subscription, delays: Waits) -> Done:
        """Let failed messages of a subscription wait before they are delivered again."""
        rest.post(*_path(topic, subscription, "redeliveryBackoff"), body=delays)
        return Done(f"set redelivery-backoff of {subscription}")

    @group.command("remove-redelivery-backoff")
    def remove_backoff(rest: Rest, topic: Topic, subscription: Subscription) -> Done:
        """Deliver failed messages of a subscription again at once."""
        rest.delete(*_path(topic, subscription, "redeliveryBackoff"))
        return Done(f"removed redelivery-backoff of {subscription}")


def _add_breaker(group: CommandGroup) -> None:
    @group.command("get-circuit-breaker")
    def get_breaker(rest: Rest, topic: Topic, subscription: Subscription) -> Record:
        """Show how many dead letters pause a subscription."""
        value = rest.get(*_path(topic, subscription, "circuitBreaker"))
        return Record(value, none=f"{subscription} has no circuit breaker")

    @group.command("set-circuit-breaker")
    def set_breaker(
        rest: Rest,
        topic: Topic,
        subscription: Subscription,
        percent: Percent,
        window: Window = None,
        minimum: Minimum = 10,
    ) -> Done:
        """Pause a subscription when too many of its messages are dead, until `resume`."""
        body = {"percent": percent, "windowSeconds": 60 if window is None else window, "minimum": minimum}
        rest.post(*_path(topic, subscription, "circuitBreaker"), body=body)
        return Done(f"set circuit-breaker of {subscription}")

    @group.command("remove-circuit-breaker")
    def remove_breaker(rest: Rest, topic: Topic, subscription: Subscription) -> Done:
        """Remove the circuit breaker of a subscription; a paused one stays paused."""
        rest.delete(*_path(topic, subscription, "circuitBreaker"))
        return Done(f"removed circuit-breaker of {subscription}")


def _add_pausing(group: CommandGroup) -> None:
    @group.command("pause")
    def pause(rest: Rest, topic: Topic, subscription: Subscription, reason: Reason = None) -> Done:
        """Deliver nothing to the consumers of a subscription until it is resumed."""
        rest.post(*_path(topic, subscription, "pause"), body={"reason": reason} if reason else None)
        return Done(f"paused {subscription} of {topic}")

    @group.command("resume")
    def resume(rest: Rest, topic: Topic, subscription: Subscription) -> Done:
        """Deliver again, after `pause` or a circuit breaker."""
        rest.post(*_path(topic, subscription, "resume"))
        return Done(f"resumed {subscription} of {topic}")

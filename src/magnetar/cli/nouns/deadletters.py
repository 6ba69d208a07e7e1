"""`magnetar deadletters …`: an overview of dead letter topics; list, count and show dead letters, query and purge them.

The commands over many letters at once are in `cli.deadletters`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from magnetar.cli.argument import (
    PUBLIC_DEFAULT,
    ReadNamespace,
    ServiceUrl,
    Topic,
    parse_subscription,
    parse_topic,
    whole,
)
from magnetar.cli.command import CommandGroup
from magnetar.cli.deadletters.purge import purge
from magnetar.cli.deadletters.report import report
from magnetar.cli.deadletters.sql import sql
from magnetar.cli.output import Done, Page, Record, Table, counted
from magnetar.cli.path import topic_path
from magnetar.cli.rest import Refused, Rest
from magnetar.cli.views import dead_letter_topics
from magnetar.cli.views.dead_letters import DeadLetters, NoSuchTopic, no_page, no_stats
from magnetar.cli.views.messages import printable
from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX
from magnetar.names import TopicName

group = CommandGroup(
    "deadletters", "Inspect dead letters: what failed, where, why and how often; purge them.", default="overview"
)

group.panel = "On Spark"
for _command in (sql, report, purge):
    group.command(_command.__name__)(_command)
group.panel = "Commands"

LIMIT_DEFAULT, OVERVIEW_LIMIT, LIMIT_MAX = 20, 100, 1000
_NO_SUCH_PATH = (404, 405, 501)
_PAYLOAD_SHOWN = 60  # characters in a list

SubscriptionOption = Annotated[
    str | None,
    typer.Option(
        "--subscription",
        "-s",
        metavar="SUBSCRIPTION",
        parser=parse_subscription,
        help="TOPIC is the original topic, and this the subscription on which messages failed.",
        show_default="TOPIC is the dead letter topic",
    ),
]
After = Annotated[
    str | None,
    typer.Option("--after", "-a", metavar="ID", help="Begin after this message.", show_default="from the first"),
]


Handled = Annotated[
    bool, typer.Option("--handled", help="Include those that every durable subscription has acknowledged.")
]


def _dead_letters(
    rest: Rest, topic: TopicName, subscription: str | None, service_url: str | None, *, handled: bool = False
) -> DeadLetters:
    return DeadLetters(rest, _dead_letter_topic(rest, topic, subscription), service_url, handled=handled)


def _dead_letter_topic(rest: Rest, topic: TopicName, subscription: str | None) -> TopicName:
    """The topic itself or, with a subscription, the dead letter topic of its policy."""
    if subscription is None:
        return topic
    try:
        policy = rest.get(*topic_path(topic, "subscription", subscription, "deadLetterPolicy"))
    except Refused as error:
        if error.status not in _NO_SUCH_PATH:
            raise
        policy = None
    if policy:
        return TopicName.parse(policy["deadLetterTopic"])
    return parse_topic(f"{topic.base.full}-{subscription}{DEAD_LETTER_SUFFIX}")


def _has_none_yet(rest: Rest, topic: TopicName, subscription: str | None) -> bool:
    """Whether the dead letter topic is missing because there are no dead letters: the first one creates it."""
    return subscription is not None and subscription in rest.get(*topic_path(topic, "subscriptions"))


@group.command("overview")
def overview(
    rest: Rest,
    namespace: ReadNamespace = PUBLIC_DEFAULT,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", parser=whole(1, LIMIT_MAX), help="The number of topics.")
    ] = OVERVIEW_LIMIT,
    after: Annotated[
        str | None,
        typer.Option("--after", "-a", metavar="TOPIC", help="Begin after this topic.", show_default="from the first"),
    ] = None,
) -> Page:
    """Show the dead letter topics of a namespace, and what waits there; `magnetar deadletters` alone does the same."""
    value = dead_letter_topics.overview(rest, namespace, limit, after)
    columns = ("DEAD LETTER TOPIC", "WAITING", "HANDLED", "LAST HOUR", "OLDEST WAITING", "TOPIC", "SUBSCRIPTION")
    names = ("topic", "waiting", "handled", "lastHour", "oldest", "originTopic", "originSubscription")
    rows = [tuple(_cell(one[name]) for name in names) for one in value["topics"]]
    parts: list[Done | Table] = [Table(value, columns, rows, none=f"no dead letter topics in {namespace}")]
    if value["next"]:
        parts.append(Done(f"more with --after {value['next']}"))
    return Page(value, parts)


@group.command("list")
def list_dead_letters(
    rest: Rest,
    topic: Topic,
    subscription: SubscriptionOption = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", parser=whole(1, LIMIT_MAX), help="The number of messages.")
    ] = LIMIT_DEFAULT,
    after: After = None,
    handled: Handled = False,
    service_url: ServiceUrl = None,
) -> Page:
    """List the dead letters of a topic that wait, oldest first."""
    try:
        value = _dead_letters(rest, topic, subscription, service_url, handled=handled).page(limit, after)
    except NoSuchTopic:
        if not _has_none_yet(rest, topic, subscription):
            raise
        value = no_page()
    columns = ("ID", "TIME", "REASON", "COUNT", "TOPIC", "SUBSCRIPTION", "MESSAGE", "PAYLOAD")
    names = ("id", "time", "reason", "count", "originTopic", "originSubscription", "originMessageId")
    rows = [(*(_cell(one.get(name)) for name in names), _one_line(one)) for one in value["deadLetters"]]
    parts: list[Done | Table] = [Table(value, columns, rows, none="no dead letters")]
    if value["next"]:
        parts.append(Done(f"more with --after {value['next']}"))
    return Page(value, parts)


@group.command("stats")
def stats(
    rest: Rest,
    topic: Topic,
    subscription: SubscriptionOption = None,
    after: After = None,
    handled: Handled = False,
    service_url: ServiceUrl = None,
) -> Page:
    """Count the dead letters of a topic that wait by reason and origin, by reading them."""
    try:
        value = _dead_letters(rest, topic, subscription, service_url, handled=handled).stats(after)
    except NoSuchTopic:
        if not _has_none_yet(rest, topic, subscription):
            raise
        value = no_stats()
    reasons = {_cell(reason): count for reason, count in value["reasons"].items()}
    handled_now = {"handled": value["handled"]} if "handled" in value else {}  # Apache Pulsar does not tell
    fields = {
        "dead letters": value["deadLetters"],
        **handled_now,
        "first": value["first"],
        "last": value["last"],
        **reasons,
    }
    rows = [
        (_cell(one["topic"]), _cell(one["subscription"]), one["deadLetters"], one["first"], one["last"], one["reasons"])
        for one in value["origins"]
    ]
    columns = ("TOPIC", "SUBSCRIPTION", "DEAD LETTERS", "FIRST", "LAST", "REASONS")
    parts: list[Done | Record | Table] = [Record(value, fields=fields)]
    if rows:
        parts.append(Table(value["origins"], columns, rows))
    if value["originsLeftOut"]:
        parts.append(Done(f"{counted(value['originsLeftOut'], 'dead letter')} of further origins are not shown"))
    if value["aborted"]:
        parts.append(Done(f"stopped early: continue with --after {value['next']}"))
    return Page(value, parts)


@group.command("show")
def show(
    rest: Rest,
    topic: Topic,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The message id, as shown by list.")],
    subscription: SubscriptionOption = None,
    service_url: ServiceUrl = None,
) -> Page:
    """Show one dead letter: its properties, its failures and its payload."""
    value = _dead_letters(rest, topic, subscription, service_url).one(message_id)
    apart = {"failures", "properties", "payload"}
    fields = {name: _cell(item) for name, item in value.items() if name not in apart and item is not None}
    parts: list[Done | Record | Table] = [Record(value, fields=fields)]
    if value["properties"]:
        properties = {_cell(name): _cell(text) for name, text in value["properties"].items()}
        parts.append(Record(value["properties"], title="properties", fields=properties))
    if value["failures"]:
        names = ("topic", "subscription", "reason", "count", "first", "last", "consumer", "error")
        rows = [tuple(_cell(failure.get(name, "-")) for name in names) for failure in value["failures"]]
        parts.append(Table(value["failures"], [name.upper() for name in names], rows, title="failures"))
    parts.append(Done(_payload(value)))
    return Page(value, parts)


def _one_line(value: dict[str, Any]) -> str:
    """The beginning of a payload; large ones are not in the list."""
    if "payload" not in value:
        return "-"
    text = _text(value["payload"], indent=None)
    return printable(text if len(text) <= _PAYLOAD_SHOWN else f"{text[:_PAYLOAD_SHOWN]}…")


def _text(payload: object, *, indent: int | None) -> str:
    if payload is None:
        return "(no value)"
    return payload if isinstance(payload, str) else json.dumps(payload, indent=indent, ensure_ascii=False)


def _payload(value: dict[str, Any]) -> str:
    text = _text(value["payload"], indent=2)
    return "\n".join(printable(line) for line in text.splitlines())


def _cell(value: object) -> Any:
    """Without control characters: any client may have written the text."""
    return printable(value) if isinstance(value, str) else value

"""`magnetar deadletters purge`: acknowledges dead letters that are not needed any more, after a confirmation.

Owns the question and the numbers around it; `spark.dead_letters.purge` acknowledges.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from magnetar.cli.argument import ServiceUrl, parse_topic, whole
from magnetar.cli.deadletters.query import condition_columns
from magnetar.cli.deadletters.selection import OfNamespace, check_dead_letter_topic
from magnetar.cli.deadletters.spark import (
    CommandFailed,
    client_options,
    letter_session,
    shown_work,
)
from magnetar.cli.deadletters.sql import cell, counted_ranges, plain
from magnetar.cli.foreground import Master
from magnetar.cli.output import Done, Page, Table, counted
from magnetar.cli.rest import Rest
from magnetar.deadletter.topics import HANDLED_SUBSCRIPTION
from magnetar.errors import InvalidSetting
from magnetar.names import TopicName

if TYPE_CHECKING:
    from magnetar.spark.dead_letters.purge import ChosenLetters, Purged

_SHOWN = ("message_id", "reason", "exception", "error", "key", "payload_json")
_HEADINGS = ("ID", "REASON", "EXCEPTION", "ERROR", "KEY", "PAYLOAD")
_SHOWN_MAX = 60  # characters

DeadLetterTopic = Annotated[
    TopicName | None,
    typer.Argument(
        metavar="TOPIC",
        parser=parse_topic,
        help="A dead letter topic.",
        show_default="all of --namespace",
    ),
]
Where = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="Only those for which this condition is true.")
]
All = Annotated[bool, typer.Option("--all", help="All that wait, without a condition.")]
Yes = Annotated[
    int | None,
    typer.Option(
        "--yes",
        metavar="N",
        parser=whole(1, 2**62),
        help="Do not ask, if exactly N letters match.",
        show_default="asks for the number",
    ),
]


def purge(
    rest: Rest,
    topic: DeadLetterTopic = None,
    namespace: OfNamespace = None,
    where: Where = None,
    all_: All = False,
    yes: Yes = None,
    service_url: ServiceUrl = None,
    master: Master = None,
) -> Page | Done:
    """Acknowledge dead letters that wait, for every durable subscription of their topics, after a confirmation."""
    source = _source(topic, namespace, where, all_=all_)
    if topic is not None:
        check_dead_letter_topic(rest, topic)
    with shown_work() as work, letter_session(master, work) as session:
        from magnetar.spark.dead_letters import purge as purging
        from magnetar.spark.dead_letters.letter_session import COLUMN_NAMES, reduced
        from magnetar.spark.dead_letters.plan import plan_letters

        columns = condition_columns(where, COLUMN_NAMES) if where else set()
        if where:
            session.check(f"select 1 from letters where {where}", "--where")
        work.begin("finding dead letters")
        plan = plan_letters(source, client_options(rest, service_url))
        with reduced("--where"), work.reading(session, f"reading {counted_ranges(plan)}"):
            chosen = purging.chosen_letters(session.spark, plan, where, columns)
        count = sum(map(len, chosen))
        if not count:
            return Done("no dead letters match" if where else "no dead letters wait")
        if yes is None:
            with work.pause():
                _ask(count, session.samples(plan, where, _SHOWN, columns))
        elif yes != count:
            raise CommandFailed(f"{counted(count, 'dead letter')} match, not {yes}: nothing was changed")
        work.begin("acknowledging", total=count)
        purged = purging.purge(plan, chosen, work.advance)
    return _output(count, purged, chosen)


def _source(topic: TopicName | None, namespace: object, where: str | None, *, all_: bool) -> str:
    if (topic is None) == (namespace is None):
        raise InvalidSetting("give either a dead letter TOPIC or --namespace")
    if (where is None) == (not all_):
        raise InvalidSetting("give either --where SQL or --all, which acknowledges every dead letter that waits")
    return str(namespace) if topic is None else topic.full


def _ask(count: int, letters: Iterable[Sequence[Any]]) -> None:
    """Raises `InvalidSetting` unless the number is typed."""
    from rich.console import Console

    samples = [[cell(plain(value), _SHOWN_MAX) for value in letter] for letter in letters]
    screen = Console(file=sys.stderr, markup=False, highlight=False, emoji=False)
    Table(samples, _HEADINGS, samples).write(screen)
    if count > len(samples):
        screen.print(f"… and {count - len(samples):,} more")
    question = f"{counted(count, 'dead letter')} will be acknowledged for all subscriptions: type the number to go on: "
    print(question, end="", file=sys.stderr, flush=True)
    try:
        typed = input().strip().replace(",", "")
    except EOFError:
        print(file=sys.stderr)
        typed = ""
    if typed != str(count):
        raise InvalidSetting(f"not confirmed: type {count}, or give --yes {count}; nothing was changed")


def _output(count: int, purged: Purged, chosen: list[ChosenLetters]) -> Page:
    value = {
        "matching": count,
        "acknowledged": purged.acknowledged,
        "inBatches": purged.in_batches,
        "deleted": purged.deleted,
        "topics": {one.topic: len(one) for one in chosen},
        "subscriptionsCreated": purged.created,
    }
    parts = [Done(f"{counted(purged.acknowledged, 'dead letter')} acknowledged")]
    if purged.created:
        parts.append(
            Done(f"created subscription {HANDLED_SUBSCRIPTION} on {', '.join(purged.created)}, which had none")
        )
    if purged.deleted:
        parts.append(Done(f"{counted(purged.deleted, 'dead letter')} had been deleted with their topics"))
    if purged.in_batches:
        parts.append(
            Done(
                f"{counted(purged.in_batches, 'dead letter')} remain: other messages of their batches do not match, and"
                " this broker acknowledges whole batches"
            )
        )
    return Page(value, parts, code=1 if purged.in_batches else 0)

"""`magnetar process TOPIC`: a function or SQL over the messages of a topic, as a subscription, in the foreground.

Owns the options and what is printed at the end. Declared ones are run by the pipelines process, see `nouns.pipelines`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.cli.argument import ServiceUrl
from magnetar.cli.command import Json, rest_of
from magnetar.cli.login.login import Login
from magnetar.cli.login.options import with_login
from magnetar.cli.output import Page, Record, counted, present
from magnetar.errors import InvalidSetting

if TYPE_CHECKING:
    from magnetar.pipelines.run import Progress


class FunctionKind(StrEnum):
    """What a function takes."""

    row = "row"
    async_ = "async"
    arrow = "arrow"
    pandas = "pandas"


Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic whose messages are processed.")]
Subscription = Annotated[
    str,
    typer.Option("--subscription", "-s", metavar="NAME", help="The subscription; created at the first message."),
]
Into = Annotated[
    str | None, typer.Option("--into", metavar="TOPIC", help="The topic of results.", show_default="no results")
]
FunctionName = Annotated[
    str | None,
    typer.Option("--function", metavar="MODULE:NAME", help="A Python function, called with each message."),
]
Sql = Annotated[
    str | None, typer.Option("--sql", metavar="QUERY", help="A query over the view `messages`, instead of a function.")
]
Kind = Annotated[
    FunctionKind | None,
    typer.Option("--kind", help="What the function takes.", show_default="async for coroutines, else row"),
]
Retry = Annotated[
    str, typer.Option("--retry", metavar="10s,1m,…", help="The delays before a failed message is processed again.")
]
NoRetry = Annotated[
    list[str] | None,
    typer.Option("--no-retry", metavar="CLASS", help="Exceptions that are not retried; may be repeated."),
]
RetryTopic = Annotated[
    str | None,
    typer.Option("--retry-topic", metavar="TOPIC", help="The retry topic.", show_default="TOPIC-NAME-RETRY"),
]
DeadLetterTopic = Annotated[
    str | None,
    typer.Option("--dead-letter-topic", metavar="TOPIC", help="The dead letter topic.", show_default="TOPIC-NAME-DLQ"),
]
DeadLetterTopics = Annotated[
    list[str] | None,
    typer.Option(
        "--dead-letters-of",
        metavar="CLASS=TOPIC",
        help="The dead letter topic for some exceptions; may be repeated.",
    ),
]
TimeLimit = Annotated[
    str, typer.Option("--timeout", metavar="TIME", help="The time limit of a message, or of one call with a batch.")
]
Concurrency = Annotated[
    int, typer.Option("--concurrency", metavar="N", help="Messages at a time, for async functions, in each partition.")
]
BatchRows = Annotated[int, typer.Option("--batch-rows", metavar="N", help="Messages of one batch.")]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="The Spark master.", show_default="all cores of this machine"),
]
UntilCaughtUp = Annotated[bool, typer.Option("--until-caught-up", help="End when everything that is due is processed.")]


@with_login
def process(
    login: Login,
    topic: Topic,
    subscription: Subscription,
    into: Into = None,
    function: FunctionName = None,
    sql: Sql = None,
    kind: Kind = None,
    retry: Retry = "",
    no_retry: NoRetry = None,
    retry_topic: RetryTopic = None,
    dead_letter_topic: DeadLetterTopic = None,
    dead_letters_of: DeadLetterTopics = None,
    timeout: TimeLimit = "30s",
    concurrency: Concurrency = 100,
    batch_rows: BatchRows = 1000,
    until_caught_up: UntilCaughtUp = False,
    service_url: ServiceUrl = None,
    master: Master = None,
    json: Json = False,
) -> int:
    """Process the messages of a topic with a function or SQL.

    A message that fails is retried after each of the delays, and is then a
    dead letter; the others go on.
    """
    if bool(function) == bool(sql):
        raise InvalidSetting("give either --function or --sql")
    if sql and into is None:
        raise InvalidSetting("--sql needs --into: the rows of the query are published")
    from magnetar.cli.foreground import foreground
    from magnetar.pipelines.processing.call.function import ProcessFunction
    from magnetar.pipelines.processing.plan import plan

    chosen = plan(
        topic,
        subscription,
        into=into,
        retry=[delay for delay in retry.split(",") if delay.strip()],
        retry_topic=retry_topic,
        dead_letter_topic=dead_letter_topic,
        no_retry=no_retry or (),
        dead_letter_topics=dict(map(_by_class, dead_letters_of or ())),
        function=ProcessFunction.named(function, kind) if function else None,
        timeout=timeout,
        concurrency=concurrency,
        batch_rows=batch_rows,
    )
    with rest_of(login) as rest, foreground(rest, service_url, master, f"process {topic}") as context:
        from magnetar.pipelines.processing.run import run_plan

        found = run_plan(context, chosen, sql, until="caught-up" if until_caught_up else "stopped")
    return present(_page(found), as_json=json)


def _by_class(text: str) -> tuple[str, str]:
    name, separator, topic = text.partition("=")
    if not (name and separator and topic):
        raise InvalidSetting(f"--dead-letters-of {text!r} is not of the form CLASS=TOPIC")
    return name, topic


def _page(found: Progress) -> Page:
    value = {"messages": found.done, **found.counts}
    fields = {"messages": counted(found.done, "message"), **found.counts}
    if found.note:
        fields["waiting"] = found.note
    return Page(value, [Record(value, fields=fields)])

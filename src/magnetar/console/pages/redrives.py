"""The part of a page that sends dead letters back: a button, the question, and the progress of what was started.

Shown to a role that may declare pipelines, on a cluster that runs them. The broker decides; this only asks.
"""

from __future__ import annotations

from nicegui import ui

from magnetar.console.layout.confirm import confirmed
from magnetar.console.layout.elements import TableColumn, box, button, table, text
from magnetar.console.layout.units import NONE, count, counted
from magnetar.console.layout.view import ConsoleView, show_fault
from magnetar.console.rest.dead_letters import redrive, redrives_of
from magnetar.console.rest.errors import BrokerError
from magnetar.console.rest.model import PipelineStatusAnswer
from magnetar.names import TopicName

PROGRESS_S = 3.0
_SHOWN_MAX = 10


def show_redrives(view: ConsoleView, topic: TopicName, condition: str, number: int | None, what: str) -> None:
    """`number` is how many messages `condition` chooses, None if it is not known; `what` is the choice in words."""

    def render(found: list[PipelineStatusAnswer] | None) -> None:
        if found is not None:
            _redrives(view, topic, condition, number, what, found)

    view.part(lambda: redrives_of(view.api, topic), render, every_s=PROGRESS_S)


def _redrives(
    view: ConsoleView,
    topic: TopicName,
    condition: str,
    number: int | None,
    what: str,
    found: list[PipelineStatusAnswer],
) -> None:
    text("h2", "Redrive")
    if found:
        _progress(found)
    if number is None:
        text("p", "A redrive takes all letters, or those of a reason or a subscription: clear the text filter.", "hint")
    if not number:
        return
    outcome = box("div", "actions")

    async def start() -> None:
        subject = f"{counted(number, 'dead letter')}{' ' + what if what else ''}"
        consequence = (
            f"{subject} of {topic.base.full} will be published to the topics where they failed, for the subscriptions"
            " that failed, and acknowledged here. Letters that arrive meanwhile go too."
        )
        if not await confirmed("Redrive dead letters?", consequence, number, f"Redrive {number:,}"):
            return
        outcome.clear()
        try:
            status = await redrive(view.api, topic, condition)
        except BrokerError as error:
            with outcome:
                show_fault(view, error)
            return
        ui.notify(f"Redrive {status.name} was declared.", type="positive", position="bottom")

    with outcome:
        button(f"Redrive {counted(number, 'dead letter')}{'' if not what else ' ' + what}", start)


def _progress(found: list[PipelineStatusAnswer]) -> None:
    columns = (
        TableColumn("Redrive"),
        TableColumn("State"),
        TableColumn("Sent back", True),
        TableColumn("Of", True),
        TableColumn("Note"),
    )
    rows = [
        (
            one.name,
            one.state,
            counted(one.progress.done, "message"),
            NONE if one.progress.total is None else counted(one.progress.total, "message"),
            one.last_error or one.reason or one.progress.note or count(None),
        )
        for one in found[-_SHOWN_MAX:]
    ]
    table("Redrives of this topic", columns, rows)

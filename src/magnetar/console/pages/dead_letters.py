"""The dead letters of one topic: counts by reason, a list with filters, and redrives of all or of the filtered ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from magnetar.console.layout.elements import Cell, TableColumn, box, empty, href, link, link_cell, table, text, tiles
from magnetar.console.layout.units import NONE, count, counted, size
from magnetar.console.layout.view import ConsoleView
from magnetar.console.pages.redrives import show_redrives
from magnetar.console.rest.dead_letters import condition_of, letters_of, stats_of
from magnetar.console.rest.model import DeadLetterAnswer, DeadLetterStatsAnswer
from magnetar.console.rest.topic import parsed, segments_of
from magnetar.names import TopicName

FILTERS = {"reason": "Reason", "subscription": "Subscription", "text": "Text in key, error, consumer or id"}
_FILTER_MAX = 500


def title(view: ConsoleView) -> str:
    path = view.path
    return f"{path['tenant']}/{path['namespace']}/{path['topic']}"


def show(view: ConsoleView) -> None:
    path = view.path
    topic = parsed(path["domain"], path["tenant"], path["namespace"], path["topic"])
    if topic is None:
        empty("There is no topic of this name", "A name has the form tenant/namespace/topic.")
        return
    filters = {name: view.query.get(name, "")[:_FILTER_MAX] for name in FILTERS}
    after = view.query.get("after", "")[:100]
    with box("p"):
        link("As a topic", href("topics", *segments_of(topic)))
    view.part(lambda: stats_of(view.api, topic), lambda found: _stats(view, topic, found, filters))
    text("h2", "Letters")
    _filters(topic, filters)

    async def load() -> tuple[list[DeadLetterAnswer], str | None]:
        chosen = {"reason": filters["reason"], "subscription": filters["subscription"], "words": filters["text"]}
        return await letters_of(view.api, topic, after, **chosen)

    view.part(load, lambda found: _list(view, topic, filters, after, *found))


def _stats(view: ConsoleView, topic: TopicName, found: DeadLetterStatsAnswer, filters: Mapping[str, str]) -> None:
    tiles(
        (
            ("Waiting", counted(found.waiting, "message"), ""),
            ("Handled, still stored", counted(found.handled, "message"), ""),
            ("Oldest", view.moment(found.first), ""),
            ("Newest", view.moment(found.last), ""),
        )
    )
    if found.aborted:
        text("p", f"Counted by reason are the first {count(found.dead_letters)} messages.", "hint")
    if found.reasons:
        columns = (TableColumn("Reason"), TableColumn("Waiting", is_number=True))
        address = ("dead-letters", *segments_of(topic))
        rows = [
            (link_cell(reason, href(*address, query={"reason": reason})), counted(number, "message"))
            for reason, number in found.reasons.items()
        ]
        table("Dead letters by reason", columns, rows)
    number = _number(found, filters)
    show_redrives(view, topic, condition_of(filters["reason"], filters["subscription"]), number, _what(filters))


def _number(found: DeadLetterStatsAnswer, filters: Mapping[str, str]) -> int | None:
    """How many a redrive with these filters takes, at most; None if that is not known, or text is among them: a
    redrive knows no such filter."""
    if filters["text"] or found.aborted:
        return None if filters["text"] else found.waiting
    numbers = [found.dead_letters]
    if filters["reason"]:
        numbers.append(found.reasons.get(filters["reason"], 0))
    if filters["subscription"]:
        origins = (one for one in found.origins if one.subscription == filters["subscription"])
        numbers.append(sum(one.dead_letters for one in origins))
    return min(numbers)


def _what(filters: Mapping[str, str]) -> str:
    words = [f"of {FILTERS[name].lower()} {filters[name]!r}" for name in ("reason", "subscription") if filters[name]]
    return " and ".join(words)


def _filters(topic: TopicName, filters: Mapping[str, str]) -> None:
    address = href("dead-letters", *segments_of(topic))
    with box("form", "filters", action=address, method="get", role="search", aria_label="Filter dead letters"):
        for name, heading in FILTERS.items():
            with box("label"):
                text("span", heading)
                box("input", type="text", name=name, value=filters[name], maxlength=str(_FILTER_MAX))
        text("button", "Filter", "button", type="submit")
        if any(filters.values()):
            link("Clear", address, "button")


def _list(
    view: ConsoleView,
    topic: TopicName,
    filters: Mapping[str, str],
    after: str,
    found: list[DeadLetterAnswer],
    next_: str | None,
) -> None:
    address = ("dead-letters", *segments_of(topic))
    if not found:
        if next_ is not None:
            text("p", "None of the messages read so far matches.", "hint")
        elif any(filters.values()) or after:
            empty("No dead letter matches", "Clear the filters to see all that wait.")
        else:
            empty("No dead letter waits here", "Those that were handled are acknowledged by every subscription.")
    else:
        columns = (
            TableColumn("Message"),
            TableColumn("Time", is_short=True),
            TableColumn("Reason"),
            TableColumn("Error"),
            TableColumn("Of subscription"),
            TableColumn("Key"),
            TableColumn("Failures", is_number=True),
            TableColumn("Size", is_number=True),
        )
        table("Dead letters", columns, [_row(view, topic, one) for one in found])
    with box("nav", "paging", aria_label="Pages"):
        if after:
            link("First page", href(*address, query=filters), "button")
        if next_ is not None:
            link("Next", href(*address, query={**filters, "after": next_}), "button", rel="next")


def _row(view: ConsoleView, topic: TopicName, one: DeadLetterAnswer) -> Sequence[Cell]:
    return (
        link_cell(one.id, href("dead-letter", one.id, *segments_of(topic))),
        view.moment(one.time),
        one.reason,
        one.error or one.description or NONE,
        one.origin_subscription or NONE,
        NONE if one.key is None else one.key,
        count(one.count),
        size(one.size),
    )

"""Summary of dead letters: the SQL of the report, and its answers.

`QUERIES` are queries over the view `letters`, as for `magnetar deadletters sql`. Owns the numbers and samples that both
views of the report show, and their bounds; knows neither HTML nor a terminal. Times are compared with the `now` of the
caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Row, SparkSession

from magnetar.client.message import MessageId
from magnetar.spark.dead_letters.letters import first_rows, letters_of
from magnetar.spark.dead_letters.plan import LetterPlan, LetterRange
from magnetar.spark.source.entry_range import EntryRange

VIEW = "letters"
COLUMNS = (
    "letter_topic",
    "kind",
    "message_id",
    "topic",
    "subscription",
    "key",
    "reason",
    "description",
    "exception",
    "error",
    "fingerprint",
    "count",
    "generation",
    "published",
    "size",
)

CAUSES_MAX = 25
ORIGINS_MAX = 25
SAMPLED_CAUSES_MAX = 10
SAMPLES_EACH = 3
BINS_MAX = 90
_HOURS_MAX = 72
_EXCERPT_MAX = 2000
_TEXT_MAX = 500

QUERIES = {
    "totals": """
        select count(*) as letters, coalesce(sum(size), 0) as bytes, count(distinct fingerprint) as causes,
               count(distinct topic, subscription) as origins, count(distinct letter_topic) as dead_letter_topics,
               count_if(published >= :day) as today,
               count_if(published >= :before and published < :day) as yesterday,
               count_if(kind = 'QUARANTINE') as quarantined, count_if(reason = 'Unknown') as unknown,
               min(published) as first, max(published) as last
        from letters
    """,
    "causes": f"""
        select reason, exception, fingerprint, count(*) as letters,
               count_if(published >= :day) as today,
               count_if(published >= :before and published < :day) as yesterday,
               count(distinct topic, subscription) as origins, min(published) as first, max(published) as last,
               left(max_by(coalesce(error, description), published), {_TEXT_MAX}) as example
        from letters
        group by reason, exception, fingerprint
        order by letters desc, last desc, fingerprint
        limit {CAUSES_MAX}
    """,
    "changes": f"""
        select reason, exception, fingerprint, count(*) as letters,
               count_if(published >= :day) as today,
               count_if(published >= :before and published < :day) as yesterday,
               min(published) >= :day as is_new,
               left(max_by(coalesce(error, description), published), {_TEXT_MAX}) as example
        from letters
        group by reason, exception, fingerprint
        having today <> yesterday
        order by is_new desc, abs(today - yesterday) desc, fingerprint
        limit {CAUSES_MAX}
    """,
    "origins": f"""
        select topic, subscription, count(*) as letters, count(distinct fingerprint) as causes,
               mode(reason) as mostly, max(published) as last
        from letters
        group by topic, subscription
        order by letters desc, topic, subscription
        limit {ORIGINS_MAX}
    """,
    "hours": "select date_trunc('hour', published) as start, reason, count(*) as letters from letters group by all",
    "days": "select date_trunc('day', published) as start, reason, count(*) as letters from letters group by all",
    "samples": f"""
        select * from (
            select *, row_number() over (partition by reason, exception, fingerprint
                                         order by published desc, letter_topic, message_id) as number
            from letters
            where array_contains(:fingerprints, fingerprint)
        )
        where number <= {SAMPLES_EACH}
    """,
}


@dataclass(frozen=True)
class TimeBin:
    """The letters of one hour or day, by reason."""

    start: datetime
    reasons: dict[str, int]

    @property
    def letters(self) -> int:
        return sum(self.reasons.values())


@dataclass(frozen=True)
class Summary:
    """Rows of the queries, as dicts. `samples` are by reason, exception and fingerprint, the newest first."""

    source: str
    now: datetime
    since: str | None
    handled: bool
    totals: dict[str, Any]
    causes: list[dict[str, Any]]
    changes: list[dict[str, Any]]
    origins: list[dict[str, Any]]
    bins: list[TimeBin]
    is_hourly: bool
    bins_left_out: int
    samples: dict[tuple[Any, ...], list[dict[str, Any]]]


def cause_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["reason"], row["exception"], row["fingerprint"]


def summarize(
    spark: SparkSession, plan: LetterPlan, source: str, now: datetime, *, since: str | None = None
) -> Summary:
    """Reads the letters once. The times in the result are in UTC."""
    letters = letters_of(spark, plan, COLUMNS).persist()
    try:
        letters.createOrReplaceTempView(VIEW)
        moments = {"day": now - timedelta(days=1), "before": now - timedelta(days=2)}
        found = {name: _rows(spark.sql(QUERIES[name], args=moments)) for name in ("totals", "causes", "changes")}
        found["origins"] = _rows(spark.sql(QUERIES["origins"]))
        totals = found["totals"][0]
        is_hourly = totals["first"] is None or totals["last"] - totals["first"] <= timedelta(hours=_HOURS_MAX)
        step = timedelta(hours=1) if is_hourly else timedelta(days=1)
        bins, left_out = _bins(_rows(spark.sql(QUERIES["hours" if is_hourly else "days"])), step)
        wanted = [row["fingerprint"] for row in found["causes"][:SAMPLED_CAUSES_MAX]]
        samples = _samples(spark, plan, wanted) if wanted else {}
    finally:
        letters.unpersist()
    return Summary(
        source=source,
        now=now,
        since=since,
        handled=plan.handled,
        totals=totals,
        causes=found["causes"],
        changes=found["changes"],
        origins=found["origins"],
        bins=bins,
        is_hourly=is_hourly,
        bins_left_out=left_out,
        samples=samples,
    )


def _rows(frame: Any) -> list[dict[str, Any]]:
    return [_utc(row) for row in frame.collect()]


def _utc(row: Row) -> dict[str, Any]:
    """Spark's times are in the time zone of this process."""
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.asDict().items()
    }


def _bins(rows: Sequence[dict[str, Any]], step: timedelta) -> tuple[list[TimeBin], int]:
    """All from the first to the last one, empty ones too; of too many the last ones, and the letters of the others."""
    reasons: dict[datetime, dict[str, int]] = {}
    for row in rows:
        if row["start"] is not None:
            reasons.setdefault(row["start"], {})[row["reason"]] = row["letters"]
    if not reasons:
        return [], 0
    last = max(reasons)
    first = max(min(reasons), last - step * (BINS_MAX - 1))
    count = round((last - first) / step) + 1
    starts = [first + step * number for number in range(count)]
    left_out = sum(sum(each.values()) for start, each in reasons.items() if start < first)
    return [TimeBin(start, reasons.get(start, {})) for start in starts], left_out


def _samples(
    spark: SparkSession, plan: LetterPlan, fingerprints: list[str]
) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    rows = _rows(spark.sql(QUERIES["samples"], args={"fingerprints": fingerprints}))
    rows.sort(key=lambda row: row["number"])
    payloads = _payloads(plan, rows)
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        text, error = payloads.get((row["letter_topic"], row["message_id"]), (None, "deleted meanwhile"))
        row |= {"payload": None if text is None else text[:_EXCERPT_MAX], "payload_error": error}
        found.setdefault(cause_of(row), []).append(row)
    return found


def _payloads(plan: LetterPlan, rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], tuple[str | None, str | None]]:
    """Of single letters, read again with their payloads: decoding all of them would take longer than the rest."""
    ranges: dict[tuple[str, int, int], LetterRange] = {}
    for row in rows:
        found = MessageId.parse(row["message_id"])
        before = MessageId(found.ledger_id, found.entry_id - 1, found.partition)
        last = MessageId(found.ledger_id, found.entry_id, found.partition)
        ranges[row["letter_topic"], found.ledger_id, found.entry_id] = LetterRange(
            EntryRange(row["letter_topic"], before, last), None
        )
    read = replace(plan, ranges=tuple(ranges.values()), handled=True)
    payloads: dict[tuple[str, str], tuple[str | None, str | None]] = {}
    for batch in first_rows(read, ["letter_topic", "message_id", "payload_json", "payload_error"]):
        for topic, message_id, text, error in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            payloads[topic, message_id] = (text, error)
    return payloads

"""Replays: messages of an archive go back to topics, in the order of each source partition.

The driver reads files step by step and waits for the receipts of each step; a worker writes all rows of a source
partition. Where the targets deduplicate, sequence ids are source positions under the name of the replay, so that the
same replay, repeated or interrupted, sends each message once. Otherwise a repeated one sends messages again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from magnetar.client.errors import NotFound
from magnetar.declared.topic_set import TopicSet
from magnetar.errors import InvalidSetting
from magnetar.names import PARTITION_SUFFIX, PERSISTENT, TopicName
from magnetar.pipelines.archive.archive import own_session
from magnetar.pipelines.archive.clients import topics_of, worker_client
from magnetar.pipelines.archive.columns import ENTRY, ENTRY_ID, FILES, LEDGER
from magnetar.pipelines.archive.folder import Folder
from magnetar.pipelines.archive.layout import TOPIC as FOLDER
from magnetar.pipelines.archive.manifest import DataFile, parse_position
from magnetar.pipelines.archive.replay_task import COUNTS, Counts, ReplayPlan, written
from magnetar.pipelines.archive.selection import TimeRange, files_in, matching, read_files, time_text, topics_in
from magnetar.pipelines.archive.store import Archive
from magnetar.pipelines.run import Progress, RunContext, RunFailed
from magnetar.spark.runtime.map_in_arrow import map_in_arrow

ExactlyOnce = Literal["auto", "required", "off"]

_ERROR = re.compile(r"^(?:magnetar|pulsar)[\w.]*: (.+)$", re.MULTILINE)
"""The last line of an error of ours in a worker."""

_STEP_BYTES = 256 << 20
_STEP_S = 10.0
"""The length of a step with a rate: progress is shown after each."""

SAMPLE_VALUE_BYTES = 200


class ReplaySpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is replayed. Without `to` each message goes to its own topic. `name` makes it another replay than one with
    the same selection; `rate` is in messages per second.
    """

    path: str
    to: str | None = None
    topics: tuple[TopicSet, ...] = ()
    times: TimeRange = TimeRange()
    where: str | None = None
    rate: float | None = None
    name: str = ""
    exactly_once: ExactlyOnce = "auto"


@dataclass
class ReplayResult:
    """`read` messages are in the files of the range. `sent` are stored in targets, `known` were by an earlier run."""

    read: int = 0
    sent: int = 0
    known: int = 0
    is_exactly_once: bool = True
    notes: list[str] = field(default_factory=list)
    is_complete: bool = True


@dataclass
class Preview:
    """What a replay would send, and where to: messages by archived topic, and some of them."""

    selected: int
    topics: dict[str, int]
    targets: dict[str, str]
    samples: list[dict[str, Any]]


class Step(NamedTuple):
    """Files that are replayed together, or the entries of one ledger in one file, from and to."""

    files: list[DataFile]
    rows: int
    window: tuple[int, int] | None = None


def replay(context: RunContext, spec: ReplaySpec) -> ReplayResult:
    """Raises `InvalidSetting`, `RunFailed` and errors of the client."""
    session = own_session(context.spark)
    selected = _Selected(session, spec)
    plan, result = _plan(context, spec, selected)
    steps = list(steps_of([file for _, file in selected.files], spec.rate))
    result.read = sum(step.rows for step in steps)
    scanned = 0
    for step in steps:
        if context.is_stopping:
            result.is_complete = False
            break
        sent, known = _replayed(selected, step, plan)
        result.sent, result.known, scanned = result.sent + sent, result.known + known, scanned + step.rows
        counts = {"sent": result.sent, "known": result.known}
        context.report(Progress(scanned, result.read, counts, "sending"))
    result.is_exactly_once = plan.deduplicates
    return result


def preview(context: RunContext, spec: ReplaySpec, samples: int = 5) -> Preview:
    """Sends nothing."""
    session = own_session(context.spark)
    selected = _Selected(session, spec)
    plan, _ = _plan(context, spec, selected)
    rows = selected.rows([file for _, file in selected.files])
    topics = {row[FOLDER]: row["count"] for row in rows.groupBy(FOLDER).count().orderBy(FOLDER).collect()}
    order = ("__publishTime", LEDGER, ENTRY_ID, "__batchIndex")
    first = rows.withColumn("time_ms", F.unix_millis("__publishTime")).orderBy(*order).limit(samples).collect()
    targets = {topic: plan.targets[topic] for topic in topics}
    return Preview(sum(topics.values()), topics, targets, [_sample(row, plan) for row in first])


def _sample(row: Row, plan: ReplayPlan) -> dict[str, Any]:
    value = row["value"]
    return {
        "id": row["__messageIdText"],
        "topic": row[FOLDER],
        "target": plan.targets[row[FOLDER]],
        "publishTime": time_text(row["time_ms"]),
        "key": None if row["__key"] is None else bytes(row["__key"]).decode(errors="replace"),
        "properties": dict(row["__messageProperties"] or {}),
        "value": None if value is None else bytes(value[:SAMPLE_VALUE_BYTES]).decode(errors="replace"),
        "size": 0 if value is None else len(value),
    }


class _Selected:
    """The files and rows of a replay. A wrong condition is found here, before anything is sent."""

    def __init__(self, session: SparkSession, spec: ReplaySpec) -> None:
        if spec.rate is not None and not spec.rate > 0:
            raise InvalidSetting(f"rate {spec.rate:g} is not above 0")
        self.archive = Archive.open(Folder(session, spec.path))
        self.topics = topics_in(self.archive, spec.topics)
        self.files = files_in(self.archive, self.topics, spec.times)
        self._session, self._spec = session, spec
        self.rows([file for _, file in self.files])

    def rows(self, files: list[DataFile]) -> DataFrame:
        rows = read_files(self._session, self.archive, files) if files else self._no_rows()
        return matching(self._spec.times.of(rows), self._spec.where)

    def _no_rows(self) -> DataFrame:
        # `createDataFrame` would make this session the active one, in which no other run could register its source.
        nothing = (F.lit(None).cast(field.dataType).alias(field.name) for field in FILES.fields)
        return self._session.range(0).select(*nothing)


# -- targets


def _plan(context: RunContext, spec: ReplaySpec, selected: _Selected) -> tuple[ReplayPlan, ReplayResult]:
    result = ReplayResult()
    topics = sorted({topic for topic, _ in selected.files})
    targets = {topic: TopicName.parse(spec.to or topic).full for topic in topics}
    partitions = _partitions(context, sorted(set(targets.values())))
    kept = _kept(topics, targets, partitions, selected)
    plan = ReplayPlan(
        context.endpoint, _name(spec, selected.archive), targets, kept, _deduplicates(context, spec, targets, result),
        spec.rate,
    )  # fmt: skip
    return plan, result


def _partitions(context: RunContext, targets: Sequence[str]) -> dict[str, int]:
    """The number of partitions of each target, 0 for a topic without."""
    lookup = topics_of(context.endpoint)
    found: dict[str, int] = {}
    try:
        for target in targets:
            name = TopicName.parse(target)
            if not name.is_persistent:
                raise InvalidSetting(f"{target} is not persistent: a replay goes to topics that keep its messages")
            try:
                names = lookup.partitions(target)
            except NotFound:
                raise RunFailed(f"topic {target} does not exist: create it, or replay to another one") from None
            found[target] = 0 if names == [target] else len(names)
    finally:
        lookup.close()
    return found


def _kept(
    topics: list[str], targets: dict[str, str], partitions: dict[str, int], selected: _Selected
) -> frozenset[str]:
    """The topics whose messages go to partitions of the same number. Others are distributed by their keys."""
    highest = dict.fromkeys(topics, -1)
    for topic, file in selected.files:
        highest[topic] = max(highest[topic], file.partition)
    return frozenset(topic for topic in topics if 0 <= highest[topic] < partitions[targets[topic]])


def _deduplicates(context: RunContext, spec: ReplaySpec, targets: dict[str, str], result: ReplayResult) -> bool:
    if spec.exactly_once == "off":
        return False
    client = worker_client(context.endpoint)
    for target in sorted(set(targets.values())):
        known = client.run(client.client.deduplicates(target))
        if known:
            continue
        why = f"{target} does not deduplicate" if known is False else f"the deduplication of {target} is not known"
        if spec.exactly_once == "required":
            raise RunFailed(f"{why}, so messages cannot be replayed exactly once: enable deduplication for the topic")
        result.notes.append(f"{why}: a repeated or interrupted replay sends messages again")
        return False
    return True


def _name(spec: ReplaySpec, archive: Archive) -> str:
    """The same selection of the same archive has the same name: what it has sent is known."""
    chosen = (archive.info.id, spec.to, sorted(map(str, spec.topics)), spec.times, spec.where, spec.name)
    return f"replay.{hashlib.sha256(msgspec.json.encode(chosen)).hexdigest()[:24]}"


# -- steps


def steps_of(files: Sequence[DataFile], rate: float | None) -> Iterator[Step]:
    """Steps of about the same work. With a rate, long files are split by entries where they have one ledger."""
    if rate is not None:
        rows_max = max(1, round(rate * _STEP_S))
        for file in files:
            yield from _windows(file, rows_max)
        return
    step: list[DataFile] = []
    size = 0
    for file in files:
        if step and size + file.bytes > _STEP_BYTES:
            yield Step(step, sum(each.rows for each in step))
            step, size = [], 0
        step.append(file)
        size += file.bytes
    if step:
        yield Step(step, sum(each.rows for each in step))


def _windows(file: DataFile, rows_max: int) -> Iterator[Step]:
    first, last = parse_position(file.first), parse_position(file.last)
    entries = last.entry_id - first.entry_id + 1
    pieces = min(-(-file.rows // rows_max), entries)
    if first.ledger_id != last.ledger_id or pieces <= 1:
        yield Step([file], file.rows)
        return
    for number in range(pieces):
        low, high = (first.entry_id + entries * each // pieces for each in (number, number + 1))
        rows = file.rows * (number + 1) // pieces - file.rows * number // pieces
        yield Step([file], rows, (low, high - 1))


def _replayed(selected: _Selected, step: Step, plan: ReplayPlan) -> Counts:
    """How many messages were sent, and how many were known."""
    rows = selected.rows(step.files)
    if step.window is not None:
        rows = rows.where(F.col(ENTRY_ID).between(*step.window))
    rows = _to_write(rows, plan)
    order = ("__sourceTopic", LEDGER, ENTRY_ID, "__batchIndex")
    # All rows of a source partition in one task, by position.
    rows = rows.coalesce(1) if plan.rate is not None else rows.repartition("__sourceTopic")
    rows = rows.sortWithinPartitions(*order).drop(*order[1:])
    try:
        counts = map_in_arrow(rows, partial(written, plan), COUNTS).collect()
    except PySparkException as error:
        reasons = _ERROR.findall(str(error))
        if not reasons:
            raise
        raise RunFailed(f"the replay has failed: {reasons[-1][:500]}") from error
    return Counts(sum(row["sent"] for row in counts), sum(row["known"] for row in counts))


def _to_write(rows: DataFrame, plan: ReplayPlan) -> DataFrame:
    """The columns of the sink, with the target of each row."""
    index = F.concat(F.lit(PARTITION_SUFFIX), F.col("__partition").cast("string"))
    target = F.coalesce(*[F.when(F.col(FOLDER) == topic, F.lit(name)) for topic, name in plan.targets.items()])
    kept = F.when(F.col(FOLDER).isin(*plan.kept), index) if plan.kept else F.lit(None)
    return rows.select(
        F.concat(target, F.coalesce(kept, F.lit(""))).alias("__topic"),
        F.concat(F.lit(f"{PERSISTENT}://"), F.col(FOLDER), F.coalesce(index, F.lit(""))).alias("__sourceTopic"),
        *("value", "__key", "__orderingKey", "__messageProperties", "__eventTime", "__messageId", "__schemaVersion"),
        *(ENTRY, LEDGER, ENTRY_ID, "__batchIndex"),
    )

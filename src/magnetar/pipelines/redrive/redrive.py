"""The verb `redrive`: dead letters go back to their origins, in rounds of Spark jobs.

Owns the order of steps: choose topics, lock them, look at all letters once, then move a range of each topic per round.
Nothing outlives a run but what brokers store: a run that was killed is repeated, and finds the letters that still wait.
Letters that arrive after the start of a run wait for another one.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from magnetar.client import Client
from magnetar.clock import SystemClock
from magnetar.deadletter.redriven import ANY_ORIGIN, OriginKey
from magnetar.deadletter.topics import HANDLED_SUBSCRIPTION
from magnetar.declared.redrive import RedriveSpec
from magnetar.names import TopicName
from magnetar.pipelines.moving.lock import TopicLocks
from magnetar.pipelines.redrive.assignments import parse_assignments
from magnetar.pipelines.redrive.edit import LetterFunction, load_function
from magnetar.pipelines.redrive.forward import Forwarded, Forwarder
from magnetar.pipelines.redrive.frames import LetterFrames
from magnetar.pipelines.redrive.handled import check_free
from magnetar.pipelines.redrive.origins import OriginRules, Origins
from magnetar.pipelines.redrive.reach import out_of_reach, split_by_reach
from magnetar.pipelines.redrive.rounds import RedriveOutcome, Rounds
from magnetar.pipelines.redrive.rows import IS_QUARANTINED
from magnetar.pipelines.redrive.selection import NAMESPACE, quarantine_of, select_topics
from magnetar.pipelines.redrive.stage import RedriveStage, RedriveTarget, preview_rows
from magnetar.pipelines.run import Progress, RunContext, RunFailed
from magnetar.security.pulsar_parameters import parameters_of
from magnetar.spark.client_options import CLIENT_PREFIX
from magnetar.spark.dead_letters.cursor_admin import CursorAdmin
from magnetar.spark.dead_letters.plan import LetterPlan, LetterRange, cursor_admin, plan_letters
from magnetar.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import Row

LOCK = "magnetar.redrive"
"""The name of the producer that locks a dead letter topic."""

ORIGINS_MAX = 10_000
"""Different origins, by topic, partition and subscription, of the letters of one run."""


@dataclass(frozen=True, kw_only=True)
class RedriveOptions:
    """What a command may say beyond a declared spec.

    `name` makes sequence ids on a cluster without moves: a run that continues another one has its name. `is_trusted`:
    it runs with the rights of the person who asked for it, not with the broker's. `at_least_once` accepts targets on
    Apache Pulsar that do not deduplicate.
    """

    name: str = "redrive"
    namespace: str = NAMESPACE
    function: LetterFunction | None = None
    is_trusted: bool = True
    at_least_once: bool = False


@dataclass(frozen=True)
class Sample:
    """A letter, and the message that it would become; None if it stays, for `problem`."""

    before: dict[str, Any]
    after: dict[str, Any] | None
    target: str
    problem: str = ""


@dataclass
class _Surveyed:
    """What the letters of a run are, before anything is sent."""

    origins: Counter[OriginKey] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)  # by dead letter topic
    topics: set[str] = field(default_factory=set)  # partitions of dead letter topics
    older: Counter[str] = field(default_factory=Counter)  # out of reach, by reason

    @property
    def total(self) -> int:
        return self.origins.total() + self.quarantined.total() + self.older.total()


def run(context: RunContext, spec: RedriveSpec) -> None:
    """A redrive that a broker declares, with the broker's rights."""
    with Redrive(context, spec, RedriveOptions(is_trusted=False)) as redrive:
        redrive.run()


class Redrive:
    """One run, or its preview. Raises `RunFailed`, `InvalidSetting` or a `ClientError`, with the reason."""

    def __init__(self, context: RunContext, spec: RedriveSpec, options: RedriveOptions) -> None:
        self._context = context
        self._spec = spec
        self._given = options
        self._assignments = parse_assignments([f"{column} = {text}" for column, text in spec.set.items()])
        self._function = options.function or (load_function(spec.function) if spec.function else None)
        endpoint = context.endpoint
        self._client = Client(endpoint.service_url, security=endpoint.security, admin_url=endpoint.admin_url)
        self._options = spark_options(context)
        self._began_ms = SystemClock().now_ms()
        self._is_ours = False
        self._older: list[LetterRange] = []
        self._topics: list[str] = []

    def __enter__(self) -> Redrive:
        return self

    def __exit__(self, *reason: object) -> None:
        self._client.close()

    def run(self) -> RedriveOutcome:
        """Returns when every letter of the start is sent or stays, or when the context is stopping."""
        frames = self._frames()
        with TopicLocks(self._context.endpoint, LOCK) as locks, self._admin(frames) as admin:
            locks.take(sorted({one.span.topic for one in frames.plan.ranges}))
            surveyed = self._survey(frames, () if self._forwards else frames.plan.ranges)
            if self._forwards:
                surveyed.topics.update(self._topics)
            targets = self._targets(surveyed, admin)
            self._prepare(surveyed, targets, admin)
            waiting = sum(map(_waiting, frames.plan.ranges)) if self._forwards else 0
            outcome = RedriveOutcome(surveyed.total + waiting, kept=Counter(surveyed.older))
            stage = self._stage(surveyed, targets)
            forwarding = _Forwarding(self, frames, targets, admin) if self._forwards else None
            rounds = Rounds(self._context, self._client, frames, stage, locks, outcome, self._spec.rate, forwarding)
            rounds.run(admin)
            if rounds.has_failed:
                self._recount(outcome)
            if self._forwards and not self._context.is_stopping:
                outcome.total = outcome.done  # entries were counted before, and messages now
        self._context.report(outcome.progress("stopped" if self._context.is_stopping else "done"))
        return outcome

    def _recount(self, outcome: RedriveOutcome) -> None:
        """By the letters of the start that still wait: jobs that failed did not count what they had sent."""
        frames = self._frames()
        left = self._survey(frames, frames.plan.ranges)
        outcome.sent = max(outcome.sent, outcome.total - left.total)

    def preview(self, samples: int = 5) -> tuple[RedriveOutcome, list[Sample]]:
        """The counts that a run would end with if nothing changed, and samples; changes nothing."""
        frames = self._frames()
        with self._admin(frames) as admin:
            surveyed = self._survey(frames, frames.plan.ranges)
            targets = self._targets(surveyed, admin)
        stage = self._stage(surveyed, targets)
        return _expected(surveyed, targets, stage), self._samples(frames, stage, samples)

    # -- the letters

    def _frames(self) -> LetterFrames:
        self._context.report(Progress(note="looking for dead letters"))
        client = SinkOptions.of(self._options).client
        plan = self._plan(select_topics(self._spec.sources, self._given.namespace, self._client, client))
        frames = LetterFrames(
            self._context.spark,
            plan,
            where=self._spec.where,
            assignments=self._assignments,
            generations_max=self._spec.generations_max,
            to=self._spec.to or "",
            is_edited=bool(self._assignments) or self._function is not None,
            is_trusted=self._given.is_trusted,
            is_repeatable=bool(plan.ranges) and self._deduplicates,
            published_until_ms=self._began_ms,
        )
        frames.check()
        return frames

    def _plan(self, topics: list[str]) -> LetterPlan:
        plan = plan_letters(topics, self._options)
        if plan.ranges:
            self._is_ours = self._client.server_version(plan.ranges[0].span.topic).startswith("Magnetar")
        if self._is_ours:
            with cursor_admin(plan.options.client) as admin:
                plan, self._older = split_by_reach(plan, admin)
        self._topics = [one.span.topic for one in plan.ranges]
        return plan

    def _admin(self, frames: LetterFrames) -> CursorAdmin:
        return cursor_admin(frames.plan.options.client)

    @property
    def _forwards(self) -> bool:
        """Whether nothing is chosen or edited, so that plain letters need no columns."""
        return self._is_ours and not (self._spec.where or self._assignments or self._function)

    def _survey(self, frames: LetterFrames, ranges: Sequence[LetterRange]) -> _Surveyed:
        self._context.report(Progress(note="counting dead letters"))
        surveyed = _Surveyed()
        for row in frames.survey(self._older).collect() if self._older else ():
            surveyed.older[out_of_reach(row.letter_topic)] += row["count"]
        rows: list[Row] = frames.survey(ranges).limit(ORIGINS_MAX + 1).collect() if ranges else []
        if len(rows) > ORIGINS_MAX:
            raise RunFailed(f"the dead letters have more than {ORIGINS_MAX} different origins: choose fewer with where")
        for row in rows:
            surveyed.topics.add(row.letter_topic)
            if row[IS_QUARANTINED]:
                surveyed.quarantined[TopicName.parse(row.letter_topic).base.full] += row["count"]
            else:
                surveyed.origins[OriginKey(row.topic, row.partition, row.subscription)] += row["count"]
        return surveyed

    # -- targets

    def _targets(self, surveyed: _Surveyed, admin: CursorAdmin) -> dict[OriginKey, RedriveTarget]:
        if self._spec.to is not None:
            return {ANY_ORIGIN: RedriveTarget(TopicName.parse(self._spec.to).full)}
        edits_keys = self._function is not None or any(one.column == "key" for one in self._assignments)
        tenants = {TopicName.parse(topic).tenant for topic in surveyed.topics}
        rules = OriginRules(
            only_subscription=self._spec.only_origin_subscription,
            keeps_partition=not edits_keys,
            tenants=None if self._given.is_trusted else frozenset(tenants),
        )
        return Origins(self._client, admin, rules, is_ours=self._is_ours).targets(surveyed.origins)

    def _prepare(self, surveyed: _Surveyed, targets: dict[OriginKey, RedriveTarget], admin: CursorAdmin) -> None:
        """What a run needs: a subscription that records what is handled, and topics for quarantine."""
        for partition in sorted(surveyed.topics):
            if not admin.durable_subscriptions(partition):
                admin.create_subscription(partition, HANDLED_SUBSCRIPTION)
        for topic in map(quarantine_of, sorted(surveyed.quarantined)):
            if self._client.partition_count(topic) is None:
                self._client.create_topic(topic)
                if not self._is_ours:  # which keeps letters without a subscription
                    admin.create_subscription(topic, HANDLED_SUBSCRIPTION)
        if not self._is_ours:
            check_free(self._context.endpoint, admin, sorted(surveyed.topics))
        if self._deduplicates:
            self._check_deduplication({one.topic for one in targets.values() if one.topic}, surveyed)

    @property
    def _deduplicates(self) -> bool:
        """Whether targets recognize what they have by its sequence ids."""
        return not (self._is_ours or self._given.at_least_once)

    def _check_deduplication(self, topics: Iterable[str], surveyed: _Surveyed) -> None:
        if self._function is not None:
            raise RunFailed(
                "a function may decide otherwise the second time, so on Apache Pulsar a redrive that is interrupted"
                " could send messages twice: accept it with --at-least-once"
            )
        for topic in sorted({*topics, *map(quarantine_of, surveyed.quarantined)}):
            if self._client.deduplicates(topic) is not True:
                raise RunFailed(
                    f"{topic} does not deduplicate, so a redrive that is interrupted would send messages twice: switch"
                    " deduplication on for the topic or its namespace, or accept it with --at-least-once"
                )

    def _stage(self, surveyed: _Surveyed, targets: dict[OriginKey, RedriveTarget]) -> RedriveStage:
        return RedriveStage(
            options=self._options,
            pipeline=f"redrive.{self._given.name}/{self._choice}",
            targets=targets,
            quarantines={topic: quarantine_of(topic) for topic in self._dead_letter_topics(surveyed)},
            is_ours=self._is_ours,
            deduplicates=self._deduplicates,
            assignments=self._assignments,
            function=self._function,
        )

    @property
    def _choice(self) -> str:
        """A fingerprint of which letters are chosen, and of what they become: sequence ids of one choice say nothing of
        the letters that another one left between."""
        chosen = msgspec.structs.replace(self._spec, sources=[], rate=None)
        return hashlib.sha256(msgspec.json.encode(chosen)).hexdigest()[:12]

    def _dead_letter_topics(self, surveyed: _Surveyed) -> set[str]:
        return {TopicName.parse(topic).base.full for topic in surveyed.topics}

    # -- forwarding

    def forwarder(self, admin: CursorAdmin) -> Forwarder:
        return Forwarder(admin, self._spec.generations_max, self._began_ms)

    def find_targets(
        self, origins: Iterable[OriginKey], targets: dict[OriginKey, RedriveTarget], admin: CursorAdmin
    ) -> None:
        surveyed = _Surveyed(Counter(origins), topics=set(self._topics))
        targets.update(self._targets(surveyed, admin))

    def prepare_for(
        self,
        frames: LetterFrames,
        ranges: Sequence[LetterRange],
        targets: dict[OriginKey, RedriveTarget],
        admin: CursorAdmin,
    ) -> None:
        surveyed = self._survey(frames, ranges)
        targets.update(self._targets(surveyed, admin))
        self._prepare(surveyed, targets, admin)

    # -- preview

    def _samples(self, frames: LetterFrames, stage: RedriveStage, limit: int) -> list[Sample]:
        if not (limit and frames.plan.ranges):
            return []
        letters, rows = frames.samples(limit)
        before = [row.asDict(recursive=True) for row in letters.collect()]
        after = preview_rows(stage, rows.toArrow())
        found = {one.message_id: one for one in after}
        samples = []
        for letter in before:
            one = found.get(letter["message_id"])
            if one is not None:
                samples.append(Sample(letter, one.row, one.target, one.problem))
        return samples


class _Forwarding:
    """Forwarding for the rounds of a redrive."""

    def __init__(
        self,
        redrive: Redrive,
        frames: LetterFrames,
        targets: dict[OriginKey, RedriveTarget],
        admin: CursorAdmin,
    ) -> None:
        self._redrive = redrive
        self._frames = frames
        self._targets = targets
        self._admin = admin
        self._forwarder = redrive.forwarder(admin)

    def run(self, letters: LetterRange) -> Forwarded:
        return self._forwarder.run(letters, self._targets)

    def resolve(self, origins: set[OriginKey]) -> None:
        if len(self._targets) + len(origins) > ORIGINS_MAX:
            raise RunFailed(f"the dead letters have more than {ORIGINS_MAX} different origins: choose fewer with where")
        self._redrive.find_targets(origins, self._targets, self._admin)

    def prepare(self, ranges: Sequence[LetterRange], admin: CursorAdmin) -> None:
        self._redrive.prepare_for(self._frames, ranges, self._targets, admin)


def _waiting(letters: LetterRange) -> int:
    """Entries that wait, for the progress."""
    unacknowledged, span = letters.unacknowledged, letters.span
    entries = span.end.entry_id - span.start.entry_id
    if unacknowledged is None:
        return entries
    held = unacknowledged.ends - unacknowledged.starts + 1
    return min(entries, int(held.sum()) + len(unacknowledged.batches))


def spark_options(context: RunContext) -> dict[str, str]:
    """The client options of `format("pulsar")` for the cluster of a run."""
    endpoint = context.endpoint
    options = {"service.url": endpoint.service_url}
    if endpoint.admin_url:
        options["admin.url"] = endpoint.admin_url
    if endpoint.security is not None:
        options |= {f"{CLIENT_PREFIX}{name}": text for name, text in parameters_of(endpoint.security).items()}
    return options


def _expected(surveyed: _Surveyed, targets: dict[OriginKey, RedriveTarget], stage: RedriveStage) -> RedriveOutcome:
    outcome = RedriveOutcome(surveyed.total, kept=Counter(surveyed.older))
    for origin, count in surveyed.origins.items():
        target = targets.get(origin) or targets[ANY_ORIGIN]
        if target.problem:
            outcome.kept[target.problem] += count
        else:
            outcome.sent += count
            outcome.targets[target.topic] += count
    for topic, count in surveyed.quarantined.items():
        outcome.sent += count
        outcome.quarantined += count
        outcome.targets[stage.quarantines[topic]] += count
    return outcome

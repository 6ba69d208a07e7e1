"""A snapshot: the numbers of all topics, and what was found in each namespace, at one time.

Owns its computation, in time slices, from what is in memory. Topics that are not open stay closed: only their names
are known. Rates are those since the snapshot before, or of the broker's last minute if there is none that recent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from time import perf_counter

from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.overview.concerns import Concern, Concerns
from magnetar.admin.overview.letters import TopicLetters
from magnetar.admin.overview.model import AttentionKind, RouteRow, Severity, TopicCondition, TopicRow, Totals
from magnetar.admin.overview.stuck import Movements, Stuck
from magnetar.admin.stats.dead_letters import origin_of
from magnetar.admin.stats.replication import SEVERITY
from magnetar.broker.broker import Broker
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic import waiting
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import Topic
from magnetar.declared.model import RunState
from magnetar.health import Health
from magnetar.names import TopicName
from magnetar.replication.model import State

LETTERS_READ_MAX = 1000
"""Dead letters whose reasons are read for one snapshot; the next one reads on."""

WORST_MAX = 20
_LETTERS_AT_A_TIME = 25
_LETTER_TOPICS_MAX = 1000
_RATES_WITHIN_S = (0.5, 90.0)

_NOT_STUCK = (State.RUNNING, State.CATCHING_UP, State.STARTING, State.PAUSED)
_STATES = {state: index for index, state in enumerate(TopicCondition)}

_Counters = tuple[int, int, int, int]  # messages and bytes in, messages and bytes out
_Rates = tuple[float, float, float, float]
_NOTHING: _Counters = (0, 0, 0, 0)
_STILL: _Rates = (0.0, 0.0, 0.0, 0.0)
_Start = tuple[int, int, int]  # of a log: its ledger and first entry, and the bytes before it
_Stuck = dict[tuple[str, str, AttentionKind], list[tuple[Stuck, int]]]  # with the backlog of each partition


class MeasuredSlice(TimeSlice):
    """Time slices that add up the time between the checkpoints."""

    __slots__ = ("_began_at", "worked_s")

    def __init__(self) -> None:
        super().__init__()
        self.worked_s = 0.0
        self._began_at = perf_counter()

    async def restart(self) -> None:
        self.pause()
        await super().restart()
        self._began_at = perf_counter()

    def pause(self) -> None:
        self.worked_s += perf_counter() - self._began_at
        self._began_at = perf_counter()


@dataclass(slots=True)
class NamespacePart:
    """What a snapshot has of one namespace."""

    name: str
    totals: Totals = field(default_factory=Totals)
    rows: list[TopicRow] = field(default_factory=list)
    concerns: Concerns = field(default_factory=Concerns)
    letters_by_reason: Counter[str] = field(default_factory=Counter)
    letter_hours: dict[int, Counter[str]] = field(default_factory=dict)
    routes: Counter[str] = field(default_factory=Counter)
    worst_routes: list[RouteRow] = field(default_factory=list)
    pipelines: Counter[str] = field(default_factory=Counter)
    pipeline_concerns: Concerns = field(default_factory=Concerns)


@dataclass(slots=True)
class _Waiting:
    """Dead letters of a topic, and those of the last hour."""

    count: int = 0
    new: int = 0


@dataclass(slots=True)
class BrokerSnapshot:
    """`whole` and `orders` are what those who see all of it get, once one of them asked."""

    time_ms: int
    health: Health
    parts: dict[str, NamespacePart] = field(default_factory=dict)
    whole: bytes = b""
    orders: dict[tuple[str, bool], list[TopicRow]] = field(default_factory=dict)


class Survey:
    """Computes one snapshot after the other, and keeps what the next one needs: counters, positions, reasons read."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._counters: dict[str, _Counters] = {}
        self._next_counters: dict[str, _Counters] = {}
        self._at_ms: int | None = None
        self._movements = Movements()
        self._letters: dict[str, TopicLetters] = {}
        self._starts: dict[str, _Start] = {}
        self._next_starts: dict[str, _Start] = {}

    async def take(self, health: Health, work: MeasuredSlice) -> BrokerSnapshot:
        broker = self._broker
        now_ms = broker.clock.monotonic_ms()
        # The first snapshot of a young broker has the rates since its start.
        seconds = (broker.uptime_ms if self._at_ms is None else now_ms - self._at_ms) / 1000
        seconds = seconds if _RATES_WITHIN_S[0] <= seconds <= _RATES_WITHIN_S[1] else 0.0
        snapshot = BrokerSnapshot(broker.now_ms(), health)
        self._next_counters, self._next_starts = {}, {}
        self._movements.begin()
        for namespace in list(broker.catalog.topics_of):
            part = snapshot.parts[namespace] = NamespacePart(namespace)
            await self._add_topics(part, now_ms, seconds, work)
        self._counters, self._starts, self._at_ms = self._next_counters, self._next_starts, now_ms
        self._movements.end()
        await self._add_letters(snapshot, work)
        await self._add_routes(snapshot, work)
        await self._add_pipelines(snapshot, work)
        return snapshot

    # -- topics

    async def _add_topics(self, part: NamespacePart, now_ms: int, seconds: float, work: MeasuredSlice) -> None:
        catalog, topics = self._broker.catalog, self._broker.topics
        rows: dict[str, TopicRow] = {}
        stuck: _Stuck = {}
        has_damage = bool(catalog.damaged or self._broker.damage)
        for full in list(catalog.topics_of.get(part.name, ())):
            topic = topics.get(full)
            name = TopicName.parse(full) if topic is None else topic.name
            base, partitions = full, 0
            if name.partition >= 0 and (record := catalog.partitioned.get(name.base.full)) is not None:
                base, partitions = name.base.full, record.partitions
            row = rows.get(base)
            if row is None:
                row = rows[base] = TopicRow(topic=base, partitions=partitions)
            if topic is not None:
                self._add(row, topic, now_ms, seconds, stuck)
            if has_damage and (full in catalog.damaged or self._broker.damage.of("topic", full) is not None):
                _worsen(row, TopicCondition.DAMAGED)
            if work.is_over:
                await work.restart()
        part.rows = list(rows.values())
        for row in part.rows:
            _add_row(part.totals, row)
            if work.is_over:
                await work.restart()
        for (base, subscription, kind), found in stuck.items():
            part.concerns.add(_of_subscription(base, subscription, kind, found))
            await work.checkpoint()

    def _add(self, row: TopicRow, topic: Topic, now_ms: int, seconds: float, stuck: _Stuck) -> None:
        """The numbers of an open topic, and the subscriptions of it that do not move."""
        subscriptions = messages_out = bytes_out = 0
        rate_out = throughput_out = 0.0
        producers, consumers = len(topic.producers), 0
        if producers:
            producers -= topic.producers.replicators
        is_stuck = False
        for one in topic.subscriptions.values():
            if one.is_internal:
                continue
            subscriptions += not one.is_anonymous
            consumers += len(one.consumers)
            if not seconds:
                for consumer in one.consumers:
                    rate_out += consumer.rates[0]
                    throughput_out += consumer.rates[1]
            if not isinstance(one, Subscription):
                messages_out += sum([consumer.delivered_messages for consumer in one.consumers])
                bytes_out += sum([consumer.delivered_bytes for consumer in one.consumers])
                continue
            messages_out += one.deliveries.messages
            bytes_out += one.deliveries.bytes
            row.unacked += one.places.unacked
            row.delayed += one.places.delayed
            if not one.durable:
                continue
            backlog = one.backlog
            row.backlog += backlog
            if (backlog or one.record.paused) and not self._holds_letters(topic):
                why = self._movements.why_stuck(one, now_ms)
                if why is not None:
                    is_stuck = True
                    stuck.setdefault((row.topic, one.name, why.kind), []).append((why, backlog))
        counters = (topic.messages_in, topic.bytes_in, messages_out, bytes_out)
        rates = self._rates(topic.name.full, counters, seconds)
        if rates is None:
            rates = (topic.rates_in[0], topic.rates_in[1], rate_out, throughput_out)
        if rates is not _STILL:
            row.rate_in += rates[0]
            row.throughput_in += rates[1]
            row.rate_out += rates[2]
            row.throughput_out += rates[3]
        row.subscriptions = max(row.subscriptions, subscriptions)
        row.producers += producers
        row.consumers += consumers
        if isinstance(topic, PersistentTopic):
            row.stored_bytes += self._stored_bytes(topic)
        _worsen(row, _state_of(topic, is_stuck=is_stuck, is_used=bool(producers or consumers)))

    def _rates(self, full: str, counters: _Counters, seconds: float) -> _Rates | None:
        """`seconds` have passed since the snapshot before; 0 without one, which has no rates."""
        if counters != _NOTHING:
            self._next_counters[full] = counters
        if not seconds:
            return None
        old = self._counters.get(full, _NOTHING)
        if counters == old:
            return _STILL
        return (
            max(0, counters[0] - old[0]) / seconds,
            max(0, counters[1] - old[1]) / seconds,
            max(0, counters[2] - old[2]) / seconds,
            max(0, counters[3] - old[3]) / seconds,
        )

    def _holds_letters(self, topic: Topic) -> bool:
        return topic.name.full in self._broker.catalog.dead_letter_topics_of.get(topic.name.namespace_full, ())

    def _stored_bytes(self, topic: PersistentTopic) -> int:
        """As `stats.topic.storage_size`; where the log begins is looked up once."""
        log = topic.log
        if log.first > log.confirmed:
            return 0
        full = topic.name.full
        start = self._starts.get(full)
        if start is None or start[:2] != (topic.ledger_id, log.first):
            start = (topic.ledger_id, log.first, log.size - log.size_from(log.first))
        self._next_starts[full] = start
        return log.size - start[2]

    # -- dead letters

    async def _add_letters(self, snapshot: BrokerSnapshot, work: MeasuredSlice) -> None:
        """Reasons are read of as many letters as one snapshot may; topics take turns."""
        broker, now_ms, left, known = self._broker, self._broker.now_ms(), LETTERS_READ_MAX, self._letters
        self._letters = {}
        names = [(namespace, full) for namespace, all in broker.catalog.dead_letter_topics_of.items() for full in all]
        found: dict[str, dict[str, _Waiting]] = {}
        for namespace, full in names:
            await work.checkpoint()
            topic, part = broker.topics.get(full), snapshot.parts.get(namespace)
            if not isinstance(topic, PersistentTopic) or part is None:
                continue
            letters = known.get(full)
            if letters is None or letters.topic is not topic:
                letters = TopicLetters(topic)
            if len(self._letters) < _LETTER_TOPICS_MAX:
                self._letters[full] = letters
                letters.forget_old(now_ms)
                while left > 0 and (read := letters.read(min(left, _LETTERS_AT_A_TIME))):
                    left -= read
                    await work.checkpoint()
                _add_reasons(part, letters)
            base = topic.name.base.full if topic.name.base.full in broker.catalog.partitioned else full
            count = waiting.count(topic)
            if count:
                of_topic = found.setdefault(namespace, {}).setdefault(base, _Waiting())
                of_topic.count += count
                of_topic.new += letters.last_hour(now_ms)
        for namespace, topics in found.items():
            part = snapshot.parts[namespace]
            rows = {row.topic: row for row in part.rows}
            for base, of_topic in topics.items():
                self._add_waiting(part, base, of_topic, rows)
                await work.checkpoint()

    def _add_waiting(self, part: NamespacePart, base: str, found: _Waiting, rows: dict[str, TopicRow]) -> None:
        """To the row of the dead letter topic, and to that of the topic where they failed."""
        count, new = found.count, min(found.new, found.count)
        part.totals.dead_letters_waiting += count
        for full in {base, origin_of(self._broker, TopicName.parse(base))[0]}:
            if full in rows:
                rows[full].dead_letters += count
        text = "1 dead letter waits" if count == 1 else f"{count:,} dead letters wait"
        if new:
            text += f", {new:,} new within the last hour"
        severity: Severity = "error" if new else "warning"
        command = ("deadletters", "stats", base)
        part.concerns.add(Concern(severity, AttentionKind.DEAD_LETTERS, new or count, text, command, topic=base))

    # -- routes and pipelines

    async def _add_routes(self, snapshot: BrokerSnapshot, work: MeasuredSlice) -> None:
        broker = self._broker
        for status in broker.replication.known_statuses(broker.now_ms()):
            await work.checkpoint()
            name = TopicName.parse(status.topic)
            part = snapshot.parts.get(name.namespace_full)
            if part is None:
                continue
            part.routes[status.state.value] += 1
            if status.state in _NOT_STUCK:
                continue
            base = name.base.full if name.base.full in broker.catalog.partitioned else name.full
            row = RouteRow(base, status.remote, status.state.value, status.reason, status.backlog)
            part.worst_routes.append(row)
            if len(part.worst_routes) > 10 * WORST_MAX:
                part.worst_routes = worst_routes(part.worst_routes)
            severity: Severity = "warning" if status.state is State.WAITING else "error"
            text = f"{status.state.value}: {status.reason}" if status.reason else status.state.value
            part.concerns.add(
                Concern(
                    severity,
                    AttentionKind.REPLICATION,
                    status.backlog,
                    text,
                    ("doctor", "replication", base),
                    subject=f"{status.topic} to {status.remote}",
                    topic=base,
                )
            )

    async def _add_pipelines(self, snapshot: BrokerSnapshot, work: MeasuredSlice) -> None:
        pipelines = self._broker.pipelines
        for record in pipelines.all():
            await work.checkpoint()
            part = snapshot.parts.get(record.namespace)
            if part is None:
                continue
            status = pipelines.status(record)
            part.pipelines[status.state.value] += 1
            if status.state is RunState.FAILED:
                reason = (status.reason or status.last_error)[:300]
                text = f"{record.verb} failed: {reason}" if reason else f"{record.verb} failed"
                command = ("pipelines", "show", record.namespace, record.name)
                part.pipeline_concerns.add(
                    Concern("error", AttentionKind.PIPELINE, 0, text, command, subject=record.full)
                )


def worst_routes(rows: list[RouteRow]) -> list[RouteRow]:
    order = {state.value: index for index, state in enumerate(SEVERITY)}
    return sorted(rows, key=lambda row: (-order.get(row.state, 0), -row.backlog, row.topic))[:WORST_MAX]


def _add_reasons(part: NamespacePart, letters: TopicLetters) -> None:
    part.letters_by_reason.update(letters.waiting_by_reason())
    for hour, reasons in letters.hours.items():
        part.letter_hours.setdefault(hour, Counter()).update(reasons)


def _add_row(totals: Totals, row: TopicRow) -> None:
    totals.add(row)
    totals.topics += 1
    totals.partitioned_topics += bool(row.partitions)
    totals.unloaded += row.state is TopicCondition.UNLOADED


def _state_of(topic: Topic, *, is_stuck: bool, is_used: bool) -> TopicCondition:
    if is_stuck:
        return TopicCondition.STUCK
    if topic.is_terminated:
        return TopicCondition.TERMINATED
    return TopicCondition.ACTIVE if is_used else TopicCondition.IDLE


def _worsen(row: TopicRow, state: TopicCondition) -> None:
    if row.state is TopicCondition.UNLOADED or _STATES[state] > _STATES[row.state]:
        row.state = state


def _of_subscription(base: str, subscription: str, kind: AttentionKind, found: list[tuple[Stuck, int]]) -> Concern:
    """The same of several partitions is one concern."""
    stuck, backlog = found[0][0], sum(backlog for _, backlog in found)
    waits = f"{_counted(backlog, 'message')} in its backlog" if backlog else ""
    if len(found) > 1:
        waits += f" of {len(found)} partitions"
    text = f"{stuck.text}; {waits}" if waits else stuck.text
    is_paused = kind is AttentionKind.PAUSED
    command = ("subscriptions", "resume", base, subscription) if is_paused else ("subscriptions", "list", base)
    return Concern(stuck.severity, kind, backlog, text, command, topic=base, subscription=subscription)


def _counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"

"""The overview of what a caller sees: sums over its namespaces, and the worst of what was found in them."""

from __future__ import annotations

from collections import Counter

from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.overview.concerns import Concern, Concerns
from magnetar.admin.overview.letters import HOUR_MS, HOURS_KEPT
from magnetar.admin.overview.model import (
    AttentionKind,
    CheckOutcome,
    DeadLetterCounts,
    DeadLetterHour,
    HealthVerdict,
    NamespaceRow,
    Overview,
    Pipelines,
    ReasonWaiting,
    Replication,
    RouteRow,
    Totals,
)
from magnetar.admin.overview.snapshot import BrokerSnapshot, NamespacePart, worst_routes
from magnetar.admin.overview.visible import Seen
from magnetar.broker.broker import Broker
from magnetar.health import Health
from magnetar.version import __version__

NAMESPACES_MAX = 100
REASONS_MAX = 50
_CHECKS = {"disk": (AttentionKind.DISK, ("brokers", "disk")), "damage": (AttentionKind.DAMAGE, ("brokers", "damaged"))}


class _Sums:
    """Added up over the namespaces that a caller sees."""

    def __init__(self) -> None:
        self.totals = Totals()
        self.reasons: Counter[str] = Counter()
        self.letters = 0  # whose reasons the caller may see
        self.hours: dict[int, Counter[str]] = {}
        self.routes: Counter[str] = Counter()
        self.worst: list[RouteRow] = []
        self.pipelines: Counter[str] = Counter()
        self.concerns = Concerns()

    def add(self, part: NamespacePart, *, sees_reasons: bool, sees_pipelines: bool) -> None:
        totals, own = self.totals, part.totals
        totals.add(own)
        totals.topics += own.topics
        totals.partitioned_topics += own.partitioned_topics
        totals.unloaded += own.unloaded
        totals.dead_letters_waiting += own.dead_letters_waiting
        self.routes.update(part.routes)
        self.worst += part.worst_routes
        self.concerns.add_all(part.concerns)
        if sees_reasons:
            self.letters += own.dead_letters_waiting
            self.reasons.update(part.letters_by_reason)
            for hour, reasons in part.letter_hours.items():
                self.hours.setdefault(hour, Counter()).update(reasons)
        if sees_pipelines:
            self.pipelines.update(part.pipelines)
            self.concerns.add_all(part.pipeline_concerns)

    def dead_letters(self, now_ms: int) -> DeadLetterCounts:
        """The last 24 hours, each of them; reasons beyond the limit are not counted one by one."""
        by_reason = [ReasonWaiting(reason, count) for reason, count in self.reasons.most_common(REASONS_MAX)]
        this_hour = now_ms // HOUR_MS
        hours = [hour * HOUR_MS for hour in range(this_hour - HOURS_KEPT + 1, this_hour + 1)]
        return DeadLetterCounts(
            by_reason,
            [DeadLetterHour(hour, dict(self.hours.get(hour, ()))) for hour in hours],
            max(0, self.letters - sum(one.waiting for one in by_reason)),
        )


async def overview_of(broker: Broker, snapshot: BrokerSnapshot, seen: Seen, time_slice: TimeSlice) -> Overview:
    sums = _Sums()
    for part, sees_reasons, sees_pipelines in seen.parts:
        sums.add(part, sees_reasons=sees_reasons, sees_pipelines=sees_pipelines)
        if len(sums.worst) > 1000:
            sums.worst = worst_routes(sums.worst)
        await time_slice.checkpoint()
    for concern in _of_health(snapshot.health):
        sums.concerns.add(concern)
    _add_damage(broker, sums.concerns, seen)
    worst = sums.concerns.worst_first()
    namespaces = sorted((part for part, *_ in seen.parts), key=_size, reverse=True)[:NAMESPACES_MAX]
    return Overview(
        time=snapshot.time_ms,
        cluster=broker.settings.clusterName,
        version=__version__,
        uptime_s=broker.uptime_ms / 1000,
        health=_verdict(snapshot.health),
        totals=sums.totals,
        namespaces=[_namespace(part) for part in namespaces],
        namespaces_left_out=len(seen.parts) - len(namespaces),
        dead_letters=sums.dead_letters(snapshot.time_ms),
        replication=Replication(dict(sums.routes), worst_routes(sums.worst)),
        pipelines=Pipelines(dict(sums.pipelines)),
        attention=[concern.attention() for concern in worst],
        attention_left_out=sums.concerns.count - len(worst),
    )


def _size(part: NamespacePart) -> tuple[int, int, str]:
    return part.totals.stored_bytes, part.totals.topics, part.name


def _namespace(part: NamespacePart) -> NamespaceRow:
    totals = part.totals
    return NamespaceRow(
        name=part.name,
        topics=totals.topics,
        rate_in=totals.rate_in,
        rate_out=totals.rate_out,
        backlog=totals.backlog,
        stored_bytes=totals.stored_bytes,
        dead_letters_waiting=totals.dead_letters_waiting,
    )


def _verdict(health: Health) -> HealthVerdict:
    checks = [CheckOutcome(one.name, one.state, one.reason) for one in health.checks if one.state != "ok"]
    return HealthVerdict(health.state(), checks)


def _of_health(health: Health) -> list[Concern]:
    """Probes are for everybody, and so are their reasons, which name nothing of a tenant."""
    found = []
    for one in health.checks:
        if one.state != "ok":
            kind, command = _CHECKS.get(one.name, (AttentionKind.HEALTH, ("brokers", "status")))
            severity = "error" if one.state == "failed" else "warning"
            found.append(Concern(severity, kind, 0, one.reason, command, subject=one.name))  # type: ignore[arg-type]
    return found


def _add_damage(broker: Broker, concerns: Concerns, seen: Seen) -> None:
    """What belongs to a namespace is shown to those who see it, the rest to super users."""
    names = {part.name for part, *_ in seen.parts}
    for one in broker.damage.all():
        namespace = _namespace_of(one.name) if one.kind in ("topic", "subscription") else ""
        if not seen.is_all and namespace not in names:
            continue
        command = ("doctor", "topics", namespace) if namespace in names else ("brokers", "damaged")
        text = f"the {one.kind} cannot be read: {one.reason}"
        topic = one.name if namespace else ""
        concerns.add(
            Concern(
                "error",
                AttentionKind.DAMAGE,
                1,
                text,
                command,
                subject=one.title,
                topic=topic,
                subscription=one.subscription,
            )
        )


def _namespace_of(full: str) -> str:
    return "/".join(full.partition("://")[2].split("/", 2)[:2])

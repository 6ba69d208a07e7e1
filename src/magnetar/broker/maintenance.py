"""Maintenance: rounds over all topics that trim, expire, enforce quotas, update rates and close what is deserted.

Owns when a round runs, and that a topic that fails costs no other topic its round. What a round does to a topic is the
topic's. Knows no timers but those of the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.broker.damage_list import UNREADABLE, DamageReport
from magnetar.broker.rates import RATES_EVERY_MS
from magnetar.broker.topic import backlog_quota
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.errors import MagnetarError
from magnetar.names import TopicName

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker

_TOPICS_PER_SWEEP = 200  # in a round over all topics, so that no round blocks the loop for long
_FORGET_PRODUCERS_EVERY_MS = 10 * 60_000
_CHECK_DAMAGE_EVERY_MS = 60_000
_CLOSE_DESERTED_EVERY_MS = 60_000

Action = Callable[[PersistentTopic], None]


class Maintenance:
    """Scheduled for good by `start`: every round schedules the next one before it does anything else."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._failing: set[tuple[str, str]] = set()  # round and topic: the log has each once, not in every round

    def start(self) -> None:
        settings = self._broker.settings
        self._repeat("retention", settings.retentionCheckIntervalInSeconds * 1000, self._trim)
        self._repeat("expiry", settings.messageExpiryCheckIntervalInMinutes * 60_000, self._expire)
        if settings.backlogQuotaCheckEnabled:
            self._repeat("quota", settings.backlogQuotaCheckIntervalInSeconds * 1000, self._enforce_quota)
        self._repeat("producers", _FORGET_PRODUCERS_EVERY_MS, self._forget_idle_producers)
        self._after(RATES_EVERY_MS, self._update_rates)
        self._after(_CHECK_DAMAGE_EVERY_MS, self._check_damage)
        self._after(_CLOSE_DESERTED_EVERY_MS, self._close_deserted)

    def _after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._broker.wake_after(delay_ms, action)

    def _repeat(self, name: str, every_ms: int, action: Action) -> None:
        def round_trip() -> None:
            self._after(every_ms, round_trip)
            self._sweep(name, list(self._broker.catalog.topics), lambda full: self._visit(full, action))

        self._after(every_ms, round_trip)

    def _sweep(self, name: str, topics: list[str], visit: Callable[[str], None]) -> None:
        """A round over topics, some per turn."""
        rest = topics[_TOPICS_PER_SWEEP:]
        if rest:
            self._after(0, lambda: self._sweep(name, rest, visit))
        for full in topics[:_TOPICS_PER_SWEEP]:
            self.guard(name, full, lambda full=full: visit(full))  # type: ignore[misc]

    def _visit(self, full: str, action: Action) -> None:
        """Closed topics are opened, so that none is left out."""
        if full not in self._broker.catalog.topics:
            return
        try:
            topic = self._broker.topic(TopicName.parse(full))
        except MagnetarError:
            return  # being unloaded, or not served by this broker: a client that asks for it gets the reason
        if isinstance(topic, PersistentTopic):
            action(topic)

    def guard(self, name: str, where: str, action: Callable[[], None]) -> None:
        """Runs the part of a round that concerns `where`; its failure is reported once, until it succeeds again."""
        try:
            action()
        except UNREADABLE as error:
            self._broker.damage.note("topic", where, error)
        except Exception as error:
            if (name, where) not in self._failing:
                self._failing.add((name, where))
                self._broker.fault("maintenance", error, f"{name} of {where}")
        else:
            self._failing.discard((name, where))

    def enforce_quota(self, full: str) -> None:
        """Of one topic, now."""
        self.guard("quota", full, lambda: self._visit(full, self._enforce_quota))

    def forget(self, where: str) -> None:
        """The topic was deleted."""
        self._failing = {failing for failing in self._failing if failing[1] != where}

    def _update_rates(self) -> None:
        self._after(RATES_EVERY_MS, self._update_rates)
        seconds = RATES_EVERY_MS / 1000
        for full, topic in list(self._broker.topics.items()):
            self.guard("rates", full, lambda topic=topic: topic.update_rates(seconds))  # type: ignore[misc]
        self.guard("rates", "replication", lambda: self._broker.replication.update_rates(seconds))
        self.guard("pipelines", "all", self._broker.pipelines.update)

    def _close_deserted(self) -> None:
        """Non-persistent topics without clients."""
        self._after(_CLOSE_DESERTED_EVERY_MS, self._close_deserted)
        self._sweep("closing", list(self._broker.catalog.non_persistent), self._broker.close_deserted)

    def _check_damage(self) -> None:
        """What is listed as damaged and can be read again, or was acknowledged or trimmed meanwhile, is listed no
        longer: a disk may fail for a moment only."""
        self._after(_CHECK_DAMAGE_EVERY_MS, self._check_damage)
        for damage in self._broker.damage.all()[:_TOPICS_PER_SWEEP]:
            topic = self._broker.topics.get(damage.name)
            if damage.position and isinstance(topic, PersistentTopic):
                self._broker.damage.clear(damage.kind, damage.name, damage.subscription)
                self.guard("damage", damage.name, lambda one=damage, topic=topic: _look_again(one, topic))  # type: ignore[misc]

    def _trim(self, topic: PersistentTopic) -> None:
        topic.trim(self._broker.steady.now_ms())

    def _expire(self, topic: PersistentTopic) -> None:
        topic.expire(self._broker.steady.now_ms())

    def _enforce_quota(self, topic: PersistentTopic) -> None:
        backlog_quota.enforce(topic, self._broker.steady.now_ms())

    def _forget_idle_producers(self, topic: PersistentTopic) -> None:
        topic.forget_idle_producers(self._broker.steady.now_ms())


def _look_again(damage: DamageReport, topic: PersistentTopic) -> None:
    """Notes it again if it still matters and cannot be read; without a new line in the log."""
    entry_id = int(damage.position.partition(":")[2])
    subscription = topic.subscription(damage.subscription)
    is_passed = entry_id < topic.log.first or (subscription is not None and subscription.cursor.is_acked(entry_id))
    if not is_passed and topic.log.unreadable_from(entry_id, 1):
        topic.broker.damage.restore(damage)
    elif subscription is not None:
        subscription.schedule_pump()

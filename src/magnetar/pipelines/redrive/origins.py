"""Origins of dead letters, and the target of each: looked up once, before anything is sent.

Owns the reasons for which letters stay where they are. Properties of a letter can be anybody's, so a redrive that runs
with the broker's own rights goes to the tenant of the dead letter topic only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from magnetar.client import Client
from magnetar.client.errors import ClientError, NamespaceNotFound, NotFound
from magnetar.deadletter.redriven import OriginKey
from magnetar.errors import InvalidName
from magnetar.names import TopicName
from magnetar.pipelines.redrive.stage import RedriveTarget
from magnetar.spark.dead_letters.cursor_admin import CursorAdmin


@dataclass(frozen=True)
class OriginRules:
    """`tenants` are those that letters may go to; None for any. `keeps_partition`: no key is edited, so a letter goes
    back to the partition that it came from."""

    only_subscription: bool
    keeps_partition: bool
    tenants: frozenset[str] | None = None


class Origins:
    def __init__(self, client: Client, admin: CursorAdmin, rules: OriginRules, *, is_ours: bool) -> None:
        self._client = client
        self._admin = admin
        self._rules = rules
        self._is_ours = is_ours
        self._partitions: dict[str, int | None] = {}
        self._subscriptions: dict[str, frozenset[str]] = {}

    def targets(self, origins: Iterable[OriginKey]) -> dict[OriginKey, RedriveTarget]:
        return {origin: self._target(origin) for origin in origins}

    def _target(self, origin: OriginKey) -> RedriveTarget:
        if origin.topic is None:
            return RedriveTarget(problem="the letter does not name its origin: redrive it with --to")
        try:
            name = TopicName.parse(origin.topic)
        except InvalidName:
            return RedriveTarget(problem=f"the origin {origin.topic[:200]!r} is no topic name")
        if self._rules.tenants is not None and name.tenant not in self._rules.tenants:
            return RedriveTarget(problem=f"the origin {name.full} is in another tenant")
        count = self._partition_count(name)
        if count is None:
            return RedriveTarget(problem=f"the origin {name.full} does not exist")
        partition = origin.partition
        if partition is not None and count and self._rules.keeps_partition:
            if partition >= count:
                return RedriveTarget(
                    problem=f"the origin {name.full} has {count} partitions, and no partition {partition}"
                )
            name = name.with_partition(partition)
        return self._subscribed(name, count, origin.subscription)

    def _subscribed(self, name: TopicName, count: int, subscription: str | None) -> RedriveTarget:
        """On Apache Pulsar all subscriptions receive it."""
        if subscription is None or not (self._rules.only_subscription and self._is_ours):
            return RedriveTarget(name.full)
        first = name.with_partition(0) if count and name.partition < 0 else name
        if subscription not in self._subscriptions_of(first):
            return RedriveTarget(problem=f"the origin {name.base.full} has no subscription {subscription!r} any more")
        return RedriveTarget(name.full, subscription)

    def _partition_count(self, name: TopicName) -> int | None:
        """None if it does not exist."""
        if name.full not in self._partitions:
            try:
                self._partitions[name.full] = self._client.partition_count(name.full)
            except (NotFound, NamespaceNotFound):
                self._partitions[name.full] = None
        return self._partitions[name.full]

    def _subscriptions_of(self, name: TopicName) -> frozenset[str]:
        found = self._subscriptions.get(name.full)
        if found is None:
            try:
                found = frozenset(self._admin.durable_subscriptions(name.full))
            except ClientError as error:
                if not isinstance(error, NotFound):
                    raise
                found = frozenset()
            self._subscriptions[name.full] = found
        return found

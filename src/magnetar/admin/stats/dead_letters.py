"""Dead letter topics of a namespace: how many dead letters wait, since when, and how many arrive.

Owns the overview and its JSON. Counts are of entries and come from the cursors, so that thousands of topics are no
trouble; single dead letters are in `resource.dead_letters`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from magnetar.admin.http.request import Call
from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.iso_time import iso_time_or_none
from magnetar.bounds import DEAD_LETTER_PAGE
from magnetar.broker.broker import Broker
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic import waiting
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX, possible_primaries
from magnetar.errors import NamespaceNotFound
from magnetar.names import TopicName
from magnetar.replication.model import PARKED_SUFFIX, SUBSCRIPTION_PREFIX

LIMIT_DEFAULT, LIMIT_MAX = 100, DEAD_LETTER_PAGE.limit

_NAMED_MAX = 20  # dead letter topics in an error text
_HOUR_MS = 3_600_000


# -- the origin of a dead letter topic


def origin_of(broker: Broker, name: TopicName) -> tuple[str, str]:
    """The topic and subscription in the name of a dead letter topic; empty texts if it has another name.

    Several topics may be meant, as both may contain dashes: one that has the subscription, or else the longest.
    """
    base, catalog = name.base, broker.catalog
    origin = ("", "")
    for full in possible_primaries(base) if base.local.endswith(DEAD_LETTER_SUFFIX) else ():
        is_partitioned = full in catalog.partitioned
        if not is_partitioned and not catalog.exists_full(name.namespace_full, full):
            continue
        if base.local.endswith(PARKED_SUFFIX):
            origin = (full, SUBSCRIPTION_PREFIX + base.full[len(full) + 1 : -len(PARKED_SUFFIX)])
        else:
            origin = (full, base.full[len(full) + 1 : -len(DEAD_LETTER_SUFFIX)])
        opened = broker.topics.get(TopicName.parse(full).with_partition(0).full if is_partitioned else full)
        if opened is not None and origin[1] in opened.subscriptions:
            break
    return origin


def dead_letter_topics_of(broker: Broker, name: TopicName) -> list[str]:
    """Some existing dead letter topics of a topic: by their names, and by the policies of its subscriptions."""
    found: dict[str, None] = {}
    start = f"{name.base.full}-"
    for full in broker.catalog.dead_letter_topics_of.get(name.namespace_full, ()):
        if full.startswith(start) and origin_of(broker, one := TopicName.parse(full))[0] == name.base.full:
            found[one.base.full] = None
    opened = [broker.topics.get(full) for full in (name.full, name.base.with_partition(0).full)]
    for subscription in (one for topic in opened if topic is not None for one in topic.subscriptions.values()):
        policy = subscription.dead_letter_policy if isinstance(subscription, Subscription) else None
        if policy is not None:
            target = policy.topic_for(name, subscription.name)
            if broker.catalog.exists(target) or target.full in broker.catalog.partitioned:
                found[target.full] = None
    return sorted(found)[:_NAMED_MAX]


# -- the overview


class DeadLetterTopic(msgspec.Struct, rename="camel", kw_only=True):
    """`handled` are still stored, acknowledged by every durable subscription. `last_hour` arrived and are stored.

    `oldest` is when the oldest of those that wait arrived.
    """

    topic: str
    origin_topic: str
    origin_subscription: str
    waiting: int = 0
    handled: int = 0
    last_hour: int = 0
    oldest: str | None = None
    oldest_age_seconds: int | None = None


class DeadLetterTopics(msgspec.Struct, rename="camel"):
    """`next` is the `after` of the next page; null at the end."""

    topics: list[DeadLetterTopic]
    next: str | None = None


async def get_overview(call: Call) -> DeadLetterTopics:
    """Show the dead letter topics of a namespace: how many dead letters wait, are handled, arrived; the oldest.

    `limit` of them (1 to 1000, default 100) by name, beginning `after` a topic. Partitions are counted together.
    """
    if call.namespace not in call.broker.catalog.namespaces:
        raise NamespaceNotFound("Namespace does not exist")
    limit, after = call.number("limit", 1, LIMIT_MAX, default=LIMIT_DEFAULT), call.query.get("after", "")
    partitions: dict[str, list[TopicName]] = {}
    for full in call.broker.catalog.dead_letter_topics_of.get(call.namespace, ()):
        name = TopicName.parse(full)
        partitions.setdefault(name.base.full, []).append(name)
    wanted = sorted(full for full in partitions if full > after)
    page, time_slice = DeadLetterTopics([]), TimeSlice()
    for full in wanted[:limit]:
        names = [name for name in partitions[full] if call.broker.catalog.exists(name)]
        if names:
            page.topics.append(_overview(call.broker, names))
        await time_slice.checkpoint()
    page.next = wanted[limit - 1] if len(wanted) > limit else None
    return page


def _overview(broker: Broker, names: Iterable[TopicName]) -> DeadLetterTopic:
    opened = [topic for topic in map(broker.topic, names) if isinstance(topic, PersistentTopic)]
    origin_topic, origin_subscription = origin_of(broker, opened[0].name)
    since_ms = broker.now_ms() - _HOUR_MS
    oldest_ms = min((at_ms for at_ms in map(oldest_at_ms, opened) if at_ms is not None), default=None)
    return DeadLetterTopic(
        topic=opened[0].name.base.full,
        origin_topic=origin_topic,
        origin_subscription=origin_subscription,
        waiting=sum(map(waiting.count, opened)),
        handled=sum(map(waiting.handled, opened)),
        last_hour=sum(one.log.confirmed + 1 - one.log.first_received_after(since_ms) for one in opened),
        oldest=None if oldest_ms is None else iso_time_or_none(oldest_ms),
        oldest_age_seconds=None if oldest_ms is None else _age_s(broker, oldest_ms),
    )


def oldest_at_ms(topic: PersistentTopic) -> int | None:
    """When the oldest waiting entry arrived."""
    header = topic.log.known_header(waiting.next_waiting(topic, topic.log.first))
    return None if header is None else header[1]


def oldest_age_s(topic: PersistentTopic) -> int:
    """The age of the oldest waiting entry; 0 if none waits."""
    at_ms = oldest_at_ms(topic)
    return 0 if at_ms is None else _age_s(topic.broker, at_ms)


def _age_s(broker: Broker, at_ms: int) -> int:
    return max(0, broker.now_ms() - at_ms) // 1000

"""Metrics for Prometheus, with Pulsar's names and labels: `FAMILIES` is the table of those that topics have.

Families are streamed one by one, over all open topics: a broker with many topics keeps serving while it is scraped,
and never holds the whole text. Topics not used since the start are counted, but not opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import RedirectResponse, StreamingResponse

from magnetar.admin.http.request import Call
from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.stats import broker_metrics, pipeline_metrics, replication_metrics
from magnetar.admin.stats.dead_letters import oldest_age_s, origin_of
from magnetar.admin.stats.exposition import CONTENT_TYPE, heading, label
from magnetar.admin.stats.topic import backlog_size, storage_size
from magnetar.broker.broker import Broker
from magnetar.broker.subscription.consumer import Consumer
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.throttling.dispatching import LimitLevel
from magnetar.broker.topic import waiting
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.topic import Topic, TopicSubscription
from magnetar.health import Reading
from magnetar.settings.settings import Settings
from magnetar.version import __version__

_LINES_PER_CHUNK = 1000

Value = float | None  # None if there is no such number


@dataclass(frozen=True, slots=True)
class Family:
    """One metric, with a reader for each level that has it.

    `by_reason` replaces `subscription` for one number per reason, which becomes a label. `is_summed`: if topics are not
    exposed, namespaces have the sum over their topics. `broker_name` is the metric with the sum over all topics.
    `topic_labels` are added to the lines of a topic.
    """

    name: str
    topic: Callable[[Topic], Value] | None = None
    subscription: Callable[[TopicSubscription], Value] | None = None
    by_reason: Callable[[Subscription], Mapping[Any, int]] | None = None
    consumer: Callable[[Consumer], float] | None = None
    producer: Callable[[Producer], float] | None = None
    is_summed: bool = False
    broker_name: str = ""
    broker_labels: str = ""
    namespace_labels: str = ""
    topic_labels: Callable[[Topic], Mapping[str, str]] | None = None

    @property
    def levels(self) -> list[str]:
        """The levels that have this metric, for the reference."""
        readers = {
            "topic": self.topic,
            "subscription": self.subscription or self.by_reason,
            "consumer": self.consumer,
            "producer": self.producer,
        }
        return [level for level, reader in readers.items() if reader is not None]


# -- readers


def _stored(read: Callable[[PersistentTopic], float]) -> Callable[[Topic], Value]:
    return lambda topic: read(topic) if isinstance(topic, PersistentTopic) else None


def _kept(read: Callable[[Subscription], float]) -> Callable[[TopicSubscription], Value]:
    return lambda subscription: read(subscription) if isinstance(subscription, Subscription) else None


def _rate_out(subscription: TopicSubscription, index: int) -> float:
    return sum([consumer.rates[index] for consumer in subscription.consumers])


def _rate_in(topic: Topic, index: int) -> float:
    """Of clients only: replication has its own metrics."""
    inbound = sum([one.rates[index] for one in topic.inbound.values()]) if topic.inbound else 0.0
    return topic.rates_in[index] - inbound


def _topic_rate_out(topic: Topic, index: int) -> float:
    return sum([_rate_out(subscription, index) for subscription in topic.client_subscriptions])


def _messages_out(subscription: TopicSubscription) -> int:
    if isinstance(subscription, Subscription):
        return subscription.deliveries.messages
    return sum([consumer.delivered_messages for consumer in subscription.consumers])


def _bytes_out(subscription: TopicSubscription) -> int:
    if isinstance(subscription, Subscription):
        return subscription.deliveries.bytes
    return sum([consumer.delivered_bytes for consumer in subscription.consumers])


def _backlog(topic: PersistentTopic) -> int:
    return sum([one.backlog for one in topic.cursors if one.durable and not one.is_internal])


def _backlog_age_s(topic: PersistentTopic) -> float:
    """Age of the oldest entry that a durable subscription has not acknowledged; -1 if there is none."""
    slowest = min((one.cursor.mark_delete for one in topic.cursors if one.durable), default=topic.log.confirmed)
    header = topic.log.known_header(slowest + 1)
    return -1 if header is None else max(0, topic.broker.now_ms() - header[1]) // 1000


def _dead_letters(read: Callable[[PersistentTopic], Value]) -> Callable[[Topic], Value]:
    """Of dead letter topics only."""

    def of(topic: Topic) -> Value:
        if not isinstance(topic, PersistentTopic) or not topic.broker.catalog.holds_dead_letters(topic.name):
            return None
        return read(topic)

    return of


def _origin(topic: Topic) -> dict[str, str]:
    origin_topic, origin_subscription = origin_of(topic.broker, topic.name)
    return {"origin_topic": origin_topic, "origin_subscription": origin_subscription}


def _average_size(size: int, count: int) -> float:
    return size / count if count else 0.0


def _throttled(events: str) -> Callable[[Subscription], Mapping[LimitLevel, int]]:
    """How often each level of dispatch rates made a subscription wait."""

    def of(subscription: Subscription) -> Mapping[LimitLevel, int]:
        throttle = subscription.deliveries.throttle
        return {} if throttle is None else {level: getattr(throttle, events)[level] for level in LimitLevel}

    return of


FAMILIES: tuple[Family, ...] = (
    Family(
        "pulsar_subscriptions_count",
        topic=lambda topic: len([one for one in topic.client_subscriptions if not one.is_anonymous]),
        is_summed=True,
        broker_name="pulsar_broker_subscriptions_count",
    ),
    Family(
        "pulsar_producers_count",
        topic=lambda topic: len(topic.producers) - topic.producers.replicators,
        is_summed=True,
        broker_name="pulsar_broker_producers_count",
    ),
    Family(
        "pulsar_consumers_count",
        topic=lambda topic: topic.consumer_count,
        is_summed=True,
        broker_name="pulsar_broker_consumers_count",
    ),
    Family(
        "pulsar_rate_in",
        topic=lambda topic: _rate_in(topic, 0),
        is_summed=True,
        broker_name="pulsar_broker_rate_in",
    ),
    Family(
        "pulsar_rate_out",
        topic=lambda topic: _topic_rate_out(topic, 0),
        is_summed=True,
        broker_name="pulsar_broker_rate_out",
    ),
    Family(
        "pulsar_throughput_in",
        topic=lambda topic: _rate_in(topic, 1),
        is_summed=True,
        broker_name="pulsar_broker_throughput_in",
    ),
    Family(
        "pulsar_throughput_out",
        topic=lambda topic: _topic_rate_out(topic, 1),
        is_summed=True,
        broker_name="pulsar_broker_throughput_out",
    ),
    Family("pulsar_average_msg_size", topic=lambda topic: _average_size(topic.bytes_in, topic.messages_in)),
    Family("pulsar_in_messages_total", topic=lambda topic: topic.messages_in, is_summed=True),
    Family(
        "pulsar_in_bytes_total",
        topic=lambda topic: topic.bytes_in,
        is_summed=True,
        broker_name="pulsar_broker_in_bytes_total",
        broker_labels='system_topic="false"',
    ),
    Family(
        "pulsar_storage_size",
        topic=_stored(storage_size),
        is_summed=True,
        broker_name="pulsar_broker_storage_size",
    ),
    Family(
        "pulsar_storage_logical_size",  # the same: every message is stored once
        topic=_stored(storage_size),
        is_summed=True,
        broker_name="pulsar_broker_storage_logical_size",
    ),
    Family("pulsar_storage_backlog_size", topic=_stored(backlog_size), is_summed=True),
    Family(
        "pulsar_msg_backlog",
        topic=_stored(_backlog),
        is_summed=True,
        broker_name="pulsar_broker_msg_backlog",
        namespace_labels='remote_cluster="local"',
    ),
    Family("pulsar_storage_backlog_quota_limit", topic=_stored(lambda topic: topic.policies.quota_bytes or -1)),
    Family(
        "pulsar_storage_backlog_quota_limit_time", topic=_stored(lambda topic: topic.policies.quota_ms // 1000 or -1)
    ),
    Family("pulsar_storage_backlog_age_seconds", topic=_stored(_backlog_age_s)),
    Family("pulsar_subscription_back_log", subscription=_kept(lambda one: one.backlog)),
    Family("pulsar_subscription_back_log_no_delayed", subscription=_kept(lambda one: one.backlog - one.places.delayed)),
    Family("pulsar_subscription_delayed", subscription=_kept(lambda one: one.places.delayed), is_summed=True),
    Family("pulsar_subscription_in_replay", subscription=_kept(lambda one: len(one.places.pending)), is_summed=True),
    Family("pulsar_subscription_unacked_messages", subscription=_kept(lambda one: one.places.unacked)),
    Family(
        "pulsar_subscription_blocked_on_unacked_messages",
        subscription=_kept(lambda one: int(one.deliveries.is_blocked)),
    ),
    Family("pulsar_subscription_msg_rate_out", subscription=lambda one: _rate_out(one, 0)),
    Family("pulsar_subscription_msg_throughput_out", subscription=lambda one: _rate_out(one, 1)),
    Family("pulsar_subscription_msg_rate_redeliver", subscription=lambda one: _rate_out(one, 2)),
    Family("pulsar_subscription_total_msg_expired", subscription=_kept(lambda one: one.expired_messages)),
    Family(
        "magnetar_subscription_redelivered_total",
        subscription=_kept(lambda one: one.redelivered_messages),
        is_summed=True,
    ),
    Family("magnetar_subscription_dead_lettered_total", by_reason=lambda one: one.dead_letters.moved, is_summed=True),
    Family("magnetar_subscription_suspects", subscription=_kept(lambda one: len(one.cursor.suspects)), is_summed=True),
    Family(
        "magnetar_subscription_backing_off", subscription=_kept(lambda one: one.redelivery.backing_off), is_summed=True
    ),
    Family("magnetar_subscription_paused", subscription=_kept(lambda one: int(bool(one.record.paused)))),
    Family(
        "magnetar_dead_letters_waiting",
        topic=_dead_letters(waiting.count),
        topic_labels=_origin,
        is_summed=True,
    ),
    Family("magnetar_dead_letters_oldest_seconds", topic=_dead_letters(oldest_age_s), topic_labels=_origin),
    Family("pulsar_publish_rate_limit_times", topic=lambda topic: topic.limits.publish_limited_times, is_summed=True),
    Family("pulsar_subscription_dispatch_throttled_msg_events", by_reason=_throttled("message_events")),
    Family("pulsar_subscription_dispatch_throttled_bytes_events", by_reason=_throttled("byte_events")),
    Family("pulsar_subscription_consumers_count", subscription=lambda one: len(one.consumers)),
    Family(
        "pulsar_out_messages_total",
        subscription=_messages_out,
        consumer=lambda consumer: consumer.delivered_messages,
        is_summed=True,
    ),
    Family(
        "pulsar_out_bytes_total",
        subscription=_bytes_out,
        consumer=lambda consumer: consumer.delivered_bytes,
        is_summed=True,
        broker_name="pulsar_broker_out_bytes_total",
        broker_labels='system_subscription="false"',
    ),
    Family("pulsar_consumer_msg_rate_out", consumer=lambda consumer: consumer.rates[0]),
    Family("pulsar_consumer_msg_throughput_out", consumer=lambda consumer: consumer.rates[1]),
    Family("pulsar_consumer_msg_rate_redeliver", consumer=lambda consumer: consumer.rates[2]),
    Family("pulsar_consumer_unacked_messages", consumer=lambda consumer: consumer.unacked),
    Family("pulsar_consumer_blocked_on_unacked_messages", consumer=lambda consumer: int(consumer.is_blocked)),
    Family("pulsar_consumer_available_permits", consumer=lambda consumer: consumer.permits),
    Family("pulsar_producer_msg_rate_in", producer=lambda producer: producer.rates[0]),
    Family("pulsar_producer_msg_throughput_in", producer=lambda producer: producer.rates[1]),
    Family(
        "pulsar_producer_msg_average_Size",
        producer=lambda producer: _average_size(producer.bytes_in, producer.messages_in),
    ),
)


# -- the text


def redirect(call: Call) -> RedirectResponse:
    """Redirect to `/metrics/`, as Apache Pulsar does."""
    return RedirectResponse("/metrics/", status_code=301)


async def metrics(call: Call) -> StreamingResponse:
    """Show all metrics, in the text format of Prometheus."""
    return StreamingResponse(_text(call.broker, await call.vitals.readings()), media_type=CONTENT_TYPE)


async def _text(broker: Broker, readings: Mapping[str, Reading]) -> AsyncIterator[str]:
    """The text in chunks. Holds text, not small objects: a scrape must not trigger the garbage collector."""
    cluster = label("cluster", broker.settings.clusterName)
    time_slice = TimeSlice()
    topics = list(broker.topics.values())
    labels: list[str] = []
    for topic in topics:
        name = topic.name
        labels.append(f"{cluster},{label('namespace', name.namespace_full)},{label('topic', name.full)}")
        await time_slice.checkpoint()
    yield _counted(broker, cluster)
    yield "".join(broker_metrics.lines(readings, cluster))
    yield "".join(pipeline_metrics.lines(broker, cluster))
    for family in FAMILIES:
        lines: list[str] = []
        for line in _lines_of(family, broker, cluster, topics, labels):
            lines.append(line)
            if len(lines) >= _LINES_PER_CHUNK or time_slice.is_over:
                yield "".join(lines)
                lines.clear()
                await time_slice.restart()
        if lines:
            yield "".join(lines)
    replicated = replication_metrics.Lines(label, by_topic=broker.settings.exposeTopicLevelMetricsInPrometheus)
    for topic, own in zip(topics, labels, strict=True):
        await time_slice.checkpoint()
        if broker.topics.get(topic.name.full) is topic and replication_metrics.is_replicated(broker, topic):
            replicated.add(topic, own, f"{cluster},{label('namespace', topic.name.namespace_full)}")
    for text in replicated.texts():
        yield text


def _counted(broker: Broker, cluster: str) -> str:
    """Metrics that need no topic to be read."""
    topics_of = broker.catalog.topics_of
    lines = [
        heading("pulsar_version_info"),
        f"pulsar_version_info{{{cluster},{label('version', __version__)}}} 1\n",
        heading("pulsar_broker_topics_count"),
        f"pulsar_broker_topics_count{{{cluster}}} {sum(map(len, topics_of.values()))}\n",
        heading("pulsar_topics_count"),
    ]
    for namespace, names in topics_of.items():
        lines.append(f"pulsar_topics_count{{{cluster},{label('namespace', namespace)}}} {len(names)}\n")
    return "".join(lines)


def _lines_of(family: Family, broker: Broker, cluster: str, topics: list[Topic], labels: list[str]) -> Iterator[str]:
    """A family with its heading, then the sum over the broker; empty text for a topic without lines."""
    shown = _Shown.of(family, broker.settings)
    is_summed = family.is_summed and not shown.topics
    if not (shown.anything or is_summed or family.broker_name):
        return
    title = heading(family.name)
    sums: dict[str, float] = {}
    for topic, own in zip(topics, labels, strict=True):
        if broker.topics.get(topic.name.full) is not topic:
            continue  # deleted since
        text, value = _topic_lines(family, shown, topic, own)
        namespace = topic.name.namespace_full
        sums[namespace] = sums.get(namespace, 0) + value
        yield title + text if text else ""
        title = "" if text else title
    if is_summed:
        yield title
        extra = f",{family.namespace_labels}" if family.namespace_labels else ""
        for namespace, total in sums.items():
            yield f"{family.name}{{{cluster},{label('namespace', namespace)}{extra}}} {total}\n"
    if family.broker_name:
        extra = f",{family.broker_labels}" if family.broker_labels else ""
        yield f"{heading(family.broker_name)}{family.broker_name}{{{cluster}{extra}}} {sum(sums.values())}\n"


@dataclass(frozen=True, slots=True)
class _Shown:
    """The levels of a family that have lines, by the settings."""

    topics: bool
    consumers: bool
    producers: bool
    anything: bool

    @classmethod
    def of(cls, family: Family, settings: Settings) -> _Shown:
        topics = settings.exposeTopicLevelMetricsInPrometheus
        consumers = topics and settings.exposeConsumerLevelMetricsInPrometheus and family.consumer is not None
        producers = topics and settings.exposeProducerLevelMetricsInPrometheus and family.producer is not None
        readers = (family.topic, family.subscription, family.by_reason)
        whole = topics and any(reader is not None for reader in readers)
        return cls(topics, consumers, producers, whole or consumers or producers)


def _topic_lines(family: Family, shown: _Shown, topic: Topic, labels: str) -> tuple[str, float]:
    """The lines of a topic, its subscriptions and clients, and its share of the sums."""
    name, text = family.name, ""
    total: float = 0
    if family.topic is not None and (value := family.topic(topic)) is not None:
        total = value
        if shown.topics:
            more = family.topic_labels(topic) if family.topic_labels is not None else {}
            text = f"{name}{{{','.join([labels, *map(label, more, more.values())])}}} {value}\n"
    if family.subscription is not None or family.by_reason is not None or shown.consumers:
        for subscription in topic.client_subscriptions:
            is_shown = shown.topics and not subscription.is_anonymous
            own = f"{labels},{label('subscription', subscription.name)}" if is_shown else ""
            if family.subscription is not None and (value := family.subscription(subscription)) is not None:
                total += value if family.topic is None else 0
                text += f"{name}{{{own}}} {value}\n" if is_shown else ""
            if family.by_reason is not None and isinstance(subscription, Subscription):
                numbers = family.by_reason(subscription)
                total += sum(numbers.values())
                text += _reason_lines(name, own, numbers) if is_shown else ""
            if shown.consumers and not subscription.is_anonymous:
                text += _consumer_lines(family, subscription.consumers, own)
    if shown.producers:
        clients = [producer for producer in topic.producers.by_name.values() if not producer.is_replicator]
        text += _producer_lines(family, clients, labels)
    return text, total


def _reason_lines(name: str, labels: str, numbers: Mapping[Any, int]) -> str:
    """One line per reason that occurred."""
    return "".join([f'{name}{{{labels},reason="{reason}"}} {number}\n' for reason, number in numbers.items()])


def _consumer_lines(family: Family, consumers: Iterable[Consumer], labels: str) -> str:
    read = family.consumer
    assert read is not None
    return "".join(
        [
            f'{family.name}{{{labels},{label("consumer_name", one.name)},consumer_id="{one.consumer_id}"}}'
            f" {read(one)}\n"
            for one in consumers
        ]
    )


def _producer_lines(family: Family, producers: Iterable[Producer], labels: str) -> str:
    read = family.producer
    assert read is not None
    return "".join(
        [
            f'{family.name}{{{labels},{label("producer_name", one.name)},producer_id="{one.producer_id}"}}'
            f" {read(one)}\n"
            for one in producers
        ]
    )

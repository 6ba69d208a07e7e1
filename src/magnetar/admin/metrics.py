"""Numbers for Prometheus, with Pulsar's names and labels. Topics that nobody has used since the start are only counted.

Made in slices, so that a broker of many topics goes on serving while it is scraped.
"""

from __future__ import annotations

from collections.abc import Generator

from starlette.responses import RedirectResponse, Response

from magnetar.admin import stats
from magnetar.admin.call import Call
from magnetar.broker.broker import Broker
from magnetar.broker.persistent import PersistentTopic
from magnetar.broker.subscription import Subscription
from magnetar.broker.topic import Topic, TopicSubscription

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TOPICS_PER_SLICE = 100
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Exposition:
    """Samples by metric, because the format wants all samples of a metric in one place."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, metric: str, labels: str, value: float) -> None:
        self._lines.setdefault(metric, []).append(f"{metric}{{{labels}}} {value}\n")

    def text(self) -> str:
        parts: list[str] = []
        for metric, lines in self._lines.items():
            kind = "counter" if metric.endswith("_total") else "gauge"
            parts.append(f"# TYPE {metric} {kind}\n")
            parts += lines
        return "".join(parts)


def redirect(call: Call) -> RedirectResponse:
    return RedirectResponse("/metrics/", status_code=301)


async def metrics(call: Call) -> Response:
    broker, exposition = call.broker, Exposition()
    cluster = _label("cluster", broker.settings.clusterName)
    _add_namespaces(exposition, broker, cluster)
    names = list(broker.topics)
    for start in range(0, len(names), _TOPICS_PER_SLICE):
        for name in names[start : start + _TOPICS_PER_SLICE]:
            topic = broker.topics.get(name)
            if topic is not None:
                _add_topic(exposition, topic, cluster)
        await _Turn()
    return Response(exposition.text(), media_type=_CONTENT_TYPE)


class _Turn:
    """Awaiting it gives everybody else a turn of the loop."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def _label(name: str, value: str) -> str:
    return f'{name}="{value.translate(_ESCAPES)}"'


def _add_namespaces(exposition: Exposition, broker: Broker, cluster: str) -> None:
    topics_of = broker.catalog.topics_of
    exposition.add("pulsar_broker_topics_count", cluster, sum(map(len, topics_of.values())))
    for namespace, names in topics_of.items():
        exposition.add("pulsar_topics_count", f"{cluster},{_label('namespace', namespace)}", len(names))


def _add_topic(exposition: Exposition, topic: Topic, cluster: str) -> None:
    name = topic.name
    labels = f"{cluster},{_label('namespace', name.namespace_full)},{_label('topic', name.full)}"
    exposition.add("pulsar_subscriptions_count", labels, len(topic.subscriptions))
    exposition.add("pulsar_producers_count", labels, len(topic.producers))
    exposition.add("pulsar_consumers_count", labels, topic.consumer_count)
    exposition.add("pulsar_rate_in", labels, topic.rates_in[0])
    exposition.add("pulsar_throughput_in", labels, topic.rates_in[1])
    exposition.add("pulsar_in_messages_total", labels, topic.messages_in)
    exposition.add("pulsar_in_bytes_total", labels, topic.bytes_in)
    if isinstance(topic, PersistentTopic):
        size = stats.storage_size(topic)
        exposition.add("pulsar_storage_size", labels, size)
        exposition.add("pulsar_storage_logical_size", labels, size)
        exposition.add("pulsar_storage_backlog_size", labels, stats.backlog_size(topic))
        exposition.add("pulsar_msg_backlog", labels, sum(one.backlog for one in topic.cursors if one.durable))
    for subscription in topic.subscriptions.values():
        _add_subscription(exposition, subscription, f"{labels},{_label('subscription', subscription.name)}")


def _add_subscription(exposition: Exposition, subscription: TopicSubscription, labels: str) -> None:
    exposition.add("pulsar_subscription_consumers_count", labels, len(subscription.consumers))
    if not isinstance(subscription, Subscription):
        consumers = subscription.consumers
        exposition.add("pulsar_out_messages_total", labels, sum(one.delivered_messages for one in consumers))
        exposition.add("pulsar_out_bytes_total", labels, sum(one.delivered_bytes for one in consumers))
        return
    exposition.add("pulsar_subscription_back_log", labels, subscription.backlog)
    exposition.add("pulsar_subscription_back_log_no_delayed", labels, subscription.backlog - subscription.delayed)
    exposition.add("pulsar_subscription_delayed", labels, subscription.delayed)
    exposition.add("pulsar_subscription_unacked_messages", labels, subscription.unacked)
    exposition.add("pulsar_subscription_blocked_on_unacked_messages", labels, int(subscription.is_blocked))
    exposition.add("pulsar_subscription_msg_rate_out", labels, subscription.rates[0])
    exposition.add("pulsar_subscription_msg_throughput_out", labels, subscription.rates[1])
    exposition.add("pulsar_subscription_total_msg_expired", labels, subscription.expired_messages)
    exposition.add("pulsar_out_messages_total", labels, subscription.delivered_messages)
    exposition.add("pulsar_out_bytes_total", labels, subscription.delivered_bytes)

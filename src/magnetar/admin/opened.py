"""Topics and subscriptions named by a request: found, checked and opened.

Owns the errors for those that are missing or of the wrong kind. It never creates one.
"""

from __future__ import annotations

from magnetar.admin.http.errors import DomainNotAcceptable, OperationNotAllowed
from magnetar.admin.http.request import Call
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import Topic, TopicSubscription
from magnetar.errors import NotAllowed, SubscriptionNotFound, TopicNotFound
from magnetar.names import TopicName

PersistentSubscriptions = list[tuple[PersistentTopic, Subscription]]


# -- topics


def require_persistent(call: Call) -> None:
    if not call.topic.is_persistent:
        raise DomainNotAcceptable("Need to provide a persistent topic name")


def require_topic(call: Call) -> None:
    """The topic, partitioned or not, exists."""
    if call.topic.full not in call.broker.catalog.partitioned:
        open_topic(call)


def topic_names(call: Call) -> list[TopicName]:
    """The topic, or its existing partitions, without opening them."""
    name, catalog = call.topic, call.broker.catalog
    catalog.check_namespace(name)
    partitioned = catalog.partitioned.get(name.full)
    if partitioned is not None:
        return [one for index in range(partitioned.partitions) if catalog.exists(one := name.with_partition(index))]
    if not catalog.exists(name):
        raise TopicNotFound(_why_missing(call, name))
    return [name]


def open_topic(call: Call) -> Topic:
    """The topic or partition itself, not the partitions of a partitioned topic."""
    require_exists(call)
    return call.broker.topic(call.topic)


def require_exists(call: Call) -> None:
    """The same, without opening it: it may be damaged."""
    name, catalog = call.topic, call.broker.catalog
    catalog.check_namespace(name)
    if name.full in catalog.partitioned:
        raise TopicNotFound(f"Topic {name.full} not found")  # a partitioned topic has no log, only its partitions do
    if not catalog.exists(name):
        raise TopicNotFound(_why_missing(call, name))


def open_partitions(call: Call) -> list[Topic]:
    """The existing partitions of the topic, or the topic itself if it is not partitioned."""
    name, catalog = call.topic, call.broker.catalog
    partitioned = catalog.partitioned.get(name.full)
    if partitioned is None:
        return [open_topic(call)]
    names = (name.with_partition(index) for index in range(partitioned.partitions))
    return [call.broker.topic(one) for one in names if catalog.exists(one)]


def open_persistent_partitions(call: Call) -> list[PersistentTopic]:
    """The same, without non-persistent topics."""
    return [topic for topic in open_partitions(call) if isinstance(topic, PersistentTopic)]


def open_persistent(call: Call, *, partitioned: str, non_persistent: str) -> PersistentTopic:
    """The topic or partition itself. The two texts are the errors for a topic of another kind."""
    if call.topic.full in call.broker.catalog.partitioned:
        raise OperationNotAllowed(partitioned)
    topic = open_topic(call)
    if not isinstance(topic, PersistentTopic):
        raise OperationNotAllowed(non_persistent)
    return topic


def _why_missing(call: Call, name: TopicName) -> str:
    if not name.is_partition:
        return f"Topic {name.full} not found"
    if name.base.full not in call.broker.catalog.partitioned:
        return f"Partitioned Topic not found: {name.full} has zero partitions"
    return f"Topic partitions were not yet created: {name.full} not found"


# -- subscriptions


def find_subscription(topic: PersistentTopic, name: str) -> Subscription:
    subscription = topic.subscriptions.get(name)
    if subscription is None:
        raise subscription_not_found(topic.name.full, name)
    assert isinstance(subscription, Subscription)
    return subscription


def find_subscriptions(call: Call) -> list[tuple[Topic, TopicSubscription]]:
    """The subscription in each partition, with its topic; none may lack it."""
    name = call.subscription
    found = [(topic, topic.subscriptions.get(name)) for topic in open_partitions(call)]
    if not found or any(subscription is None for _, subscription in found):
        raise subscription_not_found(call.topic.full, name)
    return [(topic, subscription) for topic, subscription in found if subscription is not None]


def find_persistent_subscriptions(call: Call, refusal: str) -> PersistentSubscriptions:
    """The same for persistent topics; `refusal` is the error for others."""
    if not call.topic.is_persistent:
        raise OperationNotAllowed(refusal)
    return [
        (topic, subscription)
        for topic, subscription in find_subscriptions(call)
        if isinstance(topic, PersistentTopic) and isinstance(subscription, Subscription)
    ]


def find_durable_subscriptions(call: Call, what: str) -> PersistentSubscriptions:
    """The same for durable subscriptions; `what` is the feature that needs one."""
    found = find_persistent_subscriptions(call, f"{what} of a subscription needs a persistent topic")
    for topic, subscription in found:
        if not subscription.durable:
            raise NotAllowed(
                f"{what} needs a durable subscription: {subscription.name} of {topic.name.full} ends with its consumers"
            )
    return found


def subscription_not_found(topic: str, name: str) -> SubscriptionNotFound:
    return SubscriptionNotFound(f"Subscription {name} not found for topic {topic}")

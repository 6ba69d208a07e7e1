"""What a route needs: the rights that its path asks of a role, and those that its body names.

Owns how a path becomes the target of a right. The rules are in `access.decision`; `app` asks before a handler is
called, so handlers know no roles: those for many subscriptions ask `may_use` for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from magnetar.access.needs import OF_NAMESPACE, OF_TOPIC, Need, Right, right_on_namespace, right_on_topic
from magnetar.admin.http.request import Call
from magnetar.names import PERSISTENT, TopicName, check_entity
from magnetar.replication.model import is_replication_subscription
from magnetar.settings.settings import Settings

Rights: TypeAlias = Callable[[Call], Iterable[Right]]


def _none(call: Call) -> Iterable[Right]:
    return ()


def _never(settings: Settings) -> bool:
    return False


class Needs(NamedTuple):
    """`rights` are those of the path and the parameters, asked before the body is read; `targets` those of the body.

    `text` is for the reference page. A route that is open asks for no authentication.
    """

    text: str
    rights: Rights
    targets: Rights = _none
    is_open: Callable[[Settings], bool] = _never

    def with_targets(self, text: str, targets: Rights) -> Needs:
        return Needs(f"{self.text}; {text}", self.rights, targets)


def _of_path(need: Need) -> Needs:
    return Needs(need.value, lambda call: right_at(call, need))


def right_at(call: Call, need: Need) -> Iterator[Right]:
    """On the tenant, namespace, topic and subscription of the path."""
    path = call.path
    if need in OF_NAMESPACE:
        yield right_on_namespace(need, call.namespace)
        if "subscription" in path:
            yield from _on_subscription_of_namespace(call)
    elif need in OF_TOPIC or "topic" in path:
        yield _on_topic(need, topic_of(call), call.subscription if "subscription" in path else "")
    elif "namespace" in path:
        yield right_on_namespace(need, call.namespace)
    else:
        yield Right(need, check_entity("tenant", path["tenant"]) if "tenant" in path else "")


def topic_of(call: Call) -> TopicName:
    """A path without a domain, as those of schemas, means the whole persistent topic, whose partitions share it."""
    if "domain" in call.path:
        return call.topic
    return TopicName.parse(f"{PERSISTENT}://{call.namespace}/{call.path['topic']}").base


def _on_topic(need: Need, name: TopicName, subscription: str) -> Right:
    return right_on_subscription(name, subscription) if need is Need.CONSUME else right_on_topic(need, name)


def _on_subscription_of_namespace(call: Call) -> Iterator[Right]:
    """Of a request for a subscription of all topics, from one who may consume them."""
    namespace, subscription = call.namespace, call.subscription
    if is_replication_subscription(subscription):
        yield right_on_namespace(Need.REPLICATE, namespace)
    elif topics := call.broker.catalog.topics_of.get(namespace):
        # Who may use a subscription is said for the namespace, so any topic stands for all.
        yield right_on_subscription(TopicName.parse(next(iter(topics))), subscription)


def right_on_subscription(name: TopicName, subscription: str) -> Right:
    """Who may consume must not move the position of a route."""
    need = Need.REPLICATE if is_replication_subscription(subscription) else Need.CONSUME
    return right_on_topic(need, name, subscription)


def may_use(call: Call, name: TopicName, subscription: str) -> bool:
    """Whether a request for many subscriptions is also for this one: those that the caller may not use stay as they
    are."""
    return call.broker.authorization.allows(call.principal, (right_on_subscription(name, subscription),))


OPEN = Needs(Need.OPEN.value, _none, is_open=lambda settings: True)  # load balancers and supervisors have no role
METRICS = Needs(
    "nothing; any role with `authenticateMetricsEndpoint`",
    _none,
    is_open=lambda settings: not settings.authenticateMetricsEndpoint,
)
SIGNED_IN = Needs(Need.SIGNED_IN.value, lambda call: (Right(Need.SIGNED_IN),))
SUPER_USER = Needs(Need.SUPER_USER.value, lambda call: (Right(Need.SUPER_USER),))
TENANT_ADMIN = _of_path(Need.TENANT_ADMIN)
LIST_TOPICS = _of_path(Need.LIST_TOPICS)
CONSUME_ALL = _of_path(Need.CONSUME_ALL)
LOOKUP = _of_path(Need.LOOKUP)
PRODUCE = _of_path(Need.PRODUCE)
CONSUME = _of_path(Need.CONSUME)
READ_DECLARATION = Needs("super user, or the broker's own pipelines", lambda call: (Right(Need.READ_REPLICATION),))
REPORT = Needs(READ_DECLARATION.text, lambda call: (Right(Need.REPLICATE),))

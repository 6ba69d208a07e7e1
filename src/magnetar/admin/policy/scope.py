"""Policy scopes: a namespace or a topic, with the policies set there.

Owns how a scope is found, saved and comes into force. It knows no single policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from magnetar.access.principal import Author
from magnetar.admin.http.request import Call
from magnetar.broker.broker import Broker
from magnetar.broker.catalog.policies import NOTHING_SET, Overrides, Policies
from magnetar.errors import NamespaceNotFound, NotAllowed, NotSupported, TenantNotFound, TopicNotFound


@dataclass(frozen=True, slots=True)
class PolicyScope:
    """A namespace or topic with its overrides; `above` are those of the namespace of a topic.

    `author` is kept with a policy by which the broker publishes elsewhere.
    """

    level: str
    broker: Broker
    namespace: str
    overrides: Overrides
    above: Overrides = NOTHING_SET
    author: Author | None = None

    @property
    def is_topic(self) -> bool:
        return self.level == "topic"

    @property
    def tenant(self) -> str:
        return self.namespace.partition("/")[0]


def namespace_scope(call: Call) -> PolicyScope:
    namespace, catalog = call.namespace, call.broker.catalog
    if call.path["tenant"] not in catalog.tenants:
        raise TenantNotFound("Tenant does not exist")
    record = catalog.namespaces.get(namespace)
    if record is None:
        raise NamespaceNotFound("Namespace does not exist")
    return PolicyScope("namespace", call.broker, namespace, record.overrides, author=call.author)


def topic_scope(call: Call) -> PolicyScope:
    """The scope of an existing persistent topic; a partitioned topic has one for all its partitions."""
    name, catalog = call.topic, call.broker.catalog
    if call.flag("isGlobal"):
        raise NotSupported("isGlobal=true is not supported: topic policies are local to this cluster")
    if name.is_partition:
        raise NotAllowed("Not allowed to set/get topic policy for a partition")
    catalog.check_namespace(name)
    if name.full not in catalog.partitioned and not catalog.exists(name):
        raise TopicNotFound(f"Topic {name.full} not found")
    if not name.is_persistent:
        raise NotSupported(f"policies of {name.full} are not supported: nothing is stored for a non-persistent topic")
    above = catalog.namespaces[name.namespace_full].overrides
    return PolicyScope("topic", call.broker, name.namespace_full, catalog.overrides_of(name), above, call.author)


def _save_namespace(call: Call, overrides: Overrides) -> None:
    catalog = call.broker.catalog
    record = catalog.namespaces[call.namespace]
    catalog.save_namespace(call.namespace, msgspec.structs.replace(record, overrides=overrides))


@dataclass(frozen=True, slots=True)
class PolicyLevel:
    """Namespaces or topics: how their policies are found, stored and merged."""

    name: str
    path: str
    scope_of: Callable[[Call], PolicyScope]
    save: Callable[[Call, Overrides], None]
    in_force: Callable[[Call], Policies]


NAMESPACE = PolicyLevel(
    "namespace",
    "/admin/v2/namespaces/{tenant}/{namespace}",
    namespace_scope,
    _save_namespace,
    lambda call: call.broker.catalog.policies_of(call.namespace),
)
TOPIC = PolicyLevel(
    "topic",
    "/admin/v2/{domain}/{tenant}/{namespace}/{topic}",
    topic_scope,
    lambda call, overrides: call.broker.catalog.set_overrides(call.topic, overrides),
    lambda call: call.broker.catalog.policies_of_topic(call.topic),
)

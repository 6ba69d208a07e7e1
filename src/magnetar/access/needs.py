"""Needs: what a command or a route asks of the role of its client, as data.

Owns the names of rights and the form of their targets. Decides nothing: the rules are in `decision`.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from magnetar.names import TopicName


class Need(Enum):
    """A right; the value is its text in errors and on the reference pages."""

    OPEN = "nothing"
    SIGNED_IN = "any role"
    HANDLE = "its own producer or consumer"
    SUPER_USER = "super user"
    TENANT_ADMIN = "tenant admin"
    PRODUCE = "produce"
    CONSUME = "consume"
    LOOKUP = "produce or consume"
    LIST_TOPICS = "produce or consume on the namespace"
    CONSUME_ALL = "consume on the namespace"
    READ_REPLICATION = "replicate, reading"
    REPLICATE = "replicate"


OF_TOPIC = frozenset((Need.PRODUCE, Need.CONSUME, Need.LOOKUP))
"""Rights that a permission on a topic can give."""

OF_NAMESPACE = frozenset((Need.LIST_TOPICS, Need.CONSUME_ALL))
"""Rights that only a permission on the whole namespace can give."""


class Right(msgspec.Struct, frozen=True):
    """A need and its target. `namespace` is `tenant/namespace`, `topic` a full name; empty where it has none."""

    need: Need
    tenant: str = ""
    namespace: str = ""
    topic: str = ""
    subscription: str = ""

    @property
    def target(self) -> str:
        """For errors."""
        return self.topic or self.namespace or self.tenant or "this broker"


def right_on_topic(need: Need, name: TopicName, subscription: str = "") -> Right:
    return Right(need, name.tenant, name.namespace_full, name.full, subscription)


def right_on_namespace(need: Need, namespace: str) -> Right:
    return Right(need, namespace.partition("/")[0], namespace)

"""The records of the catalog that decide what a role may do.

The twin of a plain dictionary in tests of the rules; knows none of the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.access.decision import Permissions
from magnetar.names import TopicName

if TYPE_CHECKING:
    from magnetar.broker.catalog.catalog import Catalog


class AccessView:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def admin_roles(self, tenant: str) -> Sequence[str]:
        kept = self._catalog.tenants.get(tenant)
        return () if kept is None else kept.admin_roles

    def namespace_permissions(self, namespace: str) -> Permissions:
        kept = self._catalog.namespaces.get(namespace)
        return {} if kept is None else kept.permissions

    def topic_permissions(self, namespace: str, topic: str) -> Permissions:
        kept = self._catalog.namespaces.get(namespace)
        if kept is None or not kept.topic_permissions:
            return {}
        own, of_base = (
            kept.topic_permissions.get(topic, {}),
            kept.topic_permissions.get(TopicName.parse(topic).base.full, {}),
        )
        if own is of_base or not of_base:
            return own
        return {role: [*own.get(role, ()), *of_base.get(role, ())] for role in {**own, **of_base}}

    def subscription_roles(self, namespace: str, subscription: str) -> Sequence[str]:
        kept = self._catalog.namespaces.get(namespace)
        return () if kept is None else kept.subscription_permissions.get(subscription, ())

    def subscription_auth_mode(self, namespace: str) -> str:
        kept = self._catalog.namespaces.get(namespace)
        return "" if kept is None else getattr(kept.overrides, "subscription_auth_mode", None) or ""

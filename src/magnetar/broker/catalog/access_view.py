"""The records of the catalog that decide what a role may do.

The twin of a plain dictionary in tests of the rules; knows none of the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.access.decision import Permissions
from magnetar.access.principal import Author
from magnetar.broker.catalog import permissions
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
        return permissions.of_topic(self._catalog, TopicName.parse(topic))

    def subscription_roles(self, namespace: str, subscription: str) -> Sequence[str]:
        kept = self._catalog.namespaces.get(namespace)
        return () if kept is None else kept.subscription_permissions.get(subscription, ())

    def subscription_auth_mode(self, namespace: str) -> str:
        kept = self._catalog.namespaces.get(namespace)
        return "" if kept is None else kept.overrides.subscription_auth_mode or ""

    def pipeline_authors(self, tenant: str) -> Sequence[Author]:
        return self._catalog.pipeline_authors(tenant)

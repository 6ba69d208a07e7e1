"""Permissions on single topics, which the record of their namespace keeps.

Owns under which name they are kept: partitions have those of their partitioned topic. Decides nothing about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from magnetar.access_bounds import TOPIC_PERMISSIONS
from magnetar.errors import NotAllowed
from magnetar.names import TopicName

if TYPE_CHECKING:
    from magnetar.broker.catalog.catalog import Catalog

TOPICS_MAX = TOPIC_PERMISSIONS.limit


def of_topic(catalog: Catalog, name: TopicName) -> Mapping[str, list[str]]:
    """The actions of each role on a topic, existing or not; without those of its namespace."""
    record = catalog.namespaces.get(name.namespace_full)
    if record is None or not record.topic_permissions:
        return {}
    own, of_base = record.topic_permissions.get(name.full, {}), record.topic_permissions.get(name.base.full, {})
    if not own or not of_base or not name.is_partition:
        return own or of_base
    return {role: [*own.get(role, ()), *of_base.get(role, ())] for role in {**own, **of_base}}


def set_on_topic(catalog: Catalog, name: TopicName, role: str, actions: list[str] | None) -> None:
    """Of an existing namespace; None takes away all."""
    kept = catalog.namespaces[name.namespace_full].topic_permissions
    roles = {other: given for other, given in kept.get(name.full, {}).items() if other != role}
    if actions is not None:
        if name.full not in kept and len(kept) >= TOPICS_MAX:
            raise NotAllowed(
                f"namespace {name.namespace_full} has {len(kept)} topics with permissions of their own,"
                f" the limit is {TOPICS_MAX}: grant it on the namespace"
            )
        roles[role] = actions
    _save(catalog, name, {**kept, name.full: roles})


def forget_topic(catalog: Catalog, name: TopicName) -> None:
    """A topic that was deleted: another one of its name begins without permissions."""
    record = catalog.namespaces.get(name.namespace_full)
    if record is not None and name.full in record.topic_permissions:
        _save(catalog, name, {**record.topic_permissions, name.full: {}})


def _save(catalog: Catalog, name: TopicName, permissions: dict[str, dict[str, list[str]]]) -> None:
    record = catalog.namespaces[name.namespace_full]
    kept = {full: roles for full, roles in permissions.items() if roles}
    catalog.save_namespace(name.namespace_full, msgspec.structs.replace(record, topic_permissions=kept))

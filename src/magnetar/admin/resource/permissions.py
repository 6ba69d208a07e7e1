"""Permissions of roles on namespaces, topics and subscriptions: granted, revoked and shown.

What they allow is decided in `access.decision`; a permission that is taken away closes what it had opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import msgspec

from magnetar.access_bounds import ROLE_SIZE
from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import BadRequest
from magnetar.admin.http.request import Call
from magnetar.admin.opened import require_topic
from magnetar.admin.policy.scope import namespace_scope
from magnetar.broker.catalog import permissions
from magnetar.broker.catalog.record import NamespaceRecord
from magnetar.errors import NotAllowed

Action = Literal["produce", "consume", "functions", "sources", "sinks", "packages"]
Permissions = dict[str, list[str]]  # by role, or by subscription

ROLE_SIZE_MAX = ROLE_SIZE.limit

_actions: BodyReader[list[Action]] = BodyReader(list[Action])
_roles: BodyReader[list[str]] = BodyReader(list[str])


def get(call: Call) -> Permissions:
    """Show the permissions of each role in a namespace."""
    return _record(call).permissions


def grant(call: Call) -> None:
    """Set the permissions of a role in a namespace."""
    record, granted = _record(call), _granted(call)
    _save(call, permissions={**record.permissions, _role(call.path["role"]): granted})


def revoke(call: Call) -> None:
    """Revoke all permissions of a role in a namespace."""
    kept = dict(_record(call).permissions)
    kept.pop(call.path["role"], None)
    _save(call, permissions=kept)


def get_of_topic(call: Call) -> Permissions:
    """Show the permissions of each role on a topic, with those that it has in the namespace."""
    require_topic(call)
    found = {role: [*actions] for role, actions in _record(call).permissions.items()}
    for role, actions in permissions.of_topic(call.broker.catalog, call.topic).items():
        found[role] = in_order([*found.get(role, ()), *actions])
    return found


def grant_on_topic(call: Call) -> None:
    """Set the permissions of a role on a topic; those on a partitioned topic are for all its partitions."""
    require_topic(call)
    permissions.set_on_topic(call.broker.catalog, call.topic, _role(call.path["role"]), _granted(call))


def revoke_on_topic(call: Call) -> None:
    """Revoke all permissions of a role on a topic and its partitions; those in the namespace stay."""
    require_topic(call)
    catalog, name = call.broker.catalog, call.topic
    partitioned = catalog.partitioned.get(name.full)
    count = 0 if partitioned is None else partitioned.partitions
    for one in (*(name.with_partition(index) for index in range(count)), name):
        if call.path["role"] in catalog.namespaces[name.namespace_full].topic_permissions.get(one.full, {}):
            permissions.set_on_topic(catalog, one, call.path["role"], None)


def get_of_subscriptions(call: Call) -> Permissions:
    """Show the roles that may use each subscription of a namespace."""
    return _record(call).subscription_permissions


def grant_on_subscription(call: Call) -> None:
    """Set the roles that may use a subscription; without any, all who may consume its topic can."""
    kept, roles = _record(call).subscription_permissions, call.body_as(_roles)
    if not roles:  # an empty list would open the subscription to every consumer of the topic
        raise BadRequest("Roles should not be null or empty")
    allowed = {_role(role) for role in roles}
    _save(call, subscription_permissions={**kept, call.subscription: sorted(allowed)})


def revoke_on_subscription(call: Call) -> None:
    """Revoke the permission of a role to use a subscription."""
    kept = dict(_record(call).subscription_permissions)
    if call.subscription in kept:
        kept[call.subscription] = [role for role in kept[call.subscription] if role != call.path["role"]]
    _save(call, subscription_permissions={name: roles for name, roles in kept.items() if roles})


def _granted(call: Call) -> list[str]:
    actions = call.body_as(_actions)
    if actions is None:
        raise BadRequest("Actions should not be null")
    return in_order(actions)


def in_order(actions: Sequence[str]) -> list[str]:
    """Each action once."""
    return [action for action in get_args(Action) if action in actions]


def _role(name: str) -> str:
    if not name.strip() or len(name) > ROLE_SIZE_MAX:
        raise NotAllowed(f"role {name[:100]!r} has {len(name)} characters, expected 1 to {ROLE_SIZE_MAX}")
    return name


def _record(call: Call) -> NamespaceRecord:
    namespace_scope(call)
    return call.broker.catalog.namespaces[call.namespace]


def _save(call: Call, **changes: Permissions) -> None:
    record = msgspec.structs.replace(_record(call), **changes)
    call.broker.catalog.save_namespace(call.namespace, record)

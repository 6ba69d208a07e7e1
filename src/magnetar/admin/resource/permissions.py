"""Permissions of roles on namespaces and subscriptions: stored and shown, as in a Pulsar without authorization.

The broker has no authorization yet, so they are not enforced.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import BadRequest
from magnetar.admin.http.request import Call
from magnetar.admin.policy.scope import namespace_scope
from magnetar.bounds import ROLE_SIZE
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
    record, actions = _record(call), call.body_as(_actions)
    if actions is None:
        raise BadRequest("Actions should not be null")
    granted: list[str] = [action for action in get_args(Action) if action in actions]
    _save(call, permissions={**record.permissions, _role(call.path["role"]): granted})


def revoke(call: Call) -> None:
    """Revoke all permissions of a role in a namespace."""
    permissions = dict(_record(call).permissions)
    permissions.pop(call.path["role"], None)
    _save(call, permissions=permissions)


def get_of_subscriptions(call: Call) -> Permissions:
    """Show the roles that may use each subscription of a namespace."""
    return _record(call).subscription_permissions


def grant_on_subscription(call: Call) -> None:
    """Allow roles to use a subscription."""
    permissions, roles = _record(call).subscription_permissions, call.body_as(_roles)
    if roles is None:
        raise BadRequest("Roles should not be null")
    allowed = {*permissions.get(call.subscription, ()), *(_role(role) for role in roles)}
    _save(call, subscription_permissions={**permissions, call.subscription: sorted(allowed)})


def revoke_on_subscription(call: Call) -> None:
    """Revoke the permission of a role to use a subscription."""
    permissions = dict(_record(call).subscription_permissions)
    if call.subscription in permissions:
        permissions[call.subscription] = [role for role in permissions[call.subscription] if role != call.path["role"]]
    _save(call, subscription_permissions=permissions)


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

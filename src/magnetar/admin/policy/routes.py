"""The requests that the table of policies makes: get, set and remove each, for namespaces and for topics.

Owns how a value is read from a request. What the policies are is in `policies`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec
from starlette.responses import Response

from magnetar.admin.http.errors import BadRequest
from magnetar.admin.http.request import Call
from magnetar.admin.policy import bodies, checks
from magnetar.admin.policy.policy import Policy
from magnetar.admin.policy.scope import NAMESPACE, TOPIC, Level, topic_scope
from magnetar.admin.policy.table import POLICIES
from magnetar.broker.catalog.policies import Overrides, QuotaKind

Handler = Callable[[Call], object]


def routes() -> Iterator[tuple[str, str, Handler, bool]]:
    """Method, path, handler and whether it changes something, for everything in the table."""
    for level in (NAMESPACE, TOPIC):
        for policy in POLICIES:
            path = policy.path_at(level)
            if not path:
                continue
            yield "GET", path, _getter(policy, level), False
            if policy.can_be_set:
                yield policy.verb, path, _setter(policy, level), True
            if policy.can_be_removed or (level is TOPIC and policy.can_be_set):
                yield "DELETE", path, _remover(policy, level), True
        yield "POST", f"{level.path}/backlogQuota", _quota_setter(level), True
        yield "DELETE", f"{level.path}/backlogQuota", _quota_remover(level), True
    yield "GET", f"{TOPIC.path}/policies", _all_of_topic, False
    yield "DELETE", f"{TOPIC.path}/policies", _remove_all, True


def _getter(policy: Policy, level: Level) -> Handler:
    def get(call: Call) -> object:
        scope = level.scope_of(call)
        if call.flag("applied"):
            return policy.value_in_force(level.in_force(call))
        return policy.value_at(level, scope, level.in_force(call))

    return _described(get, f"Of a {level.name}: {policy.title}")


def _setter(policy: Policy, level: Level) -> Handler:
    parameter, part = policy.topic_parameter if level is TOPIC else "", policy.part_at(level)

    def put(call: Call) -> Response | None:
        scope = level.scope_of(call)
        value = _parameter(call, parameter, policy.shape) if parameter else _body(call, part, policy.shape)
        level.save(call, policy.put(scope, value))
        return policy.answers_setting if level is NAMESPACE else None

    return _described(put, f"Sets for a {level.name}: {policy.title}")


def _remover(policy: Policy, level: Level) -> Handler:
    def remove(call: Call) -> None:
        scope = level.scope_of(call)
        level.save(call, msgspec.structs.replace(scope.overrides, **{policy.field: None}))

    return _described(remove, f"Leaves to what is above the {level.name}: {policy.title}")


def _quota_setter(level: Level) -> Handler:
    def put(call: Call) -> None:
        scope, kind = level.scope_of(call), _quota_kind(call)
        quota = _body(call, "backlogQuota", bodies.Quota)
        checks.quotas(scope, {kind: quota})
        quotas = {**(scope.overrides.backlog_quotas or {}), kind: quota.kept(kind)}
        level.save(call, msgspec.structs.replace(scope.overrides, backlog_quotas=quotas))

    return _described(put, f"Sets for a {level.name}: the backlog quota of one kind")


def _quota_remover(level: Level) -> Handler:
    def remove(call: Call) -> None:
        scope, removed = level.scope_of(call), _quota_kind(call)
        quotas = {kind: quota for kind, quota in (scope.overrides.backlog_quotas or {}).items() if kind is not removed}
        level.save(call, msgspec.structs.replace(scope.overrides, backlog_quotas=quotas or None))

    return _described(remove, f"Leaves to what is above the {level.name}: the backlog quota of one kind")


def _all_of_topic(call: Call) -> dict[str, object]:
    """Every policy that is set for a topic itself, by the last part of its path"""
    overrides = topic_scope(call).overrides
    kept = ((policy, getattr(overrides, policy.field)) for policy in POLICIES if policy.topic)
    return {policy.topic: policy.shown(value) for policy, value in kept if value is not None}


def _remove_all(call: Call) -> None:
    """Forgets every policy that is set for a topic itself"""
    topic_scope(call)
    call.broker.catalog.set_overrides(call.topic, Overrides())


def _described(handler: Handler, summary: str) -> Handler:
    handler.__doc__ = summary
    return handler


def _quota_kind(call: Call) -> QuotaKind:
    text = call.query.get("backlogQuotaType", QuotaKind.destination_storage)
    if text not in QuotaKind.__members__:
        raise BadRequest(f"parameter backlogQuotaType={text[:100]!r} is not one of {', '.join(QuotaKind)}")
    return QuotaKind(text)


@cache
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


def _body(call: Call, expected: str, shape: Any) -> Any:
    try:
        value = call.body_as(_decoder(shape))
    except BadRequest as error:
        raise BadRequest(f"{expected}: {error}") from error
    if value is None:
        raise BadRequest(f"the request body is empty: {expected} is expected")
    return value


def _parameter(call: Call, name: str, shape: Any) -> Any:
    text = call.query.get(name)
    if text is None:
        raise BadRequest(f"parameter {name} is missing")
    try:
        return _decoder(shape).decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequest(f"parameter {name}={text[:100]!r} cannot be read: {error}") from error

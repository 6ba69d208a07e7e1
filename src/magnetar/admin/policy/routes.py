"""Policy routes, drawn from the tables: get, set and remove each policy of namespaces, topics and subscriptions.

Owns how a value is read from a request. It knows no single policy but the backlog quotas, which have a path per kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import msgspec
from starlette.responses import Response

from magnetar.access.needs import Right
from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import BadRequest
from magnetar.admin.http.request import Call
from magnetar.admin.needs import TENANT_ADMIN, Needs
from magnetar.admin.opened import find_durable_subscriptions
from magnetar.admin.policy import bodies, checks, rate_bodies
from magnetar.admin.policy.policy import EMPTY, Policy
from magnetar.admin.policy.scope import NAMESPACE, TOPIC, PolicyLevel, topic_scope
from magnetar.admin.policy.subscription_table import SUBSCRIPTION_POLICIES, SubscriptionPolicy
from magnetar.admin.policy.table import POLICIES
from magnetar.admin.policy.targets import TO_DEAD_LETTERS
from magnetar.bounds import SUBSCRIPTION_DISPATCH_RATES
from magnetar.broker.catalog.policies import Overrides, QuotaKind
from magnetar.broker.catalog.rate_policy import DispatchRate
from magnetar.errors import NotAllowed

Handler = Callable[[Call], object]

SUBSCRIPTION_PATH = f"{TOPIC.path}/subscription/{{subscription}}"
DISPATCH_RATE_PATH = f"{TOPIC.path}/{{subscription}}/dispatchRate"  # Pulsar's only policy of a subscription


def routes() -> Iterator[tuple[str, str, Handler, Needs, bool]]:
    """Method, path, handler, what it needs and whether it may change something, of every row."""
    for level in (NAMESPACE, TOPIC):
        for policy in POLICIES:
            path = policy.path_at(level)
            if not path:
                continue
            yield "GET", path, _getter(policy, level), TENANT_ADMIN, False
            if policy.can_be_set:
                yield policy.verb, path, _setter(policy, level), needs_of(policy), True
            if policy.can_be_removed or (level is TOPIC and policy.can_be_set):
                yield "DELETE", path, _remover(policy, level), TENANT_ADMIN, True
        yield "POST", f"{level.path}/backlogQuota", _quota_setter(level), TENANT_ADMIN, True
        yield "DELETE", f"{level.path}/backlogQuota", _quota_remover(level), TENANT_ADMIN, True
    yield "GET", DISPATCH_RATE_PATH, _get_dispatch_rate, TENANT_ADMIN, False
    yield "POST", DISPATCH_RATE_PATH, _set_dispatch_rate, TENANT_ADMIN, True
    yield "DELETE", DISPATCH_RATE_PATH, _remove_dispatch_rate, TENANT_ADMIN, True
    yield "GET", f"{TOPIC.path}/policies", _all_of_topic, TENANT_ADMIN, False
    yield "DELETE", f"{TOPIC.path}/policies", _remove_all, TENANT_ADMIN, True
    for row in SUBSCRIPTION_POLICIES:
        path = f"{SUBSCRIPTION_PATH}/{row.path}"
        yield "GET", path, _subscription_getter(row), TENANT_ADMIN, False
        yield "POST", path, _subscription_setter(row), needs_of(row), True
        yield "DELETE", path, _subscription_remover(row), TENANT_ADMIN, True


def needs_of(policy: Policy | SubscriptionPolicy) -> Needs:
    """Of setting it. Every policy is for the admin of the tenant, as in Apache Pulsar."""
    targets = policy.targets
    if targets is None:
        return TENANT_ADMIN

    def of_body(call: Call) -> Iterable[Right]:
        value = call.body_as(_reader(policy.shape))
        return () if value is None else targets(value)

    return TENANT_ADMIN.with_targets(TO_DEAD_LETTERS, of_body)


def _getter(policy: Policy, level: PolicyLevel) -> Handler:
    def get(call: Call) -> object:
        scope = level.scope_of(call)
        if call.flag("applied"):
            return policy.value_in_force(level.in_force(call))
        return policy.value_at(level, scope, level.in_force(call))

    return _described(get, f"Show for a {level.name}: {policy.title}")


def _setter(policy: Policy, level: PolicyLevel) -> Handler:
    parameter, part = policy.topic_parameter if level is TOPIC else "", policy.part_at(level)

    def put(call: Call) -> Response | None:
        scope = level.scope_of(call)
        value = _parameter(call, parameter, policy.shape) if parameter else _body(call, part, policy.shape)
        level.save(call, policy.put(scope, value))
        return policy.set_response if level is NAMESPACE else None

    return _described(put, f"Set for a {level.name}: {policy.title}")


def _remover(policy: Policy, level: PolicyLevel) -> Handler:
    def remove(call: Call) -> None:
        scope = level.scope_of(call)
        level.save(call, msgspec.structs.replace(scope.overrides, **{policy.field: None}))

    return _described(remove, f"Remove from a {level.name}: {policy.title}")


def _quota_setter(level: PolicyLevel) -> Handler:
    def put(call: Call) -> None:
        scope, kind = level.scope_of(call), _quota_kind(call)
        quota = _body(call, "backlogQuota", bodies.Quota)
        checks.quotas(scope, {kind: quota})
        quotas = {**(scope.overrides.backlog_quotas or {}), kind: quota.kept(kind)}
        level.save(call, msgspec.structs.replace(scope.overrides, backlog_quotas=quotas))

    return _described(put, f"Set for a {level.name}: the backlog quota of one kind")


def _quota_remover(level: PolicyLevel) -> Handler:
    def remove(call: Call) -> None:
        scope, removed = level.scope_of(call), _quota_kind(call)
        quotas = {kind: quota for kind, quota in (scope.overrides.backlog_quotas or {}).items() if kind is not removed}
        level.save(call, msgspec.structs.replace(scope.overrides, backlog_quotas=quotas or None))

    return _described(remove, f"Remove from a {level.name}: the backlog quota of one kind")


def _all_of_topic(call: Call) -> dict[str, object]:
    """Show all policies set for a topic, by the last part of their path."""
    overrides = topic_scope(call).overrides
    kept = ((policy, getattr(overrides, policy.field)) for policy in POLICIES if policy.topic)
    shown = {policy.topic: policy.shown(value) for policy, value in kept if value is not None}
    if overrides.dispatch_rates:
        shown["subscriptionPolicies"] = rate_bodies.shown_dispatch_rates(overrides.dispatch_rates)
    return shown


def _remove_all(call: Call) -> None:
    """Remove all policies set for a topic."""
    topic_scope(call)
    call.broker.catalog.set_overrides(call.topic, Overrides())


def _get_dispatch_rate(call: Call) -> object:
    """Show for a subscription: its own dispatch rate."""
    own = (topic_scope(call).overrides.dispatch_rates or {}).get(call.subscription)
    if own is None and call.flag("applied"):
        own = TOPIC.in_force(call).dispatch_rate_of(call.subscription)
    return EMPTY if own is None else rate_bodies.DispatchRateBody.of(own)


def _set_dispatch_rate(call: Call) -> None:
    """Set for a subscription: its own dispatch rate. It need not exist yet."""
    overrides = topic_scope(call).overrides
    rate = _body(call, "dispatchRate", rate_bodies.DispatchRateBody).kept()
    _save_dispatch_rates(call, overrides, {call.subscription: rate})


def _remove_dispatch_rate(call: Call) -> None:
    """Remove from a subscription: its own dispatch rate."""
    _save_dispatch_rates(call, topic_scope(call).overrides, {call.subscription: None})


def _save_dispatch_rates(call: Call, overrides: Overrides, changes: dict[str, DispatchRate | None]) -> None:
    rates = {**(overrides.dispatch_rates or {}), **changes}
    kept = {name: rate for name, rate in rates.items() if rate is not None}
    if len(kept) > SUBSCRIPTION_DISPATCH_RATES.limit:
        raise NotAllowed(
            f"topic {call.topic.full} has {len(kept) - 1} subscriptions with a dispatch rate of their own,"
            f" the limit is {SUBSCRIPTION_DISPATCH_RATES.limit}"
        )
    TOPIC.save(call, msgspec.structs.replace(overrides, dispatch_rates=kept or None))


def _subscription_getter(policy: SubscriptionPolicy) -> Handler:
    def get(call: Call) -> object:
        return policy.show(find_durable_subscriptions(call, policy.feature))

    return _described(get, f"Show for a subscription: {policy.title}")


def _subscription_setter(policy: SubscriptionPolicy) -> Handler:
    def put(call: Call) -> None:
        found = find_durable_subscriptions(call, policy.feature)
        value = call.body_as(_reader(policy.shape))
        if value is None:
            raise BadRequest(f"the request body is empty: {policy.expected} is expected")
        policy.put(found, value, call.author)

    return _described(put, f"Set for a subscription: {policy.title}")


def _subscription_remover(policy: SubscriptionPolicy) -> Handler:
    def remove(call: Call) -> None:
        policy.remove(find_durable_subscriptions(call, policy.feature))

    return _described(remove, f"Remove from a subscription: {policy.title}")


def _described(handler: Handler, summary: str) -> Handler:
    handler.__doc__ = summary
    return handler


def _quota_kind(call: Call) -> QuotaKind:
    text = call.query.get("backlogQuotaType", QuotaKind.destination_storage)
    if text not in QuotaKind.__members__:
        raise BadRequest(f"parameter backlogQuotaType={text[:100]!r} is not one of {', '.join(QuotaKind)}")
    return QuotaKind(text)


@cache
def _reader(shape: Any) -> BodyReader[Any]:
    return BodyReader(shape)


def _body(call: Call, expected: str, shape: Any) -> Any:
    try:
        value = call.body_as(_reader(shape))
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
        return msgspec.json.decode(text, type=shape)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRequest(f"parameter {name}={text[:100]!r} cannot be read: {error}") from error

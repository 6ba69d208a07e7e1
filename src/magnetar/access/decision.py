"""The decision whether a role may do something: the only place with rules, those of Apache Pulsar's default provider.

    A1  A super user may do everything.
    A2  An admin of a tenant may do everything in it, but neither change the tenant itself nor unload.
    A3  A permission on a namespace gives its action on every topic of it; one on a topic, on that topic and its
        partitions.
    A4  A subscription with roles of its own is for those only; in the mode Prefix its name begins with the role.
        Neither holds for admins.
    A5  A lookup needs produce or consume.
    A6  A proxy and the role on whose behalf it acts both need the right, also one that was a proxy once.
    A7  The broker's own pipelines may replicate: read, look up, and publish what they park. They may also publish what
        an author of a declared pipeline that works in this tenant may publish. Nothing else.
    A8  What no rule allows is denied.

A pure function of records, settings and the principal. Asked by `session` and `admin`, for what `needs` describes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from magnetar.access.needs import OF_NAMESPACE, OF_TOPIC, Need, Right
from magnetar.access.principal import INTERNAL_ROLE, Author, Principal

_ROLE_SHOWN_MAX = 100
PARKED_SUFFIX = "-REPL-DLQ"  # of topics with messages that a remote cluster refused
PREFIX_MODE = "Prefix"

Permissions = Mapping[str, Sequence[str]]  # actions by role


class View(Protocol):
    """The records that count, by name; empty for what does not exist."""

    def admin_roles(self, tenant: str) -> Sequence[str]: ...

    def namespace_permissions(self, namespace: str) -> Permissions: ...

    def topic_permissions(self, namespace: str, topic: str) -> Permissions:
        """Of a topic, or of the partitioned topic that it is a partition of."""

    def subscription_roles(self, namespace: str, subscription: str) -> Sequence[str]: ...

    def subscription_auth_mode(self, namespace: str) -> str: ...

    def pipeline_authors(self, tenant: str) -> Sequence[Author]:
        """Of declared pipelines that read or write topics of the tenant, and are not over."""


class Rules(msgspec.Struct, frozen=True):
    """The settings that count."""

    super_users: frozenset[str]
    wildcards: bool = False
    proxies: frozenset[str] = frozenset()


def refusal(view: View, rules: Rules, principal: Principal, right: Right) -> str:
    """A sentence for the client; empty if the principal has the right."""
    if right.need in (Need.OPEN, Need.HANDLE):
        return ""
    if principal.role in rules.proxies and not principal.original:
        return f"proxy role {principal.role[:_ROLE_SHOWN_MAX]!r} does not say for which role it acts"
    # Whether the role is still that of a proxy does not matter: a kept author is no more than its client.
    for role in (principal.role, principal.original) if principal.original else (principal.role,):  # A6
        if not _may(view, rules, role, right):
            return _sentence(view, rules, role, right)
    return ""


def _may(view: View, rules: Rules, role: str, right: Right) -> bool:
    need = right.need
    if role in rules.super_users or need is Need.SIGNED_IN:  # A1
        return True
    if role == INTERNAL_ROLE:  # A7
        return _may_replicate(right) or _may_for_author(view, rules, right)
    if need is Need.SUPER_USER:
        return False
    if right.tenant and role in view.admin_roles(right.tenant):  # A2
        return True
    if need in OF_NAMESPACE:
        actions = ("consume",) if need is Need.CONSUME_ALL else ("produce", "consume")
        given = view.namespace_permissions(right.namespace)
        return any(_is_given(given, role, action, rules) for action in actions)
    if need not in OF_TOPIC:
        return False  # A8
    if need is Need.CONSUME and right.subscription and _why_not_use(view, role, right):
        return False
    actions = {Need.PRODUCE: ("produce",), Need.CONSUME: ("consume",)}.get(need, ("produce", "consume"))  # A5
    permissions = (  # A3
        view.namespace_permissions(right.namespace),
        view.topic_permissions(right.namespace, right.topic),
    )
    return any(_is_given(given, role, action, rules) for given in permissions for action in actions)


def _may_replicate(right: Right) -> bool:
    if right.need is Need.PRODUCE:
        return right.topic.partition("-partition-")[0].endswith(PARKED_SUFFIX)
    return right.need in (Need.REPLICATE, Need.READ_REPLICATION, Need.CONSUME, Need.LOOKUP, Need.LIST_TOPICS)


def _may_for_author(view: View, rules: Rules, right: Right) -> bool:
    """Whether a declared pipeline is to do this, and its author may still do it."""
    if right.need is not Need.PRODUCE:
        return False
    authors = (author.principal for author in view.pipeline_authors(right.tenant))
    return any(one.role != INTERNAL_ROLE and not refusal(view, rules, one, right) for one in authors)


def _why_not_use(view: View, role: str, right: Right) -> str:
    """A4; empty if the role may use the subscription. Names no other role."""
    roles = view.subscription_roles(right.namespace, right.subscription)
    if roles and role not in roles:
        return "the subscription is only for the roles that it was granted to"
    if view.subscription_auth_mode(right.namespace) == PREFIX_MODE and not right.subscription.startswith(role):
        return f"with subscriptionAuthMode={PREFIX_MODE}, the name of a subscription has to begin with the role"
    return ""


def _is_given(given: Permissions, role: str, action: str, rules: Rules) -> bool:
    if action in given.get(role, ()):
        return True
    return rules.wildcards and any(_matches(pattern, role) and action in given[pattern] for pattern in given)


def _matches(pattern: str, role: str) -> bool:
    """A star at the end of a permission's role, or at its beginning, is any text."""
    if pattern.endswith("*") and role.startswith(pattern[:-1]):
        return True
    return pattern.startswith("*") and role.endswith(pattern[1:])


def _sentence(view: View, rules: Rules, role: str, right: Right) -> str:
    return (
        f"role {role[:_ROLE_SHOWN_MAX]!r} may not do this with {right.target}{_subscription_of(right)}:"
        f" {_reason(view, rules, role, right)}"
    )


def _reason(view: View, rules: Rules, role: str, right: Right) -> str:
    if right.subscription and _may(view, rules, role, msgspec.structs.replace(right, subscription="")):
        return _why_not_use(view, role, right)
    return f"needs {_needed(right)}"


def _subscription_of(right: Right) -> str:
    return f", subscription {right.subscription[:_ROLE_SHOWN_MAX]!r}" if right.subscription else ""


def _needed(right: Right) -> str:
    need, tenant = right.need, f"to be tenant admin of {right.tenant} or super user"
    if need in OF_TOPIC:
        return f"{need.value} on it or on its namespace, or {tenant}"
    if need in OF_NAMESPACE:
        return f"{need.value}, or {tenant}"
    if need is Need.SUPER_USER or not right.tenant:
        return "to be super user"
    return tenant


def first_refusal(view: View, rules: Rules, principal: Principal, rights: Iterable[Right]) -> str:
    """For the first right that is missing; empty if there is none."""
    return next(filter(None, (refusal(view, rules, principal, right) for right in rights)), "")

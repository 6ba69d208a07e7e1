"""One policy: its names, its JSON type, its checks, and how its value is shown and stored.

Knows no particular policy (`table`) and no request (`routes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.responses import Response

from magnetar.access.needs import Right
from magnetar.admin.http.errors import BadRequest
from magnetar.admin.policy.scope import NAMESPACE, TOPIC, PolicyLevel, PolicyScope
from magnetar.broker.catalog.policies import Overrides, Policies
from magnetar.errors import NotAllowed

EMPTY: Final = Response(status_code=200)
"""Pulsar's reply for most policies that are not set. For a few it is 204, which is None here."""

IN_FORCE: Final = object()
"""The reply for a policy that is not set: the value in force."""


def _anything(scope: PolicyScope, value: Any) -> None:
    """No check beyond the type."""


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One row. `field` is its name in `Overrides`, `shape` the type of its JSON.

    `namespace` and `topic` are the last segments of its paths, empty if there is none; `in_object` is its name in the
    object with all policies of a namespace, where a value `by_cluster` is in a map of clusters. `unset` and
    `unset_topic` are the replies while it is not set.
    """

    title: str
    field: str
    shape: Any
    namespace: str = ""
    topic: str = ""
    in_object: str = ""
    by_cluster: bool = False
    older_in_object: str = ""  # a second name there, with the same value
    verb: str = "POST"
    can_be_set: bool = True  # by its own path; backlog quotas have a path per kind
    can_be_removed: bool = True  # from a namespace
    topic_parameter: str = ""  # if the value of a topic is a parameter, not the body
    check: Callable[[PolicyScope, Any], None] = _anything
    kept: Callable[[Any], Any] = _as_it_is
    kept_by_namespace: Callable[[Any], Any] | None = None  # if it differs
    shown: Callable[[Any], Any] = _as_it_is
    targets: Callable[[Any], Iterable[Right]] | None = None  # rights elsewhere: where it makes the broker publish, in
    # the name of the author that is kept with it
    unset: Any = EMPTY
    unset_topic: Any = EMPTY
    hides_unset: bool = False  # from the object
    set_response: Response | None = None  # for a namespace

    def part_at(self, level: PolicyLevel) -> str:
        return self.topic if level is TOPIC else self.namespace

    def path_at(self, level: PolicyLevel) -> str:
        return f"{level.path}/{self.part_at(level)}" if self.part_at(level) else ""

    def value_at(self, level: PolicyLevel, scope: PolicyScope, policies: Policies) -> object:
        """The JSON of the value, or the reply for a policy that is not set."""
        value = getattr(scope.overrides, self.field)
        if value is not None:
            return self.shown(value)
        unset = self.unset_topic if level is TOPIC else self.unset
        return self.value_in_force(policies) if unset is IN_FORCE else unset

    def value_in_object(self, scope: PolicyScope, policies: Policies) -> object:
        """None if the object does not show it."""
        value = getattr(scope.overrides, self.field)
        if self.by_cluster:
            return {} if value is None else {scope.broker.settings.clusterName: self.shown(value)}
        is_unset = value is None
        if not self.in_object or (is_unset and (self.hides_unset or self.unset is EMPTY)):
            return None
        return self.value_at(NAMESPACE, scope, policies)

    def in_given_object(self, scope: PolicyScope, values: dict[str, Any]) -> Any:
        """The JSON of the value in an object that a client sent; None if it has none."""
        value = values.get(self.in_object)
        if not value and self.older_in_object:
            value = values.get(self.older_in_object)
        if not self.by_cluster or value is None:
            return value
        if not isinstance(value, dict):
            raise BadRequest(f"{self.in_object} must be an object with a value for each cluster")
        own = scope.broker.settings.clusterName
        other = next((cluster for cluster in value if cluster != own), None)
        if other is not None:
            raise NotAllowed(f"{self.in_object} of cluster {other[:100]} has no effect: this is cluster {own}")
        return value.get(own)

    def value_in_force(self, policies: Policies) -> object:
        value = getattr(policies.as_overrides(), self.field)
        return EMPTY if value is None else self.shown(value)

    def put(self, scope: PolicyScope, value: Any) -> Overrides:
        """The overrides with this value, which has the right shape; raises if a check fails."""
        self.check(scope, value)
        kept = (self.kept if scope.is_topic else self.kept_by_namespace or self.kept)(value)
        if self.targets is not None:
            kept = msgspec.structs.replace(kept, author=scope.author)
        return msgspec.structs.replace(scope.overrides, **{self.field: kept})

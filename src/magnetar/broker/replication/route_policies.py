"""Route policies, in memory and on disk: by remote cluster, for a namespace or a topic.

A topic inherits the parts that it does not set, see `replication.route_parts`. Knows neither topics nor routes; see
`declaration`.
"""

from __future__ import annotations

import msgspec

from magnetar.broker import keys
from magnetar.broker.commit import Commits
from magnetar.broker.damage_list import UNREADABLE, DamageList
from magnetar.names import TopicName
from magnetar.replication.model import RoutePolicy
from magnetar.replication.route_parts import NOTHING, RouteParts, in_force, kept_by
from magnetar.storage.api import Space, Storage

RouteScope = tuple[str, str]
"""Where a route policy is set: a remote cluster, and `tenant/namespace` or `tenant/namespace/topic`."""

_SEPARATOR = "\0"  # between the two, in a key


class RoutePolicies:
    def __init__(self, storage: Storage, commits: Commits, damage: DamageList) -> None:
        self._commits = commits
        self._damage = damage
        self._parts: dict[RouteScope, RouteParts] = {}
        for key, value in storage.scan(Space.STATE, keys.ROUTE, keys.after(keys.ROUTE)):
            remote, _, scope = key[1:].decode(errors="backslashreplace").partition(_SEPARATOR)
            try:
                self._parts[remote, scope] = decode_parts(value)
            except UNREADABLE as error:
                # It may say what must not be copied, or be masked: nothing is copied until it is set again.
                damage.note("route policy", f"{scope} to {remote}", error)
                self._parts[remote, scope] = RouteParts(paused=True)

    def of(self, name: TopicName, remote: str) -> RoutePolicy:
        """The policy in force for a topic."""
        return in_force(self.at(remote, name.namespace_full), self.at(remote, topic_scope(name)))

    def of_namespace(self, namespace: str, remote: str) -> RoutePolicy:
        """The policy in force for topics that set nothing."""
        return in_force(self.at(remote, namespace))

    def pausing_scope(self, name: TopicName, remote: str) -> str:
        """The scope whose pause applies to a topic."""
        own = topic_scope(name)
        return name.namespace_full if self.at(remote, own).paused is None else own

    def at(self, remote: str, scope: str) -> RouteParts:
        """The parts set at exactly this scope."""
        return self._parts.get((remote, scope), NOTHING)

    def all(self) -> dict[RouteScope, RouteParts]:
        return dict(self._parts)

    def set(self, remote: str, scope: str, parts: RouteParts) -> None:
        self._keep(remote, scope, parts)
        self._follow(remote, scope, parts)

    def end_resumes(self, remote: str, namespace: str) -> None:
        """Topics that were resumed in a paused namespace are paused again, like all others."""
        for scope, parts in self._within(remote, namespace):
            if parts.paused is False:
                self._keep(remote, scope, msgspec.structs.replace(parts, paused=None))

    def _follow(self, remote: str, namespace: str, parts: RouteParts) -> None:
        """What topics lift lasts as long as their namespace has it."""
        for scope, own in self._within(remote, namespace):
            kept = kept_by(parts, own)
            if kept != own:
                self._keep(remote, scope, kept)

    def _within(self, remote: str, namespace: str) -> list[tuple[str, RouteParts]]:
        prefix = namespace + "/"
        return [(one[1], parts) for one, parts in self._parts.items() if one[0] == remote and one[1].startswith(prefix)]

    def _keep(self, remote: str, scope: str, parts: RouteParts) -> None:
        self._damage.clear("route policy", f"{scope} to {remote}")
        if parts != NOTHING:
            self._parts[remote, scope] = parts
            self._commits.put(_key(remote, scope), encode_parts(parts))
        elif self._parts.pop((remote, scope), None) is not None:
            self._commits.batch().delete(_key(remote, scope))


def topic_scope(name: TopicName) -> str:
    return f"{name.namespace_full}/{name.base.local}"


def _key(remote: str, scope: str) -> bytes:
    return keys.named(keys.ROUTE, f"{remote}{_SEPARATOR}{scope}")


# On disk the field `deadLetters` is called `letters`.


def encode_parts(parts: RouteParts) -> bytes:
    stored = msgspec.to_builtins(parts)
    if "deadLetters" in stored:
        stored["letters"] = stored.pop("deadLetters")
    return msgspec.msgpack.encode(stored)


def decode_parts(value: bytes) -> RouteParts:
    stored = msgspec.msgpack.decode(value, type=dict)
    if "letters" in stored:
        stored["deadLetters"] = stored.pop("letters")
    return msgspec.convert(stored, RouteParts)

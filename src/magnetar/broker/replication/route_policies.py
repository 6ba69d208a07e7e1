"""Route policies, in memory and on disk: by remote cluster, for a namespace or a topic.

The policy of a topic replaces that of its namespace. Knows neither topics nor routes; see `declaration`.
"""

from __future__ import annotations

import msgspec

from magnetar.broker import keys
from magnetar.broker.commit import Commits
from magnetar.names import TopicName
from magnetar.replication.model import AS_IT_IS, RoutePolicy
from magnetar.storage.api import Space, Storage

RouteScope = tuple[str, str]
"""Where a route policy is set: a remote cluster, and `tenant/namespace` or `tenant/namespace/topic`."""

_SEPARATOR = "\0"  # between the two, in a key


class RoutePolicies:
    def __init__(self, storage: Storage, commits: Commits) -> None:
        self._commits = commits
        self._policies: dict[RouteScope, RoutePolicy] = {}
        for key, value in storage.scan(Space.STATE, keys.ROUTE, keys.after(keys.ROUTE)):
            remote, _, scope = key[1:].decode().partition(_SEPARATOR)
            self._policies[remote, scope] = decode_policy(value)

    def of(self, name: TopicName, remote: str) -> RoutePolicy:
        """The policy of the topic, or else of its namespace."""
        return self._policies.get((remote, self.scope_of(name, remote)), AS_IT_IS)

    def scope_of(self, name: TopicName, remote: str) -> str:
        """The scope whose policy applies to a topic."""
        own = topic_scope(name)
        return own if (remote, own) in self._policies else name.namespace_full

    def at(self, remote: str, scope: str) -> RoutePolicy | None:
        """The policy set at exactly this scope."""
        return self._policies.get((remote, scope))

    def all(self) -> dict[RouteScope, RoutePolicy]:
        return dict(self._policies)

    def set(self, remote: str, scope: str, policy: RoutePolicy) -> None:
        self._policies[remote, scope] = policy
        self._commits.batch().put(_key(remote, scope), encode_policy(policy))

    def remove(self, remote: str, scope: str) -> bool:
        """Whether there was one."""
        if self._policies.pop((remote, scope), None) is None:
            return False
        self._commits.batch().delete(_key(remote, scope))
        return True


def topic_scope(name: TopicName) -> str:
    return f"{name.namespace_full}/{name.base.local}"


def _key(remote: str, scope: str) -> bytes:
    return keys.named(keys.ROUTE, f"{remote}{_SEPARATOR}{scope}")


# On disk the field `deadLetters` is called `letters`.


def encode_policy(policy: RoutePolicy) -> bytes:
    stored = msgspec.to_builtins(policy)
    if "deadLetters" in stored:
        stored["letters"] = stored.pop("deadLetters")
    return msgspec.msgpack.encode(stored)


def decode_policy(value: bytes) -> RoutePolicy:
    stored = msgspec.msgpack.decode(value)
    if "letters" in stored:
        stored["deadLetters"] = stored.pop("letters")
    return msgspec.convert(stored, RoutePolicy)

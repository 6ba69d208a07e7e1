"""A world with authorization, and clients with roles in it."""

from __future__ import annotations

import msgspec

from magnetar.access.authorization import Authorization
from magnetar.access.decision import Rules
from magnetar.access.principal import Principal
from magnetar.broker.catalog.access_view import AccessView
from magnetar.broker.catalog.record import NamespaceRecord
from tests.broker.world import World
from tests.session.talk import Talk

NAMESPACE = "public/default"


class Guarded(World):
    """`root` is a super user; `grant` replaces all that a role has in the namespace."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.broker.authorization = Authorization(AccessView(self.broker.catalog), Rules(frozenset(("root",))))

    def talk(self, role: str) -> Talk:
        talk = Talk(self)
        talk.session.principal = Principal(role, "token")
        return talk

    def grant(self, role: str, *actions: str, namespace: str = NAMESPACE) -> None:
        kept = self.record(namespace)
        permissions = {**kept.permissions, role: list(actions)}
        if not actions:
            del permissions[role]
        self.save(namespace, permissions=permissions)

    def record(self, namespace: str = NAMESPACE) -> NamespaceRecord:
        return self.broker.catalog.namespaces[namespace]

    def save(self, namespace: str = NAMESPACE, **changes: object) -> None:
        self.broker.catalog.save_namespace(namespace, msgspec.structs.replace(self.record(namespace), **changes))
        self.settle()

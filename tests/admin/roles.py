"""A broker whose clients have roles: the token of a request is its role."""

from __future__ import annotations

import asyncio

from magnetar.access.authentication import Authentication
from magnetar.access.authorization import Authorization
from magnetar.access.decision import Rules
from magnetar.access.principal import INTERNAL_ROLE, Principal
from magnetar.broker.catalog.access_view import AccessView
from magnetar.broker.catalog.record import TenantRecord
from magnetar.errors import AuthenticationFailed
from tests.admin.driver import Admin
from tests.admin.route_requests import RawResponse, new_world, send

ROOT, ADMIN, STRANGER = "root", "admin-of-acme", "stranger"
REFUSED = b"may not do this"


class ByName(Authentication):
    """The role is what the client sends; it must send something."""

    @property
    def is_enabled(self) -> bool:
        return True

    def request(self, authorization: str, common_name: str, now_ms: int, *, method: str = "") -> Principal:
        role = authorization.partition(" ")[2]
        if not role:
            raise AuthenticationFailed("authentication is required")
        return Principal(role, "internal" if role == INTERNAL_ROLE else "token")


def guarded() -> Admin:
    """One of everything; `ADMIN` is the admin of tenant acme."""
    admin = new_world()
    tenant = TenantRecord([ADMIN], ["standalone", "west"])
    admin.broker.catalog.save_tenant("acme", tenant)
    admin.commit()
    admin.broker.authentication = ByName()
    admin.broker.authorization = Authorization(AccessView(admin.broker.catalog), Rules(frozenset((ROOT,))))
    return admin


def ask(admin: Admin, role: str, method: str, path: str, body: bytes = b"", query: bytes = b"") -> RawResponse:
    return asyncio.run(send(admin, method, path, query, body, role))


def is_refused(response: RawResponse) -> bool:
    """For want of a right, not for what the request says."""
    return response.status == 403 and REFUSED in response.body

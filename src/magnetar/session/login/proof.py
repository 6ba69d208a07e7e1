"""What CONNECT and AUTH_RESPONSE show, and the principal that it proves.

Passwords are checked aside; meanwhile the later input of the connection waits. Knows no providers; `access` has them,
and the rules of proxies.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from magnetar.access.principal import Principal
from magnetar.access.proxy import WEB_SOCKETS, on_behalf
from magnetar.errors import RightMissing
from magnetar.session.handles import Command, SessionState
from magnetar.wire import schema_pb2 as pb

if TYPE_CHECKING:
    from magnetar.session.session import Session


class Proof(msgspec.Struct, frozen=True):
    """`method` and `data` as the client, or the client of a proxy, sent them."""

    method: str
    data: bytes

    def __repr__(self) -> str:
        return f"Proof(method={self.method!r}, data=(hidden))"


class ProxiedPrincipal(Principal, frozen=True):
    """The principal of a proxy that showed what its client showed: `expires_ms` is the end of the one that ends first,
    `proxy_expires_ms` that of the proxy's own, which no answer to a challenge extends.
    """

    proxy_expires_ms: int | None = None


def proof_of(connect: pb.CommandConnect) -> Proof:
    return Proof(connect.auth_method_name or "none", connect.auth_data)


def original_proof_of(session: Session, connect: pb.CommandConnect) -> Proof | None:
    """What the client of a proxy showed; None if there is none, or the proxy is believed."""
    if connect.original_principal in ("", WEB_SOCKETS) or not session.broker.settings.authenticateOriginalAuthData:
        return None
    return Proof(connect.original_auth_method or "none", connect.original_auth_data.encode())


def waits(session: Session, command: Command, *proofs: Proof | None) -> bool:
    """Whether the handler returns at once, because the command is handled again when a password was checked.

    Raises AuthenticationFailed.
    """
    broker, is_wanted = session.broker, partial(_is_open, session)
    for proof in proofs:
        work = proof and broker.authentication.ahead(
            proof.method, proof.data, session.where.host, broker.now_ms(), is_wanted=is_wanted
        )
        if work:
            session.examinations += 1
            broker.check_login(work, partial(_go_on, session, command), session.where.host)
            return True
    return False


def _is_open(session: Session) -> bool:
    return session.state is not SessionState.CLOSED


def _go_on(session: Session, command: Command) -> None:
    session.examinations -= 1
    if _is_open(session):
        session.handle(command)
        session.go_on()


def principal_of(session: Session, proof: Proof) -> Principal:
    """Raises AuthenticationFailed."""
    return _principal_of(session, proof, session.where.common_name)


def original_principal_of(session: Session, proof: Proof) -> Principal:
    """That of a proxy's client, which has no certificate here: that of the connection is the proxy's.

    Raises AuthenticationFailed.
    """
    return _principal_of(session, proof, "")


def _principal_of(session: Session, proof: Proof, common_name: str) -> Principal:
    broker = session.broker
    return broker.authentication.connect(proof.method, proof.data, common_name, broker.now_ms())


def connected_principal(session: Session, connect: pb.CommandConnect) -> Principal:
    """The principal of a CONNECT, with the role that a proxy acts for; raises AuthenticationFailed or RightMissing."""
    principal = principal_of(session, proof_of(connect))
    if not session.broker.authentication.is_enabled:
        return principal
    settings, original = session.broker.settings, connect.original_principal
    shown = original_proof_of(session, connect)
    if shown is not None:
        proved = original_principal_of(session, shown)
        ends_ms = earlier(principal.expires_ms, proved.expires_ms)
        principal = ProxiedPrincipal(principal.role, principal.method, ends_ms, proxy_expires_ms=principal.expires_ms)
        original = proved.role
    found = on_behalf(principal, original, settings)
    if connect.proxy_version and not found.original:
        raise RightMissing("proxy_version is only for proxies, whose roles are in proxyRoles")
    return found


def earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    """Of two ends, where None is no end."""
    return min((end_ms for end_ms in (one_ms, other_ms) if end_ms is not None), default=None)

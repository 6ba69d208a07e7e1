"""Credentials that expire while a connection is open: the client is asked for new ones, and disconnected without.

The check is Pulsar's: at intervals, by the setting; a client that has not answered by the next check has had its time.
Expired credentials serve for two intervals at most, and for one if the client cannot be asked.

A challenge on the connection of a proxy is for the proxy's client, as in Pulsar: the proxy passes it on, and the answer
too. It asks for the proof of that client, where the proxy shows it. The proxy cannot be asked for a proof of its own,
with which the connection ends: also where the client's is shown, which is the only one that Pulsar looks at then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from magnetar.broker.timers import MovedTimer
from magnetar.errors import AuthenticationFailed, NotAllowed
from magnetar.session.handles import Command, SessionState
from magnetar.session.login.proof import (
    Proof,
    ProxiedPrincipal,
    earlier,
    original_principal_of,
    original_proof_of,
    principal_of,
    proof_of,
    waits,
)
from magnetar.session.refusals import report_unproved
from magnetar.wire import schema_pb2 as pb

if TYPE_CHECKING:
    from magnetar.session.session import Session

REFRESH = b"PulsarAuthRefresh"
"""The data of a challenge that asks for the same kind of credentials again."""


class Refresh:
    """`method` is that of the connection; `original_method` that of a proxy's client whose proof is checked here."""

    def __init__(self, session: Session, connect: pb.CommandConnect) -> None:
        original = original_proof_of(session, connect)
        self.method = proof_of(connect).method
        self.original_method = original and original.method
        self._session = session
        self._can_refresh = connect.feature_flags.supports_auth_refresh
        self._protocol_version = connect.protocol_version
        self.is_asked = False
        self._timer = MovedTimer(session.broker.intervals, self._check)
        self._wait()

    def _wait(self) -> None:
        """Nothing is checked for credentials without an end."""
        broker, expires_ms = self._session.broker, self._session.principal.expires_ms
        interval_ms = broker.settings.authenticationRefreshCheckSeconds * 1000
        self._timer.move(None if expires_ms is None else broker.clock.monotonic_ms() + interval_ms)

    def stop(self) -> None:
        self._timer.move(None)

    def _check(self) -> None:
        session = self._session
        if session.state is SessionState.CLOSED or session.principal.expires_ms is None:
            return
        if not self._is_past(session.principal.expires_ms):
            self._wait()
        elif self._is_past(self._proxy_expires_ms):
            self._end("the credentials of the proxy expired, which only a new connection can renew")
        elif not self._can_refresh:
            self._end("the credentials expired, and the client cannot send new ones")
        elif self.is_asked:
            self._end("the credentials expired, and the client sent no new ones in time")
        else:
            self._ask()
            self._wait()

    @property
    def _proxy_expires_ms(self) -> int | None:
        """When the proof of a proxy expires, which cannot be asked for a new one; None for other clients."""
        principal = self._session.principal
        if isinstance(principal, ProxiedPrincipal):
            return principal.proxy_expires_ms
        return principal.expires_ms if principal.original else None

    def _is_past(self, expires_ms: int | None) -> bool:
        return expires_ms is not None and expires_ms < self._session.broker.now_ms()

    def _ask(self) -> None:
        self.is_asked = True
        challenge = pb.CommandAuthChallenge(
            server_version="",
            protocol_version=self._protocol_version,
            challenge=pb.AuthData(auth_method_name=self.method, auth_data=REFRESH),
        )
        self._session.send(Command(type=Command.AUTH_CHALLENGE, authChallenge=challenge))

    def _end(self, reason: str) -> None:
        report_unproved(self._session, reason)
        self._session.close()

    def answered(self, principal_role: str, expires_ms: int | None) -> None:
        """New credentials were proved; they must be of the same role."""
        session = self._session
        was = session.principal
        if principal_role != ((was.original or was.role) if self.original_method else was.role):
            raise AuthenticationFailed("new credentials are of another role than those of the connection")
        self.is_asked = False
        if isinstance(was, ProxiedPrincipal):
            expires_ms = earlier(expires_ms, was.proxy_expires_ms)
        session.principal = msgspec.structs.replace(was, expires_ms=expires_ms)
        self._wait()


def on_auth_response(session: Session, command: Command) -> None:
    """New credentials, as the answer to AUTH_CHALLENGE; what is wrong with them closes the connection."""
    refresh = session.refresh
    if refresh is None:
        raise NotAllowed("command AUTH_RESPONSE is for connections with authentication")
    proof = Proof(refresh.original_method or refresh.method, command.authResponse.response.auth_data)
    try:
        if waits(session, command, proof):
            return
        found = (original_principal_of if refresh.original_method else principal_of)(session, proof)
        refresh.answered(found.role, found.expires_ms)
    except AuthenticationFailed as error:
        session.fail(str(error), error)

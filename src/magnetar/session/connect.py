"""CONNECT, PING and PONG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.session.handles import Command
from magnetar.session.login.proof import connected_principal, original_proof_of, proof_of, waits
from magnetar.session.login.refresh import Refresh
from magnetar.version import __version__
from magnetar.wire import schema_pb2 as pb

if TYPE_CHECKING:
    from magnetar.session.session import Session

PROTOCOL_VERSION = 21


def on_connect(session: Session, command: Command) -> None:
    connect = command.connect
    session.client_version = connect.client_version
    if session.broker.authentication.is_enabled:
        if waits(session, command, proof_of(connect), original_proof_of(session, connect)):
            return
        session.principal = connected_principal(session, connect)
        session.refresh = Refresh(session, connect)
    session.knows_positions = connect.feature_flags.supports_repl_dedup_by_lid_and_eid
    session.connected()
    connected = pb.CommandConnected(
        server_version=f"Magnetar {__version__}",
        protocol_version=min(connect.protocol_version, PROTOCOL_VERSION),
        max_message_size=session.broker.settings.maxMessageSize,
        feature_flags=pb.FeatureFlags(
            supports_get_partitioned_metadata_without_auto_creation=True,
            supports_repl_dedup_by_lid_and_eid=True,
        ),
    )
    session.send(Command(type=Command.CONNECTED, connected=connected))


def on_ping(session: Session, command: Command) -> None:
    session.pong()


def on_pong(session: Session, command: Command) -> None:
    """Any data shows that the client is alive; there is nothing more to do."""

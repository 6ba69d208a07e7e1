"""Refused commands: the reply, and a line in the log, because clients often show their user no more than the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.errors import AuthenticationFailed, MagnetarError, NotAllowed
from magnetar.log.events import (
    AUTHENTICATION_FAILED,
    CONNECT_REFUSED,
    CONNECTION_FAILED,
    LOOKUP_REFUSED,
    PRODUCER_REFUSED,
    REQUEST_REFUSED,
    SUBSCRIBE_REFUSED,
    Event,
)
from magnetar.session.handles import Command, SessionState, request_id_of
from magnetar.wire import schema_pb2 as pb

if TYPE_CHECKING:
    from magnetar.session.session import Session


def refuse(session: Session, command: Command, error: MagnetarError) -> None:
    """The reply to most commands: ERROR."""
    report_refusal(session, command, error)
    session.reply_error(request_id_of(command), error)


def refuse_unlisted(session: Session, command: Command) -> None:
    """A command that is not in the table: without a request id it has no reply, and is a violation of the protocol."""
    name = Command.Type.Name(command.type)
    if session.state is SessionState.CONNECTED and request_id_of(command) is not None:
        refuse(session, command, NotAllowed(f"command {name} is not supported by this broker"))
    else:
        session.fail(f"command {name} is not allowed in state {session.state.value}")


def report_refusal(session: Session, command: Command, error: MagnetarError) -> None:
    """A command failed; its client gets the same error. That of a client without proof is reported as a failure."""
    if isinstance(error, AuthenticationFailed):
        return
    event, values = _event_of(command)
    session.broker.event(
        event,
        client=session.address,
        version=session.client_version or "unknown client",
        error=pb.ServerError.Name(error.wire_code),  # type: ignore[arg-type]
        reason=str(error),
        **values,
    )


def _event_of(command: Command) -> tuple[Event, dict[str, str]]:
    if command.type == Command.SUBSCRIBE:
        return SUBSCRIBE_REFUSED, {"topic": command.subscribe.topic, "subscription": command.subscribe.subscription}
    if command.type == Command.PRODUCER:
        return PRODUCER_REFUSED, {"topic": command.producer.topic, "producer": command.producer.producer_name}
    if command.type == Command.LOOKUP:
        return LOOKUP_REFUSED, {"topic": command.lookupTopic.topic}
    if command.type == Command.PARTITIONED_METADATA:
        return LOOKUP_REFUSED, {"topic": command.partitionMetadata.topic}
    return REQUEST_REFUSED, {"command": Command.Type.Name(command.type)}


def report_failure(session: Session, reason: str, error: MagnetarError | None = None) -> None:
    """A connection is closed for a violation of the protocol, or because the client is not let in."""
    if isinstance(error, AuthenticationFailed):
        report_unproved(session, reason)
        return
    event = CONNECT_REFUSED if session.state is SessionState.START else CONNECTION_FAILED
    session.broker.event(
        event, client=session.address, version=session.client_version or "unknown client", reason=reason
    )


def report_unproved(session: Session, reason: str) -> None:
    """A client did not prove who it is, or does not any more."""
    version = session.client_version or "unknown client"
    session.broker.event(AUTHENTICATION_FAILED, client=session.address, version=version, reason=reason)

"""Commands with a schema that takes long to check: it is examined aside, then the command is handled as usual.

Until then the later input of the connection waits, in its order; other connections are served. Everything is checked
again when the command is handled: what was found ahead only counts if the versions of the topic are still the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker.schema.admission import examination_ahead
from magnetar.broker.schema.examination import Examination
from magnetar.names import TopicName
from magnetar.schema.types import Schema
from magnetar.session.handles import Command, SessionState

if TYPE_CHECKING:
    from magnetar.session.session import Session


def waits_for_examination(
    session: Session, command: Command, name: TopicName, schema: Schema | None, *, reads: bool = False
) -> bool:
    """Whether the handler returns at once, because the command is handled again after the examination."""
    broker = session.broker
    ahead = examination_ahead(broker, name, schema, reads=reads)
    if ahead is None:
        return False
    examination, work = ahead
    broker.examinations.run(
        partial(_examine, session, work), partial(_handle, session, command, examination), _client_of(session)
    )
    session.examinations += 1
    return True


def _client_of(session: Session) -> str:
    """By whose turn its schemas are examined: of one with many connections too."""
    principal = session.principal
    return principal.original or principal.role or session.where.host


def _examine(session: Session, work: Callable[[], object]) -> None:
    """In the thread, which has other work than that of connections that have ended."""
    if session.state is not SessionState.CLOSED:
        work()


def _handle(session: Session, command: Command, examination: Examination) -> None:
    session.examinations -= 1
    if session.state is not SessionState.CLOSED:
        with session.broker.schemas.using(examination):
            session.handle(command)
        session.go_on()

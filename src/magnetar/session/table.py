"""The command table: the commands allowed in each state of a connection, their handlers, and what each one needs.

A command that is not listed is a protocol error; docs/protocol.md is generated from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from magnetar.errors import MagnetarError
from magnetar.session import (
    connect as connecting,
)
from magnetar.session import (
    consumer as consuming,
)
from magnetar.session import (
    lookup as finding,
)
from magnetar.session import (
    producer as producing,
)
from magnetar.session import (
    schema as schemas,
)
from magnetar.session.handles import Command, SessionState
from magnetar.session.login import refresh as refreshing
from magnetar.session.refusals import refuse
from magnetar.session.rights import needs

if TYPE_CHECKING:
    from magnetar.session.session import Session

Handler = Callable[["Session", Command], None]
Refuse = Callable[["Session", Command, MagnetarError], None]


class TableRow(NamedTuple):
    """`needs` has no default: a command without it does not import. `refuse` sends the reply of a refusal."""

    handler: Handler
    needs: needs.CommandNeeds
    refuse: Refuse = refuse


TABLE: dict[SessionState, dict[Command.Type.ValueType, TableRow]] = {
    SessionState.START: {
        Command.CONNECT: TableRow(connecting.on_connect, needs.OPEN),
    },
    SessionState.CONNECTED: {
        Command.PING: TableRow(connecting.on_ping, needs.OPEN),
        Command.PONG: TableRow(connecting.on_pong, needs.OPEN),
        Command.AUTH_RESPONSE: TableRow(refreshing.on_auth_response, needs.OPEN),
        Command.PARTITIONED_METADATA: TableRow(
            finding.on_partitioned_metadata, needs.METADATA, finding.refuse_metadata
        ),
        Command.LOOKUP: TableRow(finding.on_lookup, needs.LOOKUP, finding.refuse_lookup),
        Command.GET_TOPICS_OF_NAMESPACE: TableRow(finding.on_get_topics_of_namespace, needs.TOPICS),
        Command.GET_SCHEMA: TableRow(schemas.on_get_schema, needs.READ_SCHEMA, schemas.refuse_get),
        Command.GET_OR_CREATE_SCHEMA: TableRow(
            schemas.on_get_or_create_schema, needs.WRITE_SCHEMA, schemas.refuse_get_or_create
        ),
        Command.PRODUCER: TableRow(producing.on_producer, needs.PRODUCER),
        Command.CLOSE_PRODUCER: TableRow(producing.on_close_producer, needs.HANDLE),
        Command.SUBSCRIBE: TableRow(consuming.on_subscribe, needs.SUBSCRIBE),
        Command.FLOW: TableRow(consuming.on_flow, needs.HANDLE),
        Command.ACK: TableRow(consuming.on_ack, needs.HANDLE),
        Command.REDELIVER_UNACKNOWLEDGED_MESSAGES: TableRow(consuming.on_redeliver, needs.HANDLE),
        Command.SEEK: TableRow(consuming.on_seek, needs.HANDLE),
        Command.GET_LAST_MESSAGE_ID: TableRow(consuming.on_get_last_message_id, needs.HANDLE),
        Command.CONSUMER_STATS: TableRow(consuming.on_consumer_stats, needs.HANDLE),
        Command.UNSUBSCRIBE: TableRow(consuming.on_unsubscribe, needs.HANDLE),
        Command.CLOSE_CONSUMER: TableRow(consuming.on_close_consumer, needs.HANDLE),
    },
    SessionState.CLOSED: {},
}

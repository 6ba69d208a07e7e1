"""The command table: the commands allowed in each state of a connection, and their handlers.

A command that is not listed is a protocol error; docs/protocol.md is generated from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from magnetar.session.session import Session

Handler = Callable[["Session", Command], None]

TABLE: dict[SessionState, dict[Command.Type.ValueType, Handler]] = {
    SessionState.START: {
        Command.CONNECT: connecting.on_connect,
    },
    SessionState.CONNECTED: {
        Command.PING: connecting.on_ping,
        Command.PONG: connecting.on_pong,
        Command.AUTH_RESPONSE: refreshing.on_auth_response,
        Command.PARTITIONED_METADATA: finding.on_partitioned_metadata,
        Command.LOOKUP: finding.on_lookup,
        Command.GET_TOPICS_OF_NAMESPACE: finding.on_get_topics_of_namespace,
        Command.GET_SCHEMA: schemas.on_get_schema,
        Command.GET_OR_CREATE_SCHEMA: schemas.on_get_or_create_schema,
        Command.PRODUCER: producing.on_producer,
        Command.CLOSE_PRODUCER: producing.on_close_producer,
        Command.SUBSCRIBE: consuming.on_subscribe,
        Command.FLOW: consuming.on_flow,
        Command.ACK: consuming.on_ack,
        Command.REDELIVER_UNACKNOWLEDGED_MESSAGES: consuming.on_redeliver,
        Command.SEEK: consuming.on_seek,
        Command.GET_LAST_MESSAGE_ID: consuming.on_get_last_message_id,
        Command.CONSUMER_STATS: consuming.on_consumer_stats,
        Command.UNSUBSCRIBE: consuming.on_unsubscribe,
        Command.CLOSE_CONSUMER: consuming.on_close_consumer,
    },
    SessionState.CLOSED: {},
}

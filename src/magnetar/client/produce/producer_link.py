"""The link of a producer to its broker: opened, opened again after a lost connection, closed.

Owns the name, the epochs and the connection of the producer. Sending, and sending again, is up to the link's owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol as Interface

import msgspec

from magnetar.client.connection.connection import Connection, ProducerListener
from magnetar.client.connection.protocol import Command
from magnetar.client.connection.retry import Reconnector
from magnetar.client.errors import ClientError, Closed, ConnectionLost, ProducerFenced
from magnetar.names import TopicName
from magnetar.wire import schema_pb2 as pb


class LinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None
    access_mode: pb.ProducerAccessMode.ValueType = pb.Shared
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    schema: pb.Schema | None = None
    timeout_s: float
    reconnect_timeout_s: float


class LinkOwner(ProducerListener, Interface):
    """The owner of a link; receives the events of the producer, and these."""

    def on_opened(self, connection: Connection, success: pb.CommandProducerSuccess) -> None:
        """The producer is open, for the first time or again. An error raised here closes it."""

    def on_failed(self, error: ClientError) -> None:
        """The producer failed, and is not opened again."""


class ProducerLink:
    """The producer of one topic without partitions, or of one partition. `connection` is None while it is not open."""

    def __init__(
        self,
        owner: LinkOwner,
        topic: TopicName,
        producer_id: int,
        options: LinkOptions,
        connect: Callable[[], Awaitable[Connection]],
    ) -> None:
        self.topic = topic
        self.producer_id = producer_id
        self.name = options.name or ""
        self.connection: Connection | None = None
        self._owner = owner
        self._options = options
        self._connect = connect
        self._reconnector = Reconnector(
            f"the producer of {topic.full}", self.open, owner.on_failed, limit_s=options.reconnect_timeout_s
        )
        self._epoch = 0
        self._topic_epoch: int | None = None
        self._is_closed = False

    async def open(self, name: str | None = None) -> None:
        """`name` is the name that the broker generated for another partition of the topic."""
        if name is not None and not self.name:
            self.name = name
        connection = await self._connect()
        connection.producers[self.producer_id] = self._owner
        try:
            reply = await connection.request(
                self._producer_command, f"opening the producer of {self.topic.full}", self._options.timeout_s
            )
            if self.producer_id not in connection.producers:
                raise connection.error or ConnectionLost(f"broker {connection.address} closed the producer at once")
            self._epoch += 1
            self._apply(reply.producer_success)
            self.connection = connection
            self._owner.on_opened(connection, reply.producer_success)
        except BaseException:
            # The broker may have created the producer although its reply was lost.
            self.connection = None
            self._close_at(connection)
            raise

    def _apply(self, success: pb.CommandProducerSuccess) -> None:
        self.name = success.producer_name
        self._topic_epoch = success.topic_epoch if success.HasField("topic_epoch") else None

    def _producer_command(self, request_id: int) -> Command:
        options = self._options
        producer = pb.CommandProducer(
            topic=self.topic.full,
            producer_id=self.producer_id,
            request_id=request_id,
            epoch=self._epoch,
            user_provided_producer_name=options.name is not None,
            producer_access_mode=options.access_mode,
            metadata=[pb.KeyValue(key=key, value=value) for key, value in options.properties.items()],
        )
        if self.name:
            producer.producer_name = self.name
        if self._topic_epoch is not None:
            producer.topic_epoch = self._topic_epoch
        if options.schema is not None:
            producer.schema.CopyFrom(options.schema)
        return Command(type=Command.PRODUCER, producer=producer)

    def _close_command(self, request_id: int) -> Command:
        close = pb.CommandCloseProducer(producer_id=self.producer_id, request_id=request_id)
        return Command(type=Command.CLOSE_PRODUCER, close_producer=close)

    def _close_at(self, connection: Connection) -> None:
        if connection.producers.pop(self.producer_id, None) is not None:
            connection.send(self._close_command(connection.new_request_id()))

    def start_over(self, error: ClientError) -> None:
        """Closes the broker's producer and opens a new one."""
        if self.connection is not None:
            self._close_at(self.connection)
        self.lost(error)

    def lost(self, error: ClientError) -> None:
        """The connection or the broker's producer is gone: opens a new one, unless the error is final."""
        if self.connection is None or self._is_closed:
            return  # it was being opened: the caller of `open` gets the error
        self.connection = None
        if isinstance(error, Closed | ProducerFenced):
            self._owner.on_failed(error)
        else:
            self._reconnector.start(error)

    def stop(self) -> None:
        """Ends reconnecting."""
        self._is_closed = True
        self._reconnector.stop()

    async def close(self) -> None:
        """Returns once the name is free again."""
        self.stop()
        connection, self.connection = self.connection, None
        if connection is not None and connection.producers.pop(self.producer_id, None) is not None:
            await connection.request(
                self._close_command, f"closing the producer of {self.topic.full}", self._options.timeout_s
            )

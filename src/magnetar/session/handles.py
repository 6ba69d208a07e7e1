"""Parts of a session: its states, the client's address, handles of producers and consumers for the hot path, and the
wire form of ids and bit sets.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from magnetar.access.needs import Right
from magnetar.broker.subscription.consumer import Consumer
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.topic import Topic
from magnetar.deadletter.topics import is_dead_letter_or_retry_topic
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.templates import MessageEncoder, SendReceiptEncoder

Command = pb.BaseCommand


class SessionState(enum.Enum):
    START = "start"  # only CONNECT is allowed
    CONNECTED = "connected"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class ClientAddress:
    """The client's address, and our addresses as it sees them; those of ports that are off are empty."""

    peer: str
    service_url: str
    http_url: str
    common_name: str = ""  # of the client's verified certificate
    is_local: bool = False  # on the broker's own machine: it can reach this address, whatever is advertised elsewhere
    service_url_tls: str = ""

    @property
    def host(self) -> str:
        """The client's address without its port."""
        return self.peer.rpartition(":")[0]


def _size_of(named: Producer | Consumer) -> int:
    """Characters of its name and metadata, which its client chose."""
    return len(named.name) + sum(len(key) + len(value) for key, value in named.metadata.items())


class ProducerHandle:
    """A producer of this connection, with its encoder for the hot path. `rights`: those that opened it."""

    __slots__ = ("encoder", "is_ready", "producer", "rights", "schema_version", "size", "takes_dead_letters", "topic")

    def __init__(
        self, producer: Producer, topic: Topic, schema_version: bytes = b"", rights: Sequence[Right] = ()
    ) -> None:
        self.producer = producer
        self.rights = rights
        self.size = _size_of(producer)
        self.schema_version = schema_version
        self.topic = topic
        self.encoder = SendReceiptEncoder(producer.producer_id, topic.ledger_id)
        self.is_ready = False
        self.takes_dead_letters = is_dead_letter_or_retry_topic(topic.name)


class ConsumerHandle:
    """`is_known`: the client has the reply to its SUBSCRIBE. Until then, `is_active` waits to be sent."""

    __slots__ = ("consumer", "encoder", "is_active", "is_known", "rights", "size", "topic")

    def __init__(self, consumer: Consumer, topic: Topic, rights: Sequence[Right] = ()) -> None:
        self.consumer = consumer
        self.rights = rights
        self.size = _size_of(consumer)
        self.topic = topic
        self.is_known = False
        self.is_active: bool | None = None
        self.encoder = MessageEncoder(consumer.consumer_id, topic.ledger_id, topic.name.partition)


H = TypeVar("H", bound=ProducerHandle | ConsumerHandle)


class Handles(dict[int, H]):
    """Producers or consumers of a connection by id; `size` is what their names and metadata take together.

    Only `[id] = handle` and `pop` change it.
    """

    size = 0

    def __setitem__(self, number: int, handle: H) -> None:
        self.pop(number, None)
        super().__setitem__(number, handle)
        self.size += handle.size

    def pop(self, number: int, default: H | None = None) -> H | None:  # type: ignore[override]  # never raises
        handle = super().pop(number, default)
        if handle is not None:
            self.size -= handle.size
        return handle


def words_of(open_bits: int) -> list[int]:
    """A set of bits as the signed 64-bit words of the protocol, lowest first."""
    count = (open_bits.bit_length() + 63) // 64
    return list(struct.unpack(f"<{count}q", open_bits.to_bytes(count * 8, "little")))


def bits_of(words: Sequence[int]) -> int:
    # Linear on purpose: the client decides how many words there are.
    return int.from_bytes(struct.pack(f"<{len(words)}q", *words), "little")


def request_id_of(command: Command) -> int | None:
    """The request id of a command; None if its kind has none."""
    for field, message in command.ListFields():
        if field.name != "type" and "request_id" in message.DESCRIPTOR.fields_by_name:
            request_id: int = message.request_id
            return request_id
    return None

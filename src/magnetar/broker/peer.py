"""What the core needs of the client at the other end: a few things to say, and whether it listens.

The session implements it over a connection; tests and simulations implement it as a list. Everything said is only put
into an outbox: a call never blocks and never calls back into the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from magnetar.broker.subscription.consumer import Consumer
    from magnetar.broker.topic.producer import Producer
    from magnetar.errors import MagnetarError

# sequence id, highest sequence id, entry id (-1 for a duplicate that was dropped)
Receipt = tuple[int, int, int]
# entry id, redelivery count, open bits of a partly acknowledged batch (None: all open), blob
Delivery = tuple[int, int, int | None, bytes]


class Peer(Protocol):
    writable: bool
    address: str
    client_version: str

    def receipts(self, producer: Producer, receipts: Sequence[Receipt]) -> None: ...

    def send_error(self, producer: Producer, sequence_id: int, error: MagnetarError) -> None: ...

    def deliver(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None: ...

    def active_changed(self, consumer: Consumer, is_active: bool) -> None: ...

    def end_of_topic(self, consumer: Consumer) -> None: ...

    def close_consumer(self, consumer: Consumer) -> None:
        """The broker takes the consumer away; the client looks the topic up again and comes back."""

    def close_producer(self, producer: Producer) -> None: ...

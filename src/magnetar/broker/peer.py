"""The peer: the core's interface to a client.

The session implements it over a connection; tests and simulations as lists. Calls only add to an outbox: they never
block and never call back into the core.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from magnetar.broker.subscription.consumer import Consumer
    from magnetar.broker.throttling.rate_limit import RateLimit
    from magnetar.broker.topic.producer import Producer
    from magnetar.errors import MagnetarError

# sequence id, highest sequence id, entry id (-1 for a duplicate that was dropped)
Receipt = tuple[int, int, int]
# entry id or single message id, redelivery count, open bits of a partly acknowledged batch (None: all open), blob
Delivery = tuple[int, int, int | None, bytes]


class Peer(Protocol):
    writable: bool
    address: str
    client_version: str
    is_limited: bool  # one of its topics has a publish rate: few of its messages are taken at a time

    def receipts(self, producer: Producer, receipts: Sequence[Receipt]) -> None: ...

    def send_error(self, producer: Producer, sequence_id: int, error: MagnetarError) -> None: ...

    def deliver(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None: ...

    def active_changed(self, consumer: Consumer, is_active: bool) -> None: ...

    def end_of_topic(self, consumer: Consumer) -> None: ...

    def close_consumer(self, consumer: Consumer) -> None:
        """Disconnects the consumer; the client looks the topic up again and reconnects."""

    def close_producer(self, producer: Producer) -> None: ...

    def hold(self, limit: RateLimit) -> None:
        """Stops reading from the client until `release` is called for this limit."""

    def release(self, limit: RateLimit) -> None: ...

"""Consumer of a subscription: its permits, its unacknowledged entries, and its options."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from magnetar.broker.held_entries import HeldEntries
from magnetar.broker.peer import Peer
from magnetar.broker.rates import Rates

if TYPE_CHECKING:
    from magnetar.broker.topic.topic import TopicSubscription


_IDENTITY_MAX = 256  # characters of each part: clients choose the texts


class SubscriptionType(enum.IntEnum):
    """Values of the protocol's CommandSubscribe.SubType."""

    Exclusive = 0
    Shared = 1
    Failover = 2
    Key_Shared = 3


SPREADING = (SubscriptionType.Shared, SubscriptionType.Key_Shared)
"""The types that spread messages over consumers; on the others one consumer gets everything in order."""


class Consumer:
    """`pending` holds its unacknowledged entries, with the number of open messages in each.

    `singles` are those of them that are delivered as single messages, with the bits of the messages nacked since.
    """

    __slots__ = (
        "_identity",
        "allow_out_of_order",
        "connected_at_ms",
        "consumer_id",
        "delivered_bytes",
        "delivered_messages",
        "end_of_topic_sent",
        "entries_max",
        "epoch",
        "hash_ranges",
        "last_flow_ms",
        "metadata",
        "name",
        "peer",
        "pending",
        "permits",
        "priority",
        "rates",
        "redelivered_messages",
        "singles",
        "subscription",
        "takes_any_schema",
        "type",
        "unacked",
        "unacked_max",
    )

    def __init__(
        self,
        peer: Peer,
        consumer_id: int,
        name: str,
        type: SubscriptionType,
        *,
        priority: int = 0,
        metadata: dict[str, str] | None = None,
        epoch: int | None = None,
        hash_ranges: list[tuple[int, int]] | None = None,
        allow_out_of_order: bool = False,
        connected_at_ms: int = 0,
        unacked_max: int = 0,
        takes_any_schema: bool = False,
    ) -> None:
        self.peer = peer
        self.consumer_id = consumer_id
        self.name = name
        self.type = type
        self.priority = priority
        self.metadata = metadata or {}
        self.epoch = epoch
        self.hash_ranges = hash_ranges or []
        self.allow_out_of_order = allow_out_of_order
        self.connected_at_ms = connected_at_ms
        self.takes_any_schema = takes_any_schema
        self.limit_unacked(unacked_max)
        self.permits = 0
        self.entries_max = 0  # that it may hold while one of them is a suspect; 0 for any number
        self.last_flow_ms = 0  # when it last requested messages
        self.unacked = 0
        self.pending: dict[int, int] | HeldEntries = {} if type in SPREADING else HeldEntries()
        self.singles: dict[int, int] = {}
        self.delivered_messages = 0
        self.delivered_bytes = 0
        self.redelivered_messages = 0
        self.rates = Rates(3)  # messages, bytes, redelivered messages
        self.end_of_topic_sent = False
        self.subscription: TopicSubscription | None = None
        self._identity = ""

    def limit_unacked(self, unacked_max: int) -> None:
        """Limits only types that spread messages over consumers, as Apache Pulsar does."""
        self.unacked_max = unacked_max if self.type in SPREADING else 0

    @property
    def is_blocked(self) -> bool:
        """Whether it holds as many unacknowledged messages as it may."""
        return 0 < self.unacked_max <= self.unacked

    @property
    def identity(self) -> str:
        """Name, address and client version, one per line: stored with the messages that it failed."""
        if not self._identity:
            parts = (self.name, self.peer.address.lstrip("/"), self.peer.client_version)
            self._identity = "\n".join(part[:_IDENTITY_MAX].replace("\n", " ") for part in parts)
        return self._identity

    def update_rates(self, seconds: float) -> None:
        self.rates.update(seconds, self.delivered_messages, self.delivered_bytes, self.redelivered_messages)

    @property
    def can_receive(self) -> bool:
        is_full = 0 < self.entries_max <= len(self.pending)
        return self.permits > 0 and not is_full and self.peer.writable and not self.is_blocked

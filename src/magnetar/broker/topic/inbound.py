"""Inbound replication of a topic: messages and bytes from each other cluster.

Producers come and go with every slice of a pipeline's work; these counters live as long as the topic is open. Knows
nothing of declared routes.
"""

from __future__ import annotations

from magnetar.bounds import INBOUND_SOURCES
from magnetar.broker.rates import Rates

OTHERS = "others"
"""The name under which sources beyond the limit are counted."""


class Inbound:
    """Counters of one source cluster. `rates` are messages and bytes per second."""

    __slots__ = ("bytes_in", "messages_in", "rates")

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.rates = Rates(2)

    def count(self, messages: int, size: int) -> None:
        self.messages_in += messages
        self.bytes_in += size

    def update_rates(self, seconds: float) -> None:
        self.rates.update(seconds, self.messages_in, self.bytes_in)


class InboundBySource(dict[str, Inbound]):
    """Counters by source cluster, created when first used. Clients choose the names: beyond a limit they share one."""

    def __missing__(self, source: str) -> Inbound:
        if len(self) >= INBOUND_SOURCES.limit:
            source = OTHERS
        return self.setdefault(source, Inbound())

"""What came into a topic from other clusters: counted by cluster, which the name of a producer of copies tells.

Producers come and go with every slice of a pipeline's work; what they wrote is counted here for as long as the topic is
open. Knows nothing of what was declared.
"""

from __future__ import annotations

from magnetar.broker.rates import Rates
from magnetar.broker.topic.producer import Producer
from magnetar.replication.model import FOREIGN_PRODUCER_PREFIX, PRODUCER_PREFIX

PARKED = "parked"  # in the place of a cluster: what is set aside in the source itself


class Inbound:
    """Of one cluster. `rates` are messages and bytes a second."""

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


def source_of(producer: Producer) -> str:
    """The cluster whose messages a producer copies; empty if it copies none.

    Our pipelines' names are `magnetar.repl.{cluster}/…`, those of Apache Pulsar's replicators
    `pulsar.repl.{cluster}-->{this one}`, or in older ones without the arrow.
    """
    name = producer.name
    if name.startswith(PRODUCER_PREFIX):
        cluster = name.removeprefix(PRODUCER_PREFIX).partition("/")[0]
        return "" if cluster == PARKED else cluster
    if name.startswith(FOREIGN_PRODUCER_PREFIX):
        return name.removeprefix(FOREIGN_PRODUCER_PREFIX).partition("-->")[0]
    return ""

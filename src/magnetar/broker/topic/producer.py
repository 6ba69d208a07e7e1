"""Producers of a topic: access modes, names, fencing, and the queue for exclusive access."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from magnetar.bounds import PRODUCERS_WAITING
from magnetar.broker.peer import Peer
from magnetar.broker.rates import Rates
from magnetar.broker.topic.replicated import PulsarReplicatedEntries, ReplicatedEntries
from magnetar.errors import MagnetarError, ProducerBusy, ProducerFenced, ServiceNotReady
from magnetar.replication.model import is_pipeline_producer, is_pulsar_replicator, source_of

if TYPE_CHECKING:
    from magnetar.broker.moves.move import Move


class AccessMode(enum.IntEnum):
    """Values of the protocol's ProducerAccessMode."""

    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class Producer:
    """`topic_epoch` is the epoch a reconnecting producer claims; `on_ready` runs when a waiting one gets its turn.

    `is_replicator`: it writes entries of another cluster, `source`, or messages that one refused (no source). With
    `knows_positions` receipts carry positions in the source, as replicators of Apache Pulsar may request. `move`: its
    entries replace messages that they name.
    """

    __slots__ = (
        "access_mode",
        "bytes_in",
        "connected_at_ms",
        "epoch",
        "is_replicator",
        "knows_positions",
        "messages_in",
        "metadata",
        "move",
        "name",
        "name_is_given",
        "on_failed",
        "on_ready",
        "peer",
        "producer_id",
        "rates",
        "refused",
        "replicated",
        "source",
        "topic_epoch",
    )

    def __init__(
        self,
        peer: Peer,
        producer_id: int,
        name: str,
        *,
        name_is_given: bool = True,
        access_mode: AccessMode = AccessMode.Shared,
        epoch: int = 0,
        topic_epoch: int | None = None,
        metadata: dict[str, str] | None = None,
        knows_positions: bool = False,
        connected_at_ms: int = 0,
        move: Move | None = None,
        on_ready: Callable[[], None] = lambda: None,
        on_failed: Callable[[MagnetarError], None] = lambda error: None,
    ) -> None:
        self.peer = peer
        self.producer_id = producer_id
        self.name = name
        self.name_is_given = name_is_given
        self.access_mode = access_mode
        self.epoch = epoch
        self.topic_epoch = topic_epoch
        self.metadata = metadata or {}
        self.is_replicator = is_pipeline_producer(name) or is_pulsar_replicator(name)
        self.source = source_of(name)
        self.knows_positions = knows_positions
        self.move = move
        self.replicated: ReplicatedEntries | PulsarReplicatedEntries | None = None  # its topic's, for a replicator
        self.refused: MagnetarError | None = None  # the error of the first rejected message
        self.connected_at_ms = connected_at_ms
        self.on_ready = on_ready
        self.on_failed = on_failed
        self.rates = Rates(2)  # messages and bytes in
        self.messages_in = 0
        self.bytes_in = 0


class Producers:
    """The producers connected to a topic, by name. At most one while `exclusive` is set.

    `fault` is called with an error that no client caused, met by one producer; the others go on.
    """

    __slots__ = ("_claim_epoch", "_fault", "_name", "by_name", "exclusive", "waiting")

    def __init__(
        self, topic_name: str, claim_epoch: Callable[[Producer], None], fault: Callable[[Exception], None]
    ) -> None:
        self._name = topic_name
        self._claim_epoch = claim_epoch
        self._fault = fault
        self.by_name: dict[str, Producer] = {}
        self.exclusive: Producer | None = None
        self.waiting: OrderedDict[Producer, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self.by_name)

    @property
    def replicators(self) -> int:
        """The number of replicators among them."""
        return sum([producer.is_replicator for producer in self.by_name.values()])

    def add(self, producer: Producer) -> bool:
        """Adds the producer; false if it has to wait for exclusive access."""
        self._replace_predecessor(producer)
        mode = producer.access_mode
        if mode is AccessMode.Shared:
            if self.exclusive is not None or self.waiting:
                # ProducerBusy also means that the name is in use. A replicator must tell the two apart.
                error = ProducerFenced if producer.is_replicator else ProducerBusy
                raise error(f"topic {self._name} has an exclusive producer: {self._exclusive_name()}")
            self.by_name[producer.name] = producer
            return True
        if mode is AccessMode.Exclusive and (self.by_name or self.waiting):
            raise ProducerFenced(f"topic {self._name} has other producers: {self._exclusive_name()}")
        if mode is AccessMode.WaitForExclusive and self.by_name:
            if len(self.waiting) >= PRODUCERS_WAITING.limit:
                raise ProducerBusy(
                    f"topic {self._name} has {len(self.waiting)} producers that wait for exclusive access,"
                    f" the limit is {PRODUCERS_WAITING.limit}"
                )
            self.waiting[producer] = None
            return False
        if mode is AccessMode.ExclusiveWithFencing:
            self._fence_out_others()
        self._make_exclusive(producer)
        return True

    def remove(self, producer: Producer) -> None:
        """Removes a producer; once no other is connected, the next in the queue gets exclusive access."""
        if producer in self.waiting:
            del self.waiting[producer]
            return
        if self.by_name.get(producer.name) is not producer:
            return
        del self.by_name[producer.name]
        if self.exclusive is producer:
            self.exclusive = None
        while not self.by_name and self.waiting:
            successor = self.waiting.popitem(last=False)[0]
            try:
                self._make_exclusive(successor)
            except MagnetarError as error:
                successor.on_failed(error)
            except Exception as error:
                self._fault(error)
                reason = f"topic {self._name} cannot give exclusive access: unexpected {type(error).__name__}"
                successor.on_failed(ServiceNotReady(reason))
            else:
                successor.on_ready()

    def close_all(self) -> None:
        """Disconnects every producer; clients look the topic up again."""
        for producer in (*self.waiting, *self.by_name.values()):
            producer.peer.close_producer(producer)
        self.waiting.clear()
        self.by_name.clear()
        self.exclusive = None

    def _replace_predecessor(self, producer: Producer) -> None:
        """Takes over the name from an earlier connection of the same producer; raises if another producer has it."""
        old = self.by_name.get(producer.name)
        if old is None:
            return
        same_client = old.peer is producer.peer and old.producer_id == producer.producer_id
        generated = not old.name_is_given and not producer.name_is_given
        if not (generated or same_client) or producer.epoch <= old.epoch:
            raise ProducerBusy(f"producer with name {producer.name!r} is already connected to topic {self._name}")
        old.peer.close_producer(old)
        del self.by_name[old.name]
        if self.exclusive is old:
            self.exclusive = None

    def _fence_out_others(self) -> None:
        waiting, self.waiting = self.waiting, OrderedDict()
        for producer in waiting:
            producer.on_failed(ProducerFenced(f"fenced out of topic {self._name} by a newer exclusive producer"))
        for producer in self.by_name.values():
            producer.peer.close_producer(producer)
        self.by_name.clear()
        self.exclusive = None

    def _make_exclusive(self, producer: Producer) -> None:
        self._claim_epoch(producer)
        self.by_name[producer.name] = producer
        self.exclusive = producer

    def _exclusive_name(self) -> str:
        return self.exclusive.name if self.exclusive else ", ".join(islice(self.by_name, 3))

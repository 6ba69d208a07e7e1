"""The world: one broker over a disk that can crash, clients, an administrator, vandals and time, all driven by a seed.

`World(seed).run()` takes random steps, then lets everything come to rest and checks that nothing was lost. Every check
of a single step is in `oracle`, every check of a crash in `recovery`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from random import Random

import msgspec

from magnetar.broker import broker as broker_module
from magnetar.broker import commit
from magnetar.broker.broker import Broker
from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.catalog.record import ClusterRecord, NamespaceRecord
from magnetar.broker.host import ManualHost
from magnetar.broker.subscription import cursor, subscription
from magnetar.broker.topic import delayed
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.clock import ManualClock
from magnetar.names import TopicName
from magnetar.session.handles import Address, State
from magnetar.session.session import Session
from magnetar.storage.api import StorageError
from magnetar.storage.memory import MemoryStorage
from magnetar.wire.frames import encode_frame, encode_frame_with_blob

from . import recovery
from .administrator import Administrator
from .behaviour import Behaviour, one_of
from .client import Command, Connection, SimClient
from .commit_steps import CommitSteps
from .ending import Ending
from .failure import BrokenPromise, expect
from .graveyard import Graveyard
from .oracle import Oracle
from .scenery import (
    PARTITIONED,
    PARTITIONS,
    REMOTE,
    Letters,
    is_replicated,
    letters_for,
    settings_for,
    subscription_names,
    topic_names,
    weights_for,
)
from .snapshot import Boundary, Snapshot, snapshot_of
from .truth import Truth
from .vandal import garbage

_NAMESPACE = "public/default"
_START_MS = 1_700_000_000_000
_STEPS_SHOWN = 30
# Steps that only put something on its way: the broker knows nothing of them yet.
_OF_CLIENTS_ALONE = {"hear", "produce", "acknowledge", "give_back", "flow", "leave", "close_producer"}


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.settings = settings_for(self.rng)
        self.topics = topic_names(self.rng)
        self.subscriptions = subscription_names(self.rng)
        self.letters = letters_for(self.rng, self.topics, self.subscriptions)
        if self.letters is not None:
            self.topics += self.letters.topics
        self.clock = ManualClock(_START_MS)
        self.latest_ms = _START_MS
        self.graveyard = Graveyard()
        self.truth = Truth(self.graveyard, deduplicates=self.settings.brokerDeduplicationEnabled)
        self.oracle = Oracle(self)
        self.deleted: set[int] = set()
        self.history: deque[str] = deque(maxlen=_STEPS_SHOWN)
        self.clients = [self.new_client(f"c{number}") for number in range(self.rng.randint(1, 4))]
        self.vandal: Connection | None = None
        self.connections: list[Connection] = []
        self.is_maintained = False
        self.crashes = 0
        self._steps_taken = 0
        self._doing = "nothing yet"
        self._start(MemoryStorage())
        self.is_replicated = is_replicated(seed)
        if self.is_replicated:
            self._replicate()
        if self.topics[0].startswith(f"{PARTITIONED}-"):
            self.broker.catalog.create_partitioned(TopicName.parse(PARTITIONED), PARTITIONS, {})
        if self.letters is not None and self.letters.grave_partitions:
            grave = TopicName.parse(self.letters.GRAVE)
            self.broker.catalog.create_partitioned(grave, self.letters.grave_partitions, {})
        if self.letters is not None:
            self._set_namespace(self.letters)
        self.commit_all()
        behaviour = Behaviour(self)
        self._actors = (self, behaviour, Administrator(self))
        for client in self.clients:
            self.connect(client)
            for _ in range(self.rng.randint(2, 6)):
                behaviour.open_one(client)

    def _replicate(self) -> None:
        catalog = self.broker.catalog
        catalog.save_cluster(REMOTE, ClusterRecord(broker_service_url="pulsar://remote:6650"))
        overrides = Overrides(replication_clusters=[self.settings.clusterName, REMOTE])
        catalog.save_namespace(_NAMESPACE, NamespaceRecord(overrides=overrides))

    def _set_namespace(self, letters: Letters) -> None:
        catalog = self.broker.catalog
        record = catalog.namespaces[_NAMESPACE]
        overrides = msgspec.structs.replace(
            record.overrides,
            dead_letters=letters.default,
            dead_letter_expired=letters.of_the_given_up,
            dead_letter_evicted=letters.of_the_given_up,
        )
        catalog.save_namespace(_NAMESPACE, msgspec.structs.replace(record, overrides=overrides))

    def new_client(self, name: str) -> SimClient:
        return SimClient(name, self.rng, self.clock.now_ms)

    # -- the whole story

    def run(self) -> None:
        with _small_limits(self.rng):
            try:
                actions, weights = self._weighted_actions()
                length = self.rng.randint(50, 700)
                while self._steps_taken < length:
                    self.step(self.rng.choices(actions, weights)[0])
                Ending(self).come()
            except BrokenPromise as broken:
                raise BrokenPromise(self._report(str(broken))) from broken
            except Exception as error:
                raise BrokenPromise(self._report(f"{type(error).__name__}: {error}")) from error

    def step(self, action: Callable[[], str | None]) -> None:
        self._doing = action.__name__
        done = action()
        if done is not None:
            self._steps_taken += 1
            self._doing = f"what followed {self._doing}"
            self.history.append(f"{self._steps_taken} {done}")
            if action.__name__ not in _OF_CLIENTS_ALONE:
                self.settle()

    def settle(self) -> None:
        """What was said goes on its way, and everything is as it should be."""
        for connection in self.connections:
            self._flush(connection)
        self.broker.invariants()
        self.oracle.look(maintained=self.is_maintained)
        self.is_maintained = False
        self.steps.after_step()

    def _report(self, reason: str) -> str:
        lines = "\n".join(f"    {line}" for line in (*self.history, f"in {self._doing}"))
        return (
            f"seed {self.seed}: {reason}\n  the last steps:\n{lines}\n  replay: python -m tests.simulation {self.seed}"
        )

    # -- lives of the broker

    def _start(self, storage: MemoryStorage) -> None:
        self.storage = storage
        self.base = recovery.inspect(self.settings, storage.crash(), self.clock.now_ms(), self.truth.boundary)
        self.truth.boundary = Boundary(self.base, self.base)
        self.broker = Broker(self.settings, storage, self.clock, ManualHost())
        self.steps = CommitSteps(self.broker.commits, storage, self.truth, self.rng, self._snapshot)
        self.steps.after_step()

    def _snapshot(self) -> Snapshot:
        return snapshot_of(self.broker, self.base)

    def crash(self) -> str:
        """The process or the machine stops: of what was not synced, any number of first writes may be there."""
        self.crashes += 1
        unsynced = self.storage.unsynced_writes
        expect(unsynced == len(self.truth.unsynced), "the simulation lost count of the writes")
        kept = self.rng.randint(0, unsynced)
        self._look_at_other_outcomes(kept)
        survivor = self.storage.crash(keep_unsynced_writes=kept)
        self._look_at_lost_letters()
        self.truth.synced(kept)
        self._end_life()
        self._start(survivor)
        recovery.check_entries(survivor, self.truth, self.base, self.oracle.receipts, self.deleted)
        for topic in recovery.open_all(self.settings, survivor.crash(), self.clock.now_ms()).topics.values():
            assert isinstance(topic, PersistentTopic)
            recovery.check_sequences(topic, self.truth)
            if topic.ledger_id in self.oracle.ended:
                expect(topic.is_terminated, f"{topic.name.full} is open again after its end was announced")
        return f"crash, {kept} of {unsynced} unsynced writes are kept"

    def _look_at_other_outcomes(self, kept: int) -> None:
        boundaries = [self.truth.boundary, *(boundary for _, boundary in self.truth.unsynced)]
        for number, boundary in enumerate(boundaries):
            if number != kept:
                survivor = self.storage.crash(keep_unsynced_writes=number)
                recovery.inspect(self.settings, survivor, self.clock.now_ms(), boundary)

    def _look_at_lost_letters(self) -> None:
        """Also of what the crash takes away, no write holds an acknowledgement without its letter."""
        if self.truth.unsynced and self.graveyard.expected:
            graveyard = deepcopy(self.graveyard)
            for operations, _ in self.truth.unsynced:
                graveyard.wrote(operations)

    def _end_life(self) -> None:
        for connection in self.connections:
            connection.is_open = False
        self.connections.clear()
        self.vandal = None
        for client in self.clients:
            client.disconnected()
        self.oracle.forget_life()

    @property
    def has_failed(self) -> bool:
        """The storage does not write any more, or will not the next time."""
        return self.steps.failure is not None or bool(self.storage._fail_next)

    def _restart(self) -> str | None:
        """A clean stop: everything is written, the storage is closed."""
        if self.has_failed:
            return None
        for connection in list(self.connections):
            self.lose(connection)
        self.commit_all()
        self.storage.close()
        self.truth.synced()
        expect(not self.graveyard.expected, f"a clean stop without the letters of {self.graveyard.expected}")
        survivor = self.storage.crash()
        self._end_life()
        self._start(survivor)
        return "clean restart"

    def crash_or_fail(self) -> str | None:
        if self.steps.failure is not None:
            return self.crash()
        kind = self.rng.random()
        if kind < 0.7:
            return self.crash()
        if kind < 0.85:
            return self._restart()
        on = "write" if self.rng.random() < 0.5 else "sync"
        self.storage.fail_next(StorageError(f"{on} fails"), on=on)  # type: ignore[arg-type]
        return f"the next {on} will fail"

    def commit_all(self) -> None:
        while not self.steps.is_done:
            self.steps.step()
            self.settle()

    # -- connections

    def connect(self, client: SimClient) -> Connection:
        connection = self._new_connection(client.name)
        client.connected(connection)
        return connection

    def _new_connection(self, name: str) -> Connection:
        address = Address(f"{name}:1", "pulsar://simulation:6650", "http://simulation:8080")
        session = Session(self.broker, address, lambda: None, lambda: self._closed_by_broker(connection))
        connection = Connection(session)
        self.connections.append(connection)
        return connection

    def _closed_by_broker(self, connection: Connection) -> None:
        self._flush(connection)
        connection.is_open = False

    def _flush(self, connection: Connection) -> None:
        output = connection.session.take_output()
        if output:
            for command, blob in connection.decoder.receive_data(b"".join(output)):
                self.oracle.said(connection, command, blob)
                connection.to_client.append((command, blob))
            expect(connection.decoder.error is None, f"the broker sent {connection.decoder.error}")

    def lose(self, connection: Connection) -> None:
        connection.is_open = False
        if connection in self.connections:
            self.connections.remove(connection)
        leaving = self.oracle.fate.leaving(connection)
        connection.session.connection_lost()
        self.oracle.fate.vanished(leaving)
        for client in self.clients:
            if client.connection is connection:
                client.disconnected()
        if self.vandal is connection:
            self.vandal = None

    def arrive(self) -> str | None:
        client = one_of(self.rng, (c for c in self.clients if c.connection and c.connection.to_broker))
        if client is None or client.connection is None:
            return None
        connection = client.connection
        if not connection.is_open:
            self.lose(connection)
            return f"{client.name} sees that its connection was closed"
        arrived = []
        for _ in range(self.rng.randint(1, 6)):
            if connection.to_broker and connection.is_open:
                arrived.append(self.receive(connection))
                self.settle()
        return f"{client.name}: {'; '.join(arrived)}"

    def receive(self, connection: Connection) -> str:
        """One command, or several SENDs in a row, as one read or in two pieces."""
        frames = [connection.to_broker.popleft()]
        if frames[0][0].type == Command.SEND:
            wanted = self.rng.randint(1, 5)
            while len(frames) < wanted and connection.to_broker and connection.to_broker[0][0].type == Command.SEND:
                frames.append(connection.to_broker.popleft())
        data = b""
        speaker = None
        for command, blob in frames:
            if blob is not None:
                self.oracle.sending(connection, command, blob)
                data += encode_frame_with_blob(command, blob)
            else:
                speaker = self.oracle.before(connection, command)
                data += encode_frame(command)
        cut = self.rng.randint(0, len(data)) if self.rng.random() < 0.2 else 0
        if cut:
            connection.session.receive(data[:cut])
        connection.session.receive(data[cut:])
        if frames[0][1] is None:
            self.oracle.arrived(connection, frames[0][0], speaker)
        return ", ".join(_describe(command) for command, _ in frames)

    def hear(self) -> str | None:
        client = one_of(self.rng, (c for c in self.clients if c.connection and c.connection.to_client))
        if client is None or client.connection is None:
            return None
        heard = []
        for _ in range(self.rng.randint(1, 20)):
            if not client.connection.to_client:
                break
            frame = client.connection.to_client.popleft()
            client.hear(*frame)
            heard.append(_describe(frame[0]))
        return f"{client.name} hears {', '.join(heard)}"

    def connect_somebody(self) -> str | None:
        client = one_of(self.rng, (c for c in self.clients if not c.is_connected))
        if client is None:
            return None
        self.connect(client)
        return f"{client.name} connects"

    def lose_somebody(self) -> str | None:
        client = one_of(self.rng, (c for c in self.clients if c.is_connected))
        if client is None or client.connection is None:
            return None
        self.lose(client.connection)
        return f"{client.name} loses its connection"

    def change_writable(self) -> str | None:
        connection = one_of(self.rng, (c for c in self.connections if c.session.state is State.CONNECTED))
        if connection is None:
            return None
        if connection.session.writable and self.rng.random() < 0.5:
            return None
        connection.session.set_writable(not connection.session.writable)
        return f"{connection.session.address} is {'writable' if connection.session.writable else 'full'}"

    # -- the broker's own work

    def commit(self) -> str | None:
        done = [self.steps.step()]
        while done[-1] is not None and self.rng.random() < 0.6:
            self.settle()
            done.append(self.steps.step())
        return "; ".join(filter(None, done)) or None

    def pump(self) -> str | None:
        if not self.broker.has_work:
            return None
        self.pump_broker()
        return "pump"

    def pump_broker(self) -> None:
        waiting = self.oracle.fate.before_pump()
        self.broker.pump()
        self.oracle.fate.after_pump(waiting)

    def let_time_pass(self) -> str:
        kind = self.rng.random()
        if kind < 0.7:
            ms = self.rng.randint(0, 2000)
        elif kind < 0.9:
            ms = self.rng.randint(2000, 120_000)
        elif kind < 0.96:
            ms = self.rng.randint(120_000, 3 * 3_600_000)
        else:
            ms = -self.rng.randint(1, 3_600_000)
        self.pass_time(ms, is_noticed=self.rng.random() < 0.8)
        return f"{ms} ms pass"

    def pass_time(self, ms: int, *, is_noticed: bool = True) -> None:
        self.clock.advance_ms(ms)
        self.latest_ms = max(self.latest_ms, self.clock.now_ms())
        if is_noticed:
            self.is_maintained = True
            self.broker.tick()

    # -- vandals

    def vandalize(self) -> str:
        if self.vandal is None or not self.vandal.is_open:
            self.vandal = self._new_connection("vandal")
        what, data = garbage(self.rng, self.topics, self.vandal.session.state is State.START)
        self.vandal.session.receive(data)
        self._flush(self.vandal)
        if self.vandal.session.state is State.CLOSED or self.rng.random() < 0.2:
            self.lose(self.vandal)
        return f"a vandal sends {what}"

    def _weighted_actions(self) -> tuple[list[Callable[[], str | None]], list[float]]:
        weights = weights_for(self.rng, deadly=self.letters is not None)
        actions = [next(getattr(actor, name) for actor in self._actors if hasattr(actor, name)) for name in weights]
        return actions, list(weights.values())


def _describe(command: Command) -> str:
    name = Command.Type.Name(command.type)
    if command.type == Command.SEND:
        return f"{name} {command.send.sequence_id}"
    if command.type == Command.SEND_RECEIPT:
        return f"{name} {command.send_receipt.sequence_id} at {command.send_receipt.message_id.entryId}"
    if command.type == Command.MESSAGE:
        position = command.message.message_id
        return f"{name} {position.ledgerId}:{position.entryId} for {command.message.consumer_id}"
    if command.type == Command.ACK:
        return f"{name} {[m.entryId for m in command.ack.message_id]} by {command.ack.consumer_id}"
    if command.type == Command.ERROR:
        return f"{name} {command.error.message!r}"
    return name


@contextmanager
def _small_limits(rng: Random) -> Iterator[None]:
    """Limits so small that a short story reaches them."""
    limits = (
        (commit, "GROUP_SIZE_MAX", (1 << 20, 1 << 20, 400)),
        (cursor, "_RANGE_DELETE_MIN", (64, 2)),
        (cursor, "STATES_KEPT", (50_000, 50_000, 4)),
        (delayed, "_WINDOW", (1000, 2)),
        (subscription, "_DEAD_LETTERED_PER_TURN", (100, 2)),
        (broker_module, "_TOPICS_PER_SWEEP", (200, 1)),
    )
    before = [(module, name, getattr(module, name)) for module, name, _ in limits]
    for module, name, values in limits:
        setattr(module, name, rng.choice(values))
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)

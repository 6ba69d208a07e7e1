"""The simulated world: a broker on a disk that can crash, clients, an administrator, malformed input and time.

`World(seed).run()` takes random steps, then drains the broker and checks that nothing was lost. Checks of a single step
are in `oracle`, checks of a crash in `recovery`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from random import Random

import msgspec

from magnetar.broker import commit, maintenance
from magnetar.broker.broker import Broker
from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.catalog.record import ClusterRecord, NamespaceRecord
from magnetar.broker.host import ManualHost
from magnetar.broker.subscription import cursor
from magnetar.broker.topic import delayed, expiry
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.clock import ManualClock
from magnetar.names import TopicName
from magnetar.session.handles import ClientAddress, SessionState
from magnetar.session.session import Session
from magnetar.storage.api import StorageError
from magnetar.storage.memory import MemoryStorage
from magnetar.wire.frames import encode_frame, encode_frame_with_blob

from . import recovery
from .administrator import Administrator
from .behaviour import Behaviour, one_of
from .client import Command, Connection, SimClient
from .commit_steps import CommitSteps
from .dead_letters import DeadLettersOnDisk
from .drain import Drain
from .durable import Durable
from .failure import BrokenPromise, expect
from .malformed import malformed_input
from .oracle import Oracle
from .scenario import (
    PARTITIONED,
    PARTITIONS,
    REMOTE,
    DeadLetterSetup,
    dead_letter_setup_for,
    is_replicated,
    settings_for,
    subscription_names,
    topic_names,
    weights_for,
)
from .snapshot import Boundary, Snapshot, snapshot_of

_NAMESPACE = "public/default"
_START_MS = 1_700_000_000_000
_STEPS_SHOWN = 30
# Steps that only queue commands, unknown to the broker.
_CLIENT_STEPS = {"deliver", "produce", "acknowledge", "nack", "flow", "leave", "close_producer"}


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.settings = settings_for(self.rng)
        self.topics = topic_names(self.rng)
        self.subscriptions = subscription_names(self.rng)
        self.dead_letter_setup = dead_letter_setup_for(self.rng, self.topics, self.subscriptions)
        if self.dead_letter_setup is not None:
            self.topics += self.dead_letter_setup.topics
        self.clock = ManualClock(_START_MS)
        self.latest_ms = _START_MS
        self.set_back_from_ms = 0  # the latest time from which the clock was set back
        self.dead_letters = DeadLettersOnDisk()
        self.durable = Durable(self.dead_letters, deduplicates=self.settings.brokerDeduplicationEnabled)
        self.oracle = Oracle(self)
        self.deleted: set[int] = set()
        self.history: deque[str] = deque(maxlen=_STEPS_SHOWN)
        self.clients = [self.new_client(f"c{number}") for number in range(self.rng.randint(1, 4))]
        self.malformed: Connection | None = None
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
        if self.dead_letter_setup is not None and self.dead_letter_setup.target_partitions:
            target = TopicName.parse(self.dead_letter_setup.TARGET)
            self.broker.catalog.create_partitioned(target, self.dead_letter_setup.target_partitions, {})
        if self.dead_letter_setup is not None:
            self._set_namespace(self.dead_letter_setup)
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

    def _set_namespace(self, setup: DeadLetterSetup) -> None:
        catalog = self.broker.catalog
        record = catalog.namespaces[_NAMESPACE]
        overrides = msgspec.structs.replace(
            record.overrides,
            dead_letters=setup.default,
            dead_letter_expired=setup.includes_expired,
            dead_letter_evicted=setup.includes_expired,
        )
        catalog.save_namespace(_NAMESPACE, msgspec.structs.replace(record, overrides=overrides))

    def new_client(self, name: str) -> SimClient:
        return SimClient(name, self.rng, self.clock.now_ms)

    # -- the run

    def run(self) -> None:
        with _small_limits(self.rng):
            try:
                actions, weights = self._weighted_actions()
                length = self.rng.randint(50, 700)
                while self._steps_taken < length:
                    self.step(self.rng.choices(actions, weights)[0])
                Drain(self).run()
            except BrokenPromise as broken:
                raise BrokenPromise(self._report(str(broken))) from broken
            except Exception as error:
                raise BrokenPromise(self._report(f"{type(error).__name__}: {error}")) from error

    def step(self, action: Callable[[], str | None]) -> None:
        self._doing = action.__name__
        done = action()
        if done is not None:
            self._steps_taken += 1
            self._doing = f"after {self._doing}"
            self.history.append(f"{self._steps_taken} {done}")
            if action.__name__ not in _CLIENT_STEPS:
                self.settle()

    def settle(self) -> None:
        """Sends the broker's output, and checks the state."""
        for connection in self.connections:
            self._flush(connection)
        self.broker.invariants()
        self.oracle.check(maintained=self.is_maintained)
        self.is_maintained = False
        self.steps.after_step()

    def _report(self, reason: str) -> str:
        lines = "\n".join(f"    {line}" for line in (*self.history, f"in {self._doing}"))
        return (
            f"seed {self.seed}: {reason}\n  the last steps:\n{lines}\n  replay: python -m tests.simulation {self.seed}"
        )

    # -- starts and crashes of the broker

    def _start(self, storage: MemoryStorage) -> None:
        self.storage = storage
        self.base = recovery.inspect(self.settings, storage.crash(), self.clock.now_ms(), self.durable.boundary)
        self.durable.boundary = Boundary(self.base, self.base)
        self.broker = Broker(self.settings, storage, self.clock, ManualHost())
        self.steps = CommitSteps(self.broker.commits, storage, self.durable, self.rng, self._snapshot)
        self.steps.after_step()

    def _snapshot(self) -> Snapshot:
        return snapshot_of(self.broker, self.base)

    def crash(self) -> str:
        """A crash of the process or machine: any number of the first unsynced writes may survive."""
        self.crashes += 1
        unsynced = self.storage.unsynced_writes
        expect(unsynced == len(self.durable.unsynced), "the simulation lost count of the writes")
        kept = self.rng.randint(0, unsynced)
        self._check_other_outcomes(kept)
        survivor = self.storage.crash(keep_unsynced_writes=kept)
        self._check_lost_writes()
        self.durable.synced(kept)
        self._stopped()
        self._start(survivor)
        recovery.check_entries(survivor, self.durable, self.base, self.oracle.receipts, self.deleted)
        for topic in recovery.open_all(self.settings, survivor.crash(), self.clock.now_ms()).topics.values():
            assert isinstance(topic, PersistentTopic)
            recovery.check_sequences(topic, self.durable)
            if topic.ledger_id in self.oracle.ended:
                expect(topic.is_terminated, f"{topic.name.full} is open again after its end was announced")
        return f"crash, {kept} of {unsynced} unsynced writes are kept"

    def _check_other_outcomes(self, kept: int) -> None:
        boundaries = [self.durable.boundary, *(boundary for _, boundary in self.durable.unsynced)]
        for number, boundary in enumerate(boundaries):
            if number != kept:
                survivor = self.storage.crash(keep_unsynced_writes=number)
                recovery.inspect(self.settings, survivor, self.clock.now_ms(), boundary)

    def _check_lost_writes(self) -> None:
        """Even among the lost writes, none has an acknowledgement without its dead letter."""
        if self.durable.unsynced and self.dead_letters.expected:
            dead_letters = deepcopy(self.dead_letters)
            for operations, _ in self.durable.unsynced:
                dead_letters.wrote(operations)

    def _stopped(self) -> None:
        for connection in self.connections:
            connection.is_open = False
        self.connections.clear()
        self.malformed = None
        for client in self.clients:
            client.disconnected()
        self.oracle.broker_stopped()

    @property
    def has_failed(self) -> bool:
        """Whether the storage has failed, or will fail on the next write."""
        return self.steps.failure is not None or bool(self.storage._fail_next)

    def _restart(self) -> str | None:
        """A clean shutdown: everything is written, the storage is closed."""
        if self.has_failed:
            return None
        for connection in list(self.connections):
            self.lose(connection)
        self.commit_all()
        self.storage.close()
        self.durable.synced()
        expect(not self.dead_letters.expected, f"missing dead letters: {self.dead_letters.expected}")
        survivor = self.storage.crash()
        self._stopped()
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
        address = ClientAddress(f"{name}:1", "pulsar://simulation:6650", "http://simulation:8080")
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
                self.oracle.sent(connection, command, blob)
                connection.to_client.append((command, blob))
            expect(connection.decoder.error is None, f"the broker sent {connection.decoder.error}")

    def lose(self, connection: Connection) -> None:
        connection.is_open = False
        if connection in self.connections:
            self.connections.remove(connection)
        leaving = self.oracle.failure_model.leaving(connection)
        connection.session.connection_lost()
        self.oracle.failure_model.vanished(leaving)
        for client in self.clients:
            if client.connection is connection:
                client.disconnected()
        if self.malformed is connection:
            self.malformed = None

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
        """Delivers one command, or several consecutive SENDs, in one read or two."""
        frames = [connection.to_broker.popleft()]
        if frames[0][0].type == Command.SEND:
            wanted = self.rng.randint(1, 5)
            while len(frames) < wanted and connection.to_broker and connection.to_broker[0][0].type == Command.SEND:
                frames.append(connection.to_broker.popleft())
        data = b""
        sender = None
        for command, blob in frames:
            if blob is not None:
                self.oracle.sending(connection, command, blob)
                data += encode_frame_with_blob(command, blob)
            else:
                sender = self.oracle.before(connection, command)
                data += encode_frame(command)
        cut = self.rng.randint(0, len(data)) if self.rng.random() < 0.2 else 0
        if cut:
            connection.session.receive(data[:cut])
        connection.session.receive(data[cut:])
        if frames[0][1] is None:
            self.oracle.arrived(connection, frames[0][0], sender)
        return ", ".join(_describe(command) for command, _ in frames)

    def deliver(self) -> str | None:
        client = one_of(self.rng, (c for c in self.clients if c.connection and c.connection.to_client))
        if client is None or client.connection is None:
            return None
        received = []
        for _ in range(self.rng.randint(1, 20)):
            if not client.connection.to_client:
                break
            frame = client.connection.to_client.popleft()
            client.deliver(*frame)
            received.append(_describe(frame[0]))
        return f"{client.name} receives {', '.join(received)}"

    def connect_a_client(self) -> str | None:
        client = one_of(self.rng, (c for c in self.clients if not c.is_connected))
        if client is None:
            return None
        self.connect(client)
        return f"{client.name} connects"

    def lose_a_connection(self) -> str | None:
        client = one_of(self.rng, (c for c in self.clients if c.is_connected))
        if client is None or client.connection is None:
            return None
        self.lose(client.connection)
        return f"{client.name} loses its connection"

    def change_writable(self) -> str | None:
        connection = one_of(self.rng, (c for c in self.connections if c.session.state is SessionState.CONNECTED))
        if connection is None:
            return None
        if connection.session.writable and self.rng.random() < 0.5:
            return None
        connection.session.set_writable(not connection.session.writable)
        return f"{connection.session.address} is {'writable' if connection.session.writable else 'full'}"

    # -- work of the broker

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
        waiting = self.oracle.failure_model.before_pump()
        self.broker.pump()
        self.oracle.failure_model.after_pump(waiting)

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
        if ms < 0:
            self.set_back_from_ms = self.latest_ms
        self.clock.advance_ms(ms)
        self.latest_ms = max(self.latest_ms, self.clock.now_ms())
        if is_noticed:
            self.is_maintained = True
            self.broker.tick()

    # -- malformed input

    def send_malformed(self) -> str:
        if self.malformed is None or not self.malformed.is_open:
            self.malformed = self._new_connection("faulty")
        what, data = malformed_input(self.rng, self.topics, self.malformed.session.state is SessionState.START)
        self.malformed.session.receive(data)
        self._flush(self.malformed)
        if self.malformed.session.state is SessionState.CLOSED or self.rng.random() < 0.2:
            self.lose(self.malformed)
        return f"malformed input: {what}"

    def _weighted_actions(self) -> tuple[list[Callable[[], str | None]], list[float]]:
        weights = weights_for(self.rng, with_failures=self.dead_letter_setup is not None)
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
    """Limits small enough for a short run."""
    limits = (
        (commit, "GROUP_SIZE_MAX", (1 << 20, 1 << 20, 400)),
        (cursor, "_RANGE_DELETE_MIN", (64, 2)),
        (cursor, "STATES_KEPT", (50_000, 50_000, 4)),
        (delayed, "_WINDOW", (1000, 2)),
        (expiry, "_MOVED_PER_TURN", (100, 2)),
        (maintenance, "_TOPICS_PER_SWEEP", (200, 1)),
    )
    before = [(module, name, getattr(module, name)) for module, name, _ in limits]
    for module, name, values in limits:
        setattr(module, name, rng.choice(values))
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)

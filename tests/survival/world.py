"""The world of a seed: a broker on a faulty disk, honest clients, a vandal, and exceptions planted in the core.

`World(seed).run()` takes random steps and then drains the broker. Honest clients demand: a message with a receipt is
acknowledged by them or a dead letter in the end, no id is given twice, and a connection ends only when a fault was
injected. Topics whose records were damaged are excused, other topics are not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from magnetar.broker import keys
from magnetar.broker.broker import Broker
from magnetar.broker.topic import run
from magnetar.clock import ManualClock
from magnetar.session.handles import ClientAddress, SessionState
from magnetar.session.session import Session
from magnetar.settings.settings import Settings
from magnetar.storage.api import Space, StorageError, StorageLoss
from tests.fuzz.scene import FaultCollector
from tests.fuzz.vandal import COMMANDS, CONNECT, Vandal, flow, produce, subscribe
from tests.simulation.failure import BrokenPromise, expect

from .faulty_storage import FaultyStorage
from .honest import HonestClient, Ledger, ids_in
from .planted import CLASSES, PlantedError, Planter, methods_of

START_MS = 1_800_000_000_000
TOPICS = tuple(f"persistent://public/default/t{number}" for number in range(3))
VANDAL_TOPICS = tuple(f"persistent://public/default/vandal{number}" for number in range(3))
_LETTERS = "{}-failing-DLQ"
_STEPS_SHOWN = 30
_ROUNDS_MAX = 60

_WEIGHTS = {
    "publish": 25,
    "settle_clients": 20,
    "commit": 25,
    "pump": 20,
    "reconnect": 15,
    "let_time_pass": 3,
    "lose_a_connection": 1,
    "send_hostile_frames": 8,
    "plant": 2,
    "fail_reads": 0.7,
    "corrupt": 0.15,
    "crash": 0.4,
    "lose_tail": 0.1,
}


FAULTS = {
    "vandal": {"send_hostile_frames"},
    "planted": {"plant"},
    "disk": {"fail_reads", "corrupt", "lose_tail"},
}
"""Steps that inject a fault, by kind."""


class World:
    """Without `faults` all kinds are injected, otherwise these; the process crashes in any case."""

    def __init__(self, seed: int, *faults: str) -> None:
        self.seed = seed
        excluded = {step for kind, steps in FAULTS.items() if faults and kind not in faults for step in steps}
        self._weights = {step: weight for step, weight in _WEIGHTS.items() if step not in excluded}
        self.rng = Random(f"survival {seed}")
        rng = self.rng
        self.settings = Settings(
            brokerDeduplicationEnabled=rng.random() < 0.5,
            managedLedgerCacheSizeMB=rng.choice((0, 64)),
            dispatcherMaxReadBatchSize=rng.choice((1, 3, 100)),
            managedLedgerMinLedgerRolloverTimeMinutes=rng.choice((0, 10)),
        )
        self.clock = ManualClock(START_MS)
        self.planter = Planter(rng, methods_of(CLASSES))
        self.ledger = Ledger()
        self.clients = [HonestClient(f"c{number}", rng, self.ledger, self._session) for number in range(3)]
        self.history: deque[str] = deque(maxlen=_STEPS_SHOWN)
        self.hurt: set[str] = set()  # topics with damaged records
        self.letters: set[int] = set()
        self._vandal = Vandal(rng, {"topic": [topic.encode() for topic in VANDAL_TOPICS], **_HARMLESS})
        self._hostile: Session | None = None
        self._disturbances = 0
        self._failed_reads = 0  # of former starts
        self._known_disturbances = 0
        self._start(FaultyStorage())
        self._open_clients()

    def _open_clients(self) -> None:
        kinds = {(topic, name): self.rng.choice((1, 2, 3)) for topic in TOPICS for name in ("own", "failing")}
        for client in self.clients:
            client.producing = self.rng.sample(TOPICS, 2)
            wanted = [place for place in kinds if self.rng.random() < 0.5]
            client.consuming = [(topic, name, kinds[topic, name]) for topic, name in wanted]
        missing = [place for place in kinds if all((*place, kinds[place]) not in c.consuming for c in self.clients)]
        self.clients[0].consuming += [(topic, name, kinds[topic, name]) for topic, name in missing]
        for client in self.clients:
            client.connect()
        self._quiesce()

    # -- the run

    def run(self) -> None:
        with self.planter.installed():
            try:
                actions = [getattr(self, name) for name in self._weights]
                for _ in range(self.rng.randint(50, 400)):
                    self.step(self.rng.choices(actions, list(self._weights.values()))[0])
                self._drain()
            except BrokenPromise as broken:
                raise BrokenPromise(self._report(str(broken))) from broken
            except Exception as error:
                raise BrokenPromise(self._report(f"{type(error).__name__}: {error}")) from error

    def _report(self, reason: str) -> str:
        lines = "\n".join(f"    {line}" for line in self.history)
        return f"seed {self.seed}: {reason}\n  the last steps:\n{lines}\n  replay: python -m tests.survival {self.seed}"

    def step(self, action: Callable[[], str | None]) -> None:
        self.history.append(action.__name__)
        done = action()
        if done:
            self.history[-1] = done
        self.check()

    def check(self) -> None:
        for client in self.clients:
            client.take()
        for kind, error, where in self.broker_host.faults:
            planted = isinstance(error, PlantedError | StorageError)
            expect(planted, f"a second error after a fault, {kind} {where}: {type(error).__name__}: {error}")
        self.broker_host.faults.clear()
        disturbances = self._disturbances + self.planter.raised + self.storage.failed_reads
        for client in self.clients:
            is_closed = client.was_connected and not client.is_connected
            if is_closed:
                client.was_connected = False
                expect(disturbances > self._known_disturbances, f"{client.name} lost its connection for no reason")
        self._known_disturbances = disturbances
        with self.planter.paused(), self.storage.readable():
            self.broker.invariants()

    @property
    def failed_reads(self) -> int:
        return self._failed_reads + self.storage.failed_reads

    # -- the broker

    def _start(self, storage: FaultyStorage) -> None:
        self.storage = storage
        self.broker_host = FaultCollector()
        self.broker = Broker(self.settings, storage, self.clock, self.broker_host)

    def _session(self, client: HonestClient) -> Session:
        return self._new_session(client.name)

    def _new_session(self, name: str) -> Session:
        address = ClientAddress(f"{name}:1", "pulsar://survival:6650", "http://survival:8080")
        return Session(self.broker, address, lambda: None, lambda: None)

    def commit(self) -> str | None:
        """A planted exception here ends the broker, as it ends the process."""
        try:
            while (group := self.broker.commits.take()) is not None:
                self.storage.write(group.batch)
                if group.durable:
                    self.storage.sync()
                group.complete()
        except PlantedError:
            return f"the broker ends: {self.crash()}"
        return None

    def pump(self) -> None:
        self.broker.pump()

    def let_time_pass(self) -> str:
        ms = self.rng.choice((100, 2000, 61_000, 660_000))
        self.clock.advance_ms(ms)
        self.broker.tick()
        return f"{ms} ms pass"

    # -- clients

    def publish(self) -> None:
        self.rng.choice(self.clients).publish()

    def settle_clients(self) -> None:
        for client in self.clients:
            client.settle_some()

    def reconnect(self) -> None:
        for client in self.clients:
            if client.is_connected:
                client.open_missing()
            else:
                client.connect()

    def lose_a_connection(self) -> str:
        client = self.rng.choice(self.clients)
        self._lose(client)
        return f"{client.name} loses its connection"

    def _lose(self, client: HonestClient) -> None:
        client.was_connected = False
        if client.session is not None:
            client.session.connection_lost()

    def send_hostile_frames(self) -> str:
        if self._hostile is None or self._hostile.state is SessionState.CLOSED:
            self._hostile = self._new_session("vandal")
            topic = self.rng.choice(TOPICS)
            for frame in (CONNECT, subscribe(topic, "vandal"), flow(1, 10), produce(topic)):
                self._hostile.receive(frame)
        kind = self.rng.choice(COMMANDS)
        for _ in range(self.rng.randint(1, 3)):
            self._hostile.receive(self._vandal.frame(kind))
            self._hostile.take_output()
        if self.rng.random() < 0.1:
            self._hostile.connection_lost()
        return f"hostile frames of command {kind}"

    # -- faults

    def plant(self) -> str:
        return f"planted in {self.planter.arm()}"

    def fail_reads(self) -> str:
        number = self.rng.choice((1, 2, 5))
        self.storage.fail_reads(number)
        return f"{number} reads will fail"

    def corrupt(self) -> str | None:
        """Damages a record of a topic, or a run of its entries."""
        full = self.rng.choice(TOPICS)
        record = self.broker.catalog.topics.get(full)
        if record is None:
            return None
        prefix = keys.ID.pack(record.id)
        found = [(Space.ENTRIES, key) for key in self.storage._tables[Space.ENTRIES] if key.startswith(prefix)]
        found += [(Space.STATE, k) for k in self.storage._tables[Space.STATE] if k[1:].startswith(prefix)]
        if not found:
            return None
        space, key = self.rng.choice(found)
        self.storage.corrupt(space, key)
        self.hurt.add(full)
        return f"damaged {space.name} {key!r} of {full}"

    def crash(self) -> str:
        kept = self.rng.randint(0, self.storage.unsynced_writes)
        self._restart(FaultyStorage.of(self.storage.crash(keep_unsynced_writes=kept), self.storage.damaged))
        return f"crash, {kept} unsynced writes are kept"

    def _restart(self, storage: FaultyStorage) -> None:
        self._disturbances += 1 + self.storage.failed_reads
        self._failed_reads += self.storage.failed_reads
        self.planter.disarm()
        for client in self.clients:
            client.was_connected = False
            client.session = None
        self._hostile = None
        self._start(storage)

    def lose_tail(self) -> str:
        """The end of the log is lost although it was synced: a start refuses, and goes on where that is accepted."""
        writes = self.rng.randint(1, 3)
        if self.storage.writes < writes or self.storage.unsynced_writes:
            return "nothing to lose"
        before = self._stored_ids()
        try:
            self.storage.lose_tail(writes, accept_loss=False)
        except StorageLoss:
            pass
        else:
            return "nothing was in it"
        self._restart(self.storage.lose_tail(writes, accept_loss=True))
        lost = before - self._stored_ids()
        for ids in self.ledger.confirmed.values():
            ids -= lost
        self.letters -= lost
        return f"lost {writes} writes with {len(lost)} messages"

    def _stored_ids(self) -> set[int]:
        found = set()
        for key, value in self.storage._tables[Space.ENTRIES].items():
            for _, _, _, blob in run.decode(keys.PAIR.unpack(key)[1], value):
                found.update(ids_in(blob))
        return found

    # -- the end

    def _drain(self) -> None:
        """No more faults: everything that was acknowledged by the broker arrives."""
        self.history.append("the end: drain")
        self.planter.disarm()
        self.storage.fail_reads(0)
        if self._hostile is not None:
            self._hostile.connection_lost()
        if self.rng.random() < 0.5:
            self.history.append(self.crash())
        for client in self.clients:
            self._lose(client)
            client.acks_all = True
        self._consume_all()
        reader = HonestClient("reader", self.rng, self.ledger, self._session)
        reader.acks_all = True
        letters = [_LETTERS.format(topic) for topic in TOPICS]
        reader.consuming = [(topic, "kept", 1) for topic in letters if topic in self.broker.catalog.topics]
        self.clients.append(reader)
        self._consume_all()
        for topic, confirmed in self.ledger.confirmed.items():
            if topic in self.hurt:
                continue
            dead = self.ledger.acked.get((_LETTERS.format(topic), "kept"), set())
            for name in ("own", "failing"):
                missing = (
                    confirmed - self.ledger.acked.get((topic, name), set()) - (dead if name == "failing" else set())
                )
                expect(not missing, f"{topic}/{name} lost {sorted(missing)}, which have receipts")
        for client in self.clients:
            for topic, unconfirmed in client.unconfirmed.items():
                expect(not unconfirmed or topic in self.hurt, f"{client.name} cannot publish to {topic}")

    def _consume_all(self) -> None:
        for _ in range(_ROUNDS_MAX):
            self.reconnect()
            self._quiesce()
            self.settle_clients()
            self._quiesce()
            self.clock.advance_ms(1500)
            self.broker.tick()
            self._quiesce()

    def _quiesce(self) -> None:
        for _ in range(1000):
            self.check()
            if not self.broker.has_work and not self.broker.commits.waiting_groups:
                return
            self.pump()
            self.commit()
        expect(False, "the broker never becomes idle")


# Rights of every client that are not the subject: fencing others out, and schemas that refuse others.
_HARMLESS = {"producer_access_mode": (0,), "subscription": (b"v1", b"v2"), "producer_name": (b"v1", b"v2")}

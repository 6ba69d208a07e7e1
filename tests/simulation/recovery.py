"""What a broker finds after a crash: looked at by a second broker that changes nothing."""

from __future__ import annotations

from magnetar.broker import keys
from magnetar.broker.broker import Broker
from magnetar.broker.host import ManualHost
from magnetar.broker.topic import run
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.clock import ManualClock
from magnetar.names import TopicName
from magnetar.settings.settings import Settings
from magnetar.storage.api import Space
from magnetar.storage.memory import MemoryStorage

from .failure import expect
from .snapshot import Boundary, Snapshot, snapshot_of
from .truth import Truth

_OF_A_TOPIC = (
    keys.SUBSCRIPTION,
    keys.DEDUPLICATION,
    keys.REPLICATED,
    keys.PULSAR_REPLICATED,
    keys.FIRST,
    keys.DELAYED,
)
_OF_A_SUBSCRIPTION = (keys.CURSOR, keys.POSITION)


def open_all(settings: Settings, storage: MemoryStorage, now_ms: int) -> Broker:
    broker = Broker(settings, storage, ManualClock(now_ms), ManualHost())
    for full in list(broker.catalog.topics):
        broker.topic(TopicName.parse(full))
    return broker


def inspect(settings: Settings, storage: MemoryStorage, now_ms: int, boundary: Boundary) -> Snapshot:
    """The state that a new broker comes up with, which has to be the one of the last group that survived."""
    broker = open_all(settings, storage, now_ms)
    broker.invariants()
    found = snapshot_of(broker, {})
    for difference in boundary.differences(found):
        expect(False, f"after the crash {difference}")
    _check_leftovers(storage, found)
    return found


def _check_leftovers(storage: MemoryStorage, found: Snapshot) -> None:
    """Nothing is left on disk of topics and subscriptions that do not exist."""
    ledgers = {state.ledger for state in found.values()}
    cursors = {place.id for state in found.values() for place in state.places.values()}
    for key, _ in storage.scan(Space.STATE, b"\x00", b"\xff"):
        if key[:1] in _OF_A_TOPIC:
            expect(keys.ID.unpack_from(key, 1)[0] in ledgers, f"a key of a deleted topic is left: {key!r}")
        elif key[:1] in _OF_A_SUBSCRIPTION:
            expect(keys.ID.unpack_from(key, 1)[0] in cursors, f"a key of a deleted subscription is left: {key!r}")


def check_entries(
    storage: MemoryStorage, truth: Truth, found: Snapshot, receipts: dict[tuple[int, int], bytes], deleted: set[int]
) -> None:
    """Every entry that was durable is there, and every one that a producer got a receipt for."""
    rows = storage.scan(Space.ENTRIES, b"\x00" * 16, b"\xff" * 17)
    first_of = {state.ledger: state.first for state in found.values()}
    stored = {
        (ledger, entry_id): blob
        for key, value in rows
        for ledger, last in (keys.PAIR.unpack(key),)
        for entry_id, _, _, blob in run.decode(last, value)
        if entry_id >= first_of.get(ledger, 0)  # those before go with their run
    }
    expected = {position: entry.blob for position, entry in truth.entries.items()}
    expect(stored == expected, f"entries {sorted(stored.items() ^ expected.items())} differ after the crash")
    for (ledger, entry), blob in receipts.items():
        if ledger not in first_of:
            expect(ledger in deleted, f"ledger {ledger} is lost, with acknowledged messages")
        elif entry >= first_of[ledger]:
            expect(stored.get((ledger, entry)) == blob, f"acknowledged entry {ledger}:{entry} is lost")


def check_sequences(topic: PersistentTopic, truth: Truth) -> None:
    """What deduplication remembers is what is stored."""
    if topic.deduplication is None:
        return
    for (ledger, name), highest in truth.highest.items():
        if ledger == topic.ledger_id:
            found = topic.last_sequence_id(name)
            expect(found == highest, f"deduplication remembers {found} of {name}, stored is {highest}")

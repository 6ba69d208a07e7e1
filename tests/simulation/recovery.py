"""The state after a crash, inspected by a second broker that changes nothing."""

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

from .durable import Durable
from .failure import expect
from .snapshot import Boundary, Snapshot, snapshot_of

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
    """The state of a restarted broker, which must equal that of the last surviving group."""
    broker = open_all(settings, storage, now_ms)
    broker.invariants()
    found = snapshot_of(broker, {})
    for difference in boundary.differences(found):
        expect(False, f"after the crash {difference}")
    _check_leftovers(storage, found)
    return found


def _check_leftovers(storage: MemoryStorage, found: Snapshot) -> None:
    """No keys of deleted topics and subscriptions are left on disk."""
    ledgers = {state.ledger for state in found.values()}
    cursors = {subscription.id for state in found.values() for subscription in state.subscriptions.values()}
    for key, _ in storage.scan(Space.STATE, b"\x00", b"\xff"):
        if key[:1] in _OF_A_TOPIC:
            expect(keys.ID.unpack_from(key, 1)[0] in ledgers, f"a key of a deleted topic is left: {key!r}")
        elif key[:1] in _OF_A_SUBSCRIPTION:
            expect(keys.ID.unpack_from(key, 1)[0] in cursors, f"a key of a deleted subscription is left: {key!r}")


def check_entries(
    storage: MemoryStorage, durable: Durable, found: Snapshot, receipts: dict[tuple[int, int], bytes], deleted: set[int]
) -> None:
    """Every durable entry exists, and every one with a receipt."""
    rows = storage.scan(Space.ENTRIES, b"\x00" * 16, b"\xff" * 17)
    first_of = {state.ledger: state.first for state in found.values()}
    stored = {
        (ledger, entry_id): blob
        for key, value in rows
        for ledger, last in (keys.PAIR.unpack(key),)
        for entry_id, _, _, blob in run.decode(last, value)
        if entry_id >= first_of.get(ledger, 0)  # earlier entries are deleted with their run
    }
    expected = {position: entry.blob for position, entry in durable.entries.items()}
    expect(stored == expected, f"entries {sorted(stored.items() ^ expected.items())} differ after the crash")
    for (ledger, entry), blob in receipts.items():
        if ledger not in first_of:
            expect(ledger in deleted, f"ledger {ledger} is lost, with acknowledged messages")
        elif entry >= first_of[ledger]:
            expect(stored.get((ledger, entry)) == blob, f"acknowledged entry {ledger}:{entry} is lost")


def check_sequences(topic: PersistentTopic, durable: Durable) -> None:
    """Deduplication remembers exactly the stored sequence ids."""
    if topic.deduplication is None:
        return
    for (ledger, name), highest in durable.highest.items():
        if ledger == topic.ledger_id:
            found = topic.last_sequence_id(name)
            expect(found == highest, f"deduplication remembers {found} of {name}, the stored one is {highest}")

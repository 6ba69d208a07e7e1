"""The check of what topics and subscriptions keep beside their entries: positions, bounds, indexes, sequence ids.

Owns the repairs, each on the safe side: a position that is lost starts over with the first message, so that messages
are delivered again rather than never; an index or a sequence id that cannot be read is forgotten.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from magnetar.broker import keys
from magnetar.broker.catalog import record
from magnetar.broker.catalog.record import SubscriptionRecord
from magnetar.broker.check.finding import Finding, delete, put, shown_key
from magnetar.broker.check.inventory import CheckedSubscription, CheckedTopic, Inventory
from magnetar.broker.check.records import UNREADABLE, reason_of
from magnetar.broker.damage_list import id_in
from magnetar.broker.subscription import entry_state
from magnetar.names import SUBSCRIPTION_NAME_BYTES_MAX

Rows = Iterator[tuple[bytes, bytes]]

_LAST_ID_GAP = 1 << 32
"""Ids left out when the last one is not known, so that none is given twice."""

_VALUES = {
    keys.DEDUPLICATION: ("sequence id", keys.SEQUENCE),
    keys.REPLICATED: ("position of a pipeline", keys.SEQUENCE),
    keys.PULSAR_REPLICATED: ("position of a replicator", keys.REPLICATED_POSITION),
}


def _owner_of(key: bytes) -> int:
    """The topic or subscription in a key; raises struct.error."""
    number: int = keys.ID.unpack_from(key, 1)[0]
    return number


def _removed(kind: str, name: str, what: str, key: bytes, *, is_sure: bool = True) -> Finding:
    """`is_sure`: nothing that is not known yet may own it."""
    return Finding(kind, name, what, "export and delete it", key=key, changes=(delete(key),) if is_sure else ())


def bounds_in(rows: Rows, inventory: Inventory) -> tuple[dict[int, tuple[int, int]], list[Finding]]:
    """The first entry of trimmed topics, and the bytes before it."""
    found: dict[int, tuple[int, int]] = {}
    findings = []
    for key, value in rows:
        inventory.records += 1
        try:
            if len(key) != 9:
                raise struct.error("its key has the wrong size")
            topic_id, pair = _owner_of(key), keys.PAIR.unpack(value)
            if max(pair) >= 1 << 63:
                raise struct.error(f"its numbers are {pair[0]} and {pair[1]}")
        except struct.error as error:
            findings.append(_removed("first entry", shown_key(key), f"it is not valid: {error}", key))
            continue
        found[topic_id] = pair
        if topic_id not in inventory.topics:
            inventory.orphans.add(topic_id)
    return found, findings


def orphaned_bounds(
    bounds: dict[int, tuple[int, int]], inventory: Inventory, with_entries: set[int]
) -> Iterator[Finding]:
    for topic_id in bounds:
        if topic_id not in inventory.topics and topic_id not in with_entries:
            key = keys.under(keys.FIRST, topic_id)
            yield _removed(
                "first entry", f"topic id {topic_id}", "no topic has this id", key, is_sure=inventory.is_complete
            )


def subscriptions(rows: Rows, inventory: Inventory) -> Iterator[Finding]:
    """Also fills the inventory."""
    for key, value in rows:
        inventory.records += 1
        try:
            topic = inventory.topics.get(_owner_of(key))
        except struct.error:
            yield _removed("subscription", shown_key(key), "its key has the wrong size", key)
            continue
        if topic is None:
            yield _removed(
                "subscription",
                shown_key(key[9:]),
                f"no topic has the id {_owner_of(key)}",
                key,
                is_sure=inventory.is_complete,
            )
            number = id_in(value)
            if number is not None:
                inventory.saw(number)
            continue
        yield from _subscription(key, value, topic, inventory)


def _subscription(key: bytes, value: bytes, topic: CheckedTopic, inventory: Inventory) -> Iterator[Finding]:
    shown = f"{shown_key(key[9:])} of {topic.name}"
    try:
        name = key[9:].decode()
        if not 0 < len(key[9:]) <= SUBSCRIPTION_NAME_BYTES_MAX:
            raise ValueError(f"it has {len(key) - 9} bytes")
    except UNREADABLE as error:
        renamed = key[:9] + shown_key(key[9:])[:SUBSCRIPTION_NAME_BYTES_MAX].encode()
        changes = (delete(key), put(renamed, value)) if key[9:] else (delete(key),)
        yield Finding("subscription", shown, f"its name is not valid: {error}", "rename it", key=key, changes=changes)
        number = id_in(value)
        if number is not None:  # what it keeps beside its record belongs to it under its new name
            inventory.saw(number)
            inventory.subscriptions[number] = CheckedSubscription(shown_key(key[9:]), topic, SubscriptionRecord(number))
        return
    try:
        found = record.decode_subscription(value)
        if not 0 < found.id < 1 << 63:
            raise ValueError(f"its id is {found.id}")
        is_new = found.id in inventory.subscriptions or found.id in inventory.topics
        if is_new:
            raise ValueError(f"it has the id {found.id} of another one")
    except UNREADABLE as error:
        number = id_in(value)
        if number is None or number in inventory.subscriptions or number in inventory.topics:
            number = inventory.new_id()
            repair = "write it anew: it starts over with the first message"
            cursor = put(keys.under(keys.CURSOR, number), keys.SIGNED.pack(topic.first - 1))
            changes = (put(key, record.encode(SubscriptionRecord(number))), cursor)
        else:
            repair = "write it anew at its position, without properties and policies"
            changes = (put(key, record.encode(SubscriptionRecord(number))),)
        yield Finding("subscription", shown, reason_of(error), repair, key=key, changes=changes)
        found = SubscriptionRecord(number)
    inventory.saw(found.id)
    inventory.subscriptions[found.id] = CheckedSubscription(name, topic, found)


def cursors(rows: Rows, inventory: Inventory) -> Iterator[Finding]:
    """Also fills the positions of the inventory."""
    for key, value in rows:
        inventory.records += 1
        owner = inventory.subscriptions.get(_owner_of(key)) if len(key) == 9 else None
        if owner is None:
            yield _removed(
                "position", shown_key(key), "no subscription has this id", key, is_sure=inventory.is_complete
            )
            continue
        first, last = owner.topic.first, owner.topic.last
        name = f"{owner.name} of {owner.topic.name}"
        try:
            mark = keys.SIGNED.unpack(value)[0]
        except struct.error as error:
            mark = first - 1
            yield Finding(
                "position",
                name,
                f"it cannot be decoded: {error}",
                "start over with the first message",
                key=key,
                changes=(put(key, keys.SIGNED.pack(mark)),),
            )
        if not -1 <= mark <= last:
            what = f"everything up to {mark} is acknowledged, the topic has entries {first} to {last}"
            mark = first - 1 if mark < 0 else last
            yield Finding(
                "position", name, what, f"set it to {mark}", key=key, changes=(put(key, keys.SIGNED.pack(mark)),)
            )
        owner.mark = mark
    for number, owner in inventory.subscriptions.items():
        if owner.mark is None:
            owner.mark = owner.topic.first - 1
            key = keys.under(keys.CURSOR, number)
            yield Finding(
                "position",
                f"{owner.name} of {owner.topic.name}",
                "it is missing",
                "start over with the first message",
                key=key,
                changes=(put(key, keys.SIGNED.pack(owner.mark)),),
            )


def entry_states(rows: Rows, inventory: Inventory) -> Iterator[Finding]:
    passed: dict[int, int] = {}  # subscription -> the position that acknowledged entries have reached
    for key, value in rows:
        inventory.records += 1
        owner = inventory.subscriptions.get(_owner_of(key)) if len(key) == 17 else None
        if owner is None or owner.mark is None:
            yield _removed(
                "entry state", shown_key(key), "no subscription has this id", key, is_sure=inventory.is_complete
            )
            continue
        subscription_id, entry = keys.PAIR.unpack_from(key, 1)
        name = f"entry {entry} in {owner.name} of {owner.topic.name}"
        if not owner.mark < entry <= owner.topic.last:
            what = f"the subscription is at {owner.mark}, the last entry is {owner.topic.last}"
            yield _removed("entry state", name, what, key)
        elif value == entry_state.ACKED:
            if entry == passed.get(subscription_id, owner.mark) + 1:
                passed[subscription_id] = entry
        elif not _is_open_state(value):
            yield Finding(
                "entry state",
                name,
                "it cannot be decoded",
                "export and delete it: the entry is delivered as if it had never failed",
                key=key,
                changes=(delete(key),),
            )
    for subscription_id, entry in passed.items():
        owner = inventory.subscriptions[subscription_id]
        what = f"it is {owner.mark}, and everything up to {entry} is acknowledged"
        key = keys.under(keys.CURSOR, subscription_id)
        yield Finding(
            "position",
            f"{owner.name} of {owner.topic.name}",
            what,
            f"set it to {entry}",
            key=key,
            changes=(put(key, keys.SIGNED.pack(entry)),),
        )


def _is_open_state(value: bytes) -> bool:
    try:
        entry_state.decode(value[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return value[:1] == entry_state.OPEN


def producers(rows: Rows, kind: bytes, inventory: Inventory) -> Iterator[Finding]:
    """Sequence ids and positions by producer name."""
    what, layout = _VALUES[kind]
    for key, value in rows:
        inventory.records += 1
        try:
            topic = inventory.topics.get(_owner_of(key))
            name = key[9:].decode()
            layout.unpack(value)
        except (struct.error, UnicodeDecodeError) as error:
            yield Finding(
                what,
                shown_key(key),
                f"it cannot be decoded: {error}",
                "export and delete it: repeated messages of this producer are no longer recognised",
                key=key,
                changes=(delete(key),),
            )
            continue
        if topic is None:
            yield _removed(
                what,
                shown_key(name.encode()),
                f"no topic has the id {_owner_of(key)}",
                key,
                is_sure=inventory.is_complete,
            )


def delayed(rows: Rows, inventory: Inventory) -> Iterator[Finding]:
    for key, value in rows:
        inventory.records += 1
        topic = inventory.topics.get(_owner_of(key)) if len(key) == 25 else None
        if topic is None:
            yield _removed(
                "delayed message", shown_key(key), "no topic has this id", key, is_sure=inventory.is_complete
            )
            continue
        entry = keys.ID.unpack_from(key, 17)[0]
        if entry > topic.last:
            yield _removed("delayed message", f"entry {entry} of {topic.name}", "the topic has no such entry", key)
        elif value:
            yield Finding(
                "delayed message",
                f"entry {entry} of {topic.name}",
                "it has a value",
                "empty it",
                key=key,
                changes=(put(key, b""),),
            )


def last_id(value: bytes | None, inventory: Inventory) -> Iterator[Finding]:
    key = keys.LAST_ID
    try:
        found = keys.ID.unpack(value or b"")[0]
        if found >= 1 << 63:
            raise struct.error(f"it is {found}")
    except struct.error as error:
        if value is None and not inventory.records:
            return  # a new folder
        fresh = keys.ID.pack(inventory.highest_id + _LAST_ID_GAP)
        yield Finding(
            "last id",
            "the broker",
            f"it cannot be decoded: {error}",
            "continue far above all known ids",
            key=key,
            changes=(put(key, fresh),),
        )
        return
    if found < inventory.highest_id:
        yield Finding(
            "last id",
            "the broker",
            f"it is {found}, and {inventory.highest_id} is in use",
            f"set it to {inventory.highest_id}",
            key=key,
            changes=(put(key, keys.ID.pack(inventory.highest_id)),),
        )


def own_cluster(value: bytes | None) -> Iterator[Finding]:
    from magnetar.names import check_entity

    if value is None:
        return
    try:
        check_entity("cluster", value.decode())
    except UNREADABLE as error:
        yield Finding(
            "cluster name",
            "the broker",
            f"it is not valid: {error}",
            "export and delete it: start with --cluster NAME",
            key=keys.OWN_CLUSTER,
            changes=(delete(keys.OWN_CLUSTER),),
        )

"""Key index of a Key_Shared subscription: its pending and in-flight entries by the hash of their key.

The places keep it up to date and the dispatcher reads it. Calls go down to the log only, for entries whose key is not
known yet. Knows nothing of which consumer owns a key: that is `key_owners`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyroaring import BitMap64

from magnetar.wire.metadata import MetadataError, metadata_of, sticky_hash, sticky_key

if TYPE_CHECKING:
    from magnetar.broker.subscription.consumer import Consumer
    from magnetar.broker.topic.log import Log
    from magnetar.broker.topic.run import Entry


class KeyIndex:
    """`waiting` has the pending entries of each hash, `holders` the consumer that holds any, and how many."""

    __slots__ = ("_hash_of", "_log", "holders", "waiting")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._hash_of: dict[int, int] = {}  # of every pending or in-flight entry
        self.waiting: dict[int, BitMap64] = {}
        self.holders: dict[int, tuple[Consumer, int]] = {}

    def remember(self, entry_id: int, key_hash: int) -> None:
        self._hash_of[entry_id] = key_hash

    def hold(self, entry_id: int, key_hash: int, consumer: Consumer) -> None:
        """The entry goes in flight."""
        self._hash_of[entry_id] = key_hash
        holder = self.holders.get(key_hash)
        self.holders[key_hash] = (consumer, holder[1] + 1 if holder else 1)

    def released(self, entry_id: int) -> None:
        """The entry is no longer in flight."""
        key_hash = self._hash_of[entry_id]
        holder, count = self.holders[key_hash]
        if count > 1:
            self.holders[key_hash] = (holder, count - 1)
        else:
            del self.holders[key_hash]

    def wait(self, entry_id: int) -> None:
        """The entry is pending."""
        key_hash = self._hash_of.get(entry_id)
        if key_hash is None:
            entry = self._log.read_one(entry_id)
            if entry is None:
                return
            key_hash = self._hash_of[entry_id] = hash_of(entry)
        waiting = self.waiting.get(key_hash)
        if waiting is None:
            waiting = self.waiting[key_hash] = BitMap64()
        waiting.add(entry_id)

    def stop_waiting(self, entry_id: int) -> None:
        """The entry is no longer pending. Later ones of its key may overtake it: a failure ends the order per key."""
        key_hash = self._hash_of[entry_id]
        waiting = self.waiting[key_hash]
        waiting.discard(entry_id)
        if not waiting:
            del self.waiting[key_hash]

    def acked(self, entry_id: int) -> None:
        key_hash = self._hash_of.get(entry_id)
        if key_hash is not None:
            if key_hash in self.waiting:
                self.stop_waiting(entry_id)
            del self._hash_of[entry_id]


def hash_of(entry: Entry) -> int:
    try:
        return sticky_hash(sticky_key(metadata_of(entry[3])))
    except MetadataError:
        return 1  # its key cannot be read, and it must not hold up the entries behind it

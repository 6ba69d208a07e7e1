"""Dead letters, seen from the disk: with every atomic write, each message that died is in exactly one place.

The oracle says who dies, and what its letter must be. Here the very operations that were written are read: the letters
among them, and what they make of the cursors. After every group a letter is there exactly if its origin is closed, and
each death has one letter. No broker is asked.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from magnetar.broker import keys
from magnetar.broker.subscription import entry_state
from magnetar.broker.topic import run
from magnetar.storage.api import Space
from magnetar.storage.memory import _DELETE, _DELETE_RANGE, _PUT, Operation
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import split_batch
from magnetar.wire.compression import CompressionError, decompress
from magnetar.wire.metadata import MetadataError, split_blob

from .failure import expect

ORIGIN, TOPIC, SUBSCRIPTION = "ORIGIN_MESSAGE_ID", "REAL_TOPIC", "REAL_SUBSCRIPTION"
REASON, DESCRIPTION, HISTORY = "DEATH_REASON", "DEATH_DESCRIPTION", "DEATH_HISTORY"
_SIZE_MAX = 1 << 24
_ACKED = b"a"


@dataclass(frozen=True, slots=True)
class Message:
    """A message as its producer made it: what its letter must keep."""

    properties: dict[str, str]
    key: str
    event_time: int
    payload: bytes


@dataclass(slots=True)
class Death:
    """One message that died, or a whole entry that cannot be taken apart (`index` is -1 then, and `bits` all of it)."""

    cursor: int
    entry: int
    bits: int
    index: int
    ledger: int  # of the dead letter topic
    origin: str
    topic: str
    subscription: str
    reasons: tuple[str, ...]
    count: int
    worst: int  # the highest count of those of its entry that died with it
    first_ms: int
    last_ms: int
    message: Message
    is_void: bool = False  # the subscription was sought or deleted since: where the message is now is another story


def messages_in(blob: bytes) -> list[Message] | None:
    """The messages of a batch; None if the entry is no batch, or one that stays whole."""
    try:
        metadata, payload = split_blob(blob)
        if not metadata.HasField("num_messages_in_batch") or metadata.encryption_keys:
            return None
        content = decompress(metadata.compression, payload, metadata.uncompressed_size, _SIZE_MAX)
        parts = split_batch(metadata, content)
    except (MetadataError, CompressionError):
        return None
    return [Message(_dict(s.properties), s.partition_key, s.event_time, part) for s, part in parts]


def whole_message(blob: bytes) -> Message:
    try:
        metadata, payload = split_blob(blob)
    except MetadataError:
        return Message({}, "", 0, blob)
    return Message(_dict(metadata.properties), metadata.partition_key, metadata.event_time, payload)


def is_letter(metadata: pb.MessageMetadata) -> bool:
    """Whether the broker wrote it: no simulated client gives its messages a reason of death."""
    return metadata.producer_name.endswith("-DLQ") and any(pair.key == REASON for pair in metadata.properties)


@dataclass(slots=True)
class _OnDisk:
    """A cursor as it is on disk."""

    mark: int
    states: dict[int, bytes] = field(default_factory=dict)

    def is_closed(self, entry: int, bits: int) -> bool:
        state = self.states.get(entry, b"")
        if entry <= self.mark or state == _ACKED:
            return True
        open_bits = entry_state.decode(state[1:]).open_bits if state else None
        return open_bits is not None and not open_bits & bits


class Graveyard:
    def __init__(self) -> None:
        self._cursors: dict[int, _OnDisk] = {}
        self._sought_in: dict[int, int] = {}
        self.expected: list[Death] = []  # their letters are not on disk yet
        self.letters = 0

    def bury(self, death: Death, synced: int) -> None:
        """It has to die now; `synced` is the last group that is on disk."""
        death.is_void = synced < self._sought_in.get(death.cursor, 0)
        self.expected.append(death)

    def sought(self, cursor: int, group: int) -> None:
        """What was acknowledged there may be open again, and the other way round, when this group is on disk."""
        self._sought_in[cursor] = group
        self._void(cursor)

    def _void(self, cursor: int) -> None:
        for death in self.expected:
            if death.cursor == cursor:
                death.is_void = True

    def forget(self) -> None:
        """A crash: what was not on disk has not happened."""
        self.expected.clear()
        self._sought_in.clear()

    def wrote(self, operations: Sequence[Operation]) -> None:
        """One group, all of it or nothing."""
        buried = []
        for kind, space, key, value in operations:
            if space is Space.STATE:
                self._state(kind, key, value)
            elif kind == _PUT:
                ledger, last = keys.PAIR.unpack(key)
                for entry in run.decode(last, value):
                    death = self._letter(ledger, entry[0], entry[3])
                    if death is not None:
                        buried.append(death)
        for death in buried:
            is_open = death.cursor in self._cursors and not self._is_closed(death)
            expect(death.is_void or not is_open, f"{death.origin} is dead, and open in {death.subscription} on disk")
        for death in self.expected:
            is_lost = not death.is_void and self._is_closed(death)
            expect(
                not is_lost, f"{death.origin} is closed in {death.subscription} on disk, and its letter is not there"
            )

    def _is_closed(self, death: Death) -> bool:
        cursor = self._cursors.get(death.cursor)
        return cursor is not None and cursor.is_closed(death.entry, death.bits)

    def _state(self, kind: int, key: bytes, value: bytes) -> None:
        if kind == _DELETE_RANGE:
            for id, cursor in self._cursors.items():
                prefix = keys.under(keys.POSITION, id)
                for entry in [e for e in cursor.states if key <= prefix + keys.ID.pack(e) < value]:
                    del cursor.states[entry]
        elif key[:1] == keys.CURSOR:
            (id,) = keys.ID.unpack_from(key, 1)
            if kind == _DELETE:
                self._cursors.pop(id, None)
                self._void(id)
            else:
                self._cursors.setdefault(id, _OnDisk(-1)).mark = keys.SIGNED.unpack(value)[0]
        elif key[:1] == keys.POSITION:
            id, entry = keys.PAIR.unpack_from(key, 1)
            if kind == _PUT:
                self._cursors[id].states[entry] = value
            elif id in self._cursors:
                self._cursors[id].states.pop(entry, None)

    def _letter(self, ledger: int, entry: int, blob: bytes) -> Death | None:
        """The death that an entry is the letter of; None if it is something else."""
        try:
            metadata, payload = split_blob(blob)
        except MetadataError:
            return None
        if not is_letter(metadata):
            return None
        properties = _dict(metadata.properties)
        what = f"dead letter {ledger}:{entry} of {properties[ORIGIN]} in {properties[SUBSCRIPTION]}"
        found = next((d for d in self.expected if d.ledger == ledger and _is_of(d, properties)), None)
        expect(found is not None, f"{what}: nobody died, or it is there twice")
        assert found is not None
        self.expected.remove(found)
        self.letters += 1
        _check_letter(what, found, metadata, properties, payload)
        return found


def _is_of(death: Death, properties: dict[str, str]) -> bool:
    where = (properties[ORIGIN], properties[TOPIC], properties[SUBSCRIPTION])
    return where == (death.origin, death.topic, death.subscription)


def _check_letter(
    what: str, death: Death, metadata: pb.MessageMetadata, properties: dict[str, str], payload: bytes
) -> None:
    message = death.message
    expect(payload == message.payload, f"{what}: it has another payload than its message")
    kept = (metadata.partition_key, metadata.event_time)
    expect(kept == (message.key, message.event_time), f"{what}: {kept}, should be {message}")
    expect(properties[REASON] in death.reasons, f"{what}: reason {properties[REASON]}, should be {death.reasons}")
    if properties[REASON] in ("MaxRedeliveries", "ConsumerCrash"):
        described = f" {death.worst} times"
        expect(described in properties[DESCRIPTION], f"{what}: {properties[DESCRIPTION]}, should be{described}")
    history = json.loads(message.properties.get(HISTORY, "[]"))
    history.append(
        {
            "topic": death.topic,
            "subscription": death.subscription,
            "reason": properties[REASON],
            "count": death.count,
            "first": death.first_ms,
            "last": death.last_ms,
        }
    )
    expect(json.loads(properties[HISTORY]) == history[-20:], f"{what}: {properties[HISTORY]}, should be {history}")
    added = {key: properties[key] for key in (ORIGIN, TOPIC, SUBSCRIPTION, REASON, DESCRIPTION, HISTORY)}
    expect(properties == message.properties | added, f"{what}: properties {properties}, of {message.properties}")


def _dict(pairs: object) -> dict[str, str]:
    return {pair.key: pair.value for pair in pairs}  # type: ignore[attr-defined]

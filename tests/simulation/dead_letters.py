"""Dead letters on disk: after every atomic write, each dead message is in exactly one place.

The oracle predicts dead messages and their dead letters. This module reads the written operations: dead letters, and
changes of cursors. After every group a dead letter exists exactly if its origin is closed, and each dead message has
one. Does not query the broker.
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
    """A message as published: the fields that its dead letter must keep."""

    properties: dict[str, str]
    key: str
    event_time: int
    payload: bytes


@dataclass(slots=True)
class DeadMessage:
    """A dead message, or a whole entry that cannot be split (`index` is -1 then, and `bits` covers all of it)."""

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
    worst: int  # the highest count of the messages of its entry that were dead-lettered with it
    first_ms: int
    last_ms: int
    message: Message
    is_void: bool = False  # the subscription was sought or deleted since: the message's state is undefined


_ABOUT_FAILURES = {
    "DEATH_CONSUMER": "consumer",
    "DEATH_CONSUMER_ADDRESS": "address",
    "DEATH_CLIENT_VERSION": "clientVersion",
    "DEATH_BATCH_SIZE": "batch",
}


def messages_in(blob: bytes) -> list[Message] | None:
    """The messages of a batch; None for an entry that is no batch, or cannot be split."""
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


def is_dead_letter(metadata: pb.MessageMetadata) -> bool:
    """Whether the broker wrote it: no simulated client sets a dead letter reason."""
    return metadata.producer_name.endswith("-DLQ") and any(pair.key == REASON for pair in metadata.properties)


@dataclass(slots=True)
class _OnDisk:
    """A cursor as stored on disk."""

    mark: int
    states: dict[int, bytes] = field(default_factory=dict)

    def is_closed(self, entry: int, bits: int) -> bool:
        state = self.states.get(entry, b"")
        if entry <= self.mark or state == _ACKED:
            return True
        open_bits = entry_state.decode(state[1:]).open_bits if state else None
        return open_bits is not None and not open_bits & bits


class DeadLettersOnDisk:
    def __init__(self) -> None:
        self._cursors: dict[int, _OnDisk] = {}
        self._sought_in: dict[int, int] = {}
        self.expected: list[DeadMessage] = []  # their dead letters are not on disk yet
        self.written = 0

    def add(self, dead: DeadMessage, synced: int) -> None:
        """Expects a dead letter from now on; `synced` is the last group on disk."""
        dead.is_void = synced < self._sought_in.get(dead.cursor, 0)
        self.expected.append(dead)

    def sought(self, cursor: int, group: int) -> None:
        """A seek: acknowledged messages may be open again, and vice versa, once this group is on disk."""
        self._sought_in[cursor] = group
        self._void(cursor)

    def _void(self, cursor: int) -> None:
        for dead in self.expected:
            if dead.cursor == cursor:
                dead.is_void = True

    def forget(self) -> None:
        """A crash: unwritten changes are undone."""
        self.expected.clear()
        self._sought_in.clear()

    def wrote(self, operations: Sequence[Operation]) -> None:
        """Applies one group, written completely or not at all."""
        written = []
        for kind, space, key, value in operations:
            if space is Space.STATE:
                self._state(kind, key, value)
            elif kind == _PUT:
                ledger, last = keys.PAIR.unpack(key)
                for entry in run.decode(last, value):
                    dead = self._match(ledger, entry[0], entry[3])
                    if dead is not None:
                        written.append(dead)
        for dead in written:
            is_open = dead.cursor in self._cursors and not self._is_closed(dead)
            expect(dead.is_void or not is_open, f"{dead.origin} is dead, but open in {dead.subscription} on disk")
        for dead in self.expected:
            is_lost = not dead.is_void and self._is_closed(dead)
            expect(not is_lost, f"{dead.origin} is closed in {dead.subscription} on disk, but has no dead letter")

    def _is_closed(self, dead: DeadMessage) -> bool:
        cursor = self._cursors.get(dead.cursor)
        return cursor is not None and cursor.is_closed(dead.entry, dead.bits)

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

    def _match(self, ledger: int, entry: int, blob: bytes) -> DeadMessage | None:
        """The dead message of an entry that is its dead letter; None for any other entry."""
        try:
            metadata, payload = split_blob(blob)
        except MetadataError:
            return None
        if not is_dead_letter(metadata):
            return None
        properties = _dict(metadata.properties)
        what = f"dead letter {ledger}:{entry} of {properties[ORIGIN]} in {properties[SUBSCRIPTION]}"
        found = next((d for d in self.expected if d.ledger == ledger and _is_of(d, properties)), None)
        expect(found is not None, f"{what}: unexpected or duplicate")
        assert found is not None
        self.expected.remove(found)
        self.written += 1
        _check_dead_letter(what, found, metadata, properties, payload)
        return found


def _is_of(dead: DeadMessage, properties: dict[str, str]) -> bool:
    where = (properties[ORIGIN], properties[TOPIC], properties[SUBSCRIPTION])
    return where == (dead.origin, dead.topic, dead.subscription)


def _check_dead_letter(
    what: str, dead: DeadMessage, metadata: pb.MessageMetadata, properties: dict[str, str], payload: bytes
) -> None:
    message = dead.message
    expect(payload == message.payload, f"{what}: the payload differs from its message")
    kept = (metadata.partition_key, metadata.event_time)
    expect(kept == (message.key, message.event_time), f"{what}: {kept}, expected {message}")
    expect(properties[REASON] in dead.reasons, f"{what}: reason {properties[REASON]}, expected {dead.reasons}")
    if properties[REASON] in ("MaxRedeliveries", "ConsumerCrash"):
        described = f" {dead.worst} times"
        expect(described in properties[DESCRIPTION], f"{what}: {properties[DESCRIPTION]}, expected{described}")
    history = json.loads(message.properties.get(HISTORY, "[]"))
    history.append(
        {
            "topic": dead.topic,
            "subscription": dead.subscription,
            "reason": properties[REASON],
            "count": dead.count,
            "first": dead.first_ms,
            "last": dead.last_ms,
        }
    )
    found = json.loads(properties[HISTORY])
    about = {name: str(found[-1].pop(field)) for name, field in _ABOUT_FAILURES.items() if field in found[-1]}
    expect(found == history[-20:], f"{what}: {properties[HISTORY]}, expected {history}")
    if properties[REASON] in ("MaxRedeliveries", "ConsumerCrash"):
        expect("DEATH_CONSUMER" in about, f"{what}: the consumer that failed last is unknown")
    added = {key: properties[key] for key in (ORIGIN, TOPIC, SUBSCRIPTION, REASON, DESCRIPTION, HISTORY)}
    kept_properties = {key: value for key, value in message.properties.items() if key not in _ABOUT_FAILURES}
    expect(properties == kept_properties | added | about, f"{what}: properties {properties}, of {message.properties}")


def _dict(pairs: object) -> dict[str, str]:
    return {pair.key: pair.value for pair in pairs}  # type: ignore[attr-defined]

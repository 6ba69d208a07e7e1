"""Repeated dead letters: dead letters and retries that a client publishes twice for the same message (DL12).

A client with a dead letter policy publishes the failed message elsewhere and then acknowledges it. If the broker or the
client dies in between, the message is delivered and published again. The second publish is dropped, with a receipt:
the first one is recorded with the unacknowledged position of the message, in the same group of the commits.

Only a message that a consumer of the same connection holds counts, so no other client can cause a drop. The topic that
such a publish goes to is a dead letter or retry topic, whatever its name (DL10).
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from magnetar.bounds import LETTERS_OF_BATCH, LETTERS_OF_MESSAGE, MESSAGES_SPLIT
from magnetar.broker.subscription.single_messages import SINGLE_ID_MIN, parse_id
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import Publish
from magnetar.deadletter.properties import ORIGIN_MESSAGE_ID, Origin, read_origin
from magnetar.session.handles import ProducerHandle
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.entry import batch_messages_of, pack_batch
from magnetar.wire.errors import EntryError
from magnetar.wire.metadata import build_blob, split_blob, text_properties

if TYPE_CHECKING:
    from magnetar.session.session import Session

_PROPERTY = ORIGIN_MESSAGE_ID.encode()  # the misspelt name begins with it too
_PROPERTY_WITHIN = 8192


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter or retry for a message that a consumer holds; `key` separates those for the same entry.

    What is stored of it is a hash, because clients choose the texts in it; earlier versions stored it as it is.
    """

    subscription: Subscription
    entry_id: int
    batch_index: int
    key: str

    @property
    def is_published(self) -> bool:
        state = self.subscription.cursor.state_of(self.entry_id)
        return state is not None and (self.hash in state.published or self.key in state.published)

    @property
    def hash(self) -> str:
        digest = hashlib.blake2b(self.key.encode(errors="surrogatepass"), digest_size=9).digest()
        return base64.b64encode(digest).decode()


def may_be_dead_letter(handle: ProducerHandle, blob: bytes) -> bool:
    """A cheap test for the hot path: whether to parse the blob. A compressed batch may hide its dead letters. What is
    moved is never repeated."""
    if handle.producer.move is not None:
        return False
    return handle.takes_dead_letters or blob.find(_PROPERTY, 0, _PROPERTY_WITHIN) >= 0


def publish_dead_letters(session: Session, handle: ProducerHandle, publish: Publish) -> bool:
    """Publishes an entry that may hold dead letters; false if it holds none, and nothing was done."""
    sequence_id, highest_id, messages, blob, may_be_delayed, is_chunk = publish
    if is_chunk or messages > MESSAGES_SPLIT.limit or not _holds_any(session):
        return False
    try:
        metadata, payload = split_blob(blob)
        if max(1, metadata.num_messages_in_batch) != messages:
            return False
        parts = _parts(metadata, payload, session.broker.settings.maxMessageSize)
    except EntryError:
        return False
    dead_letters = [_dead_letter(session, handle, properties) for properties, _, _ in parts]
    if not any(dead_letters):
        return False
    if isinstance(handle.topic, PersistentTopic):
        author = session.broker.authorization.author(session.principal)
        is_retry = metadata.HasField("deliver_at_time")
        session.broker.mark_for_failed_messages(handle.topic, author, retries=is_retry)
    kept = [
        index for index, dead_letter in enumerate(dead_letters) if dead_letter is None or not dead_letter.is_published
    ]
    if not kept:
        session.drop_repeated(handle, sequence_id, highest_id)
        return True
    if len(kept) < len(parts):
        messages, blob = len(kept), _rebuilt(metadata, [parts[index][1:] for index in kept])
    # One group for the entry and for the record that it was published: opened first, see `dead_letter`.
    session.broker.commits.open()
    for dead_letter in (dead_letters[index] for index in kept):
        if dead_letter is not None:
            _record(dead_letter)
    session.publish(handle, [(sequence_id, highest_id, messages, blob, may_be_delayed, is_chunk)])
    return True


def _record(dead_letter: DeadLetter) -> None:
    kept = LETTERS_OF_MESSAGE.limit if dead_letter.batch_index < 0 else LETTERS_OF_BATCH.limit
    dead_letter.subscription.cursor.change(dead_letter.entry_id, lambda found: found.publish(dead_letter.hash, kept))


def _holds_any(session: Session) -> bool:
    return any(handle.consumer.pending for handle in session.consumers.values())


def _parts(
    metadata: pb.MessageMetadata, payload: bytes, size_max: int
) -> list[tuple[dict[str, str], pb.SingleMessageMetadata | None, bytes]]:
    """Properties, metadata and payload of each message of an entry. Raises EntryError, also for an encrypted batch."""
    if not metadata.HasField("num_messages_in_batch"):
        return [(text_properties(metadata.properties), None, payload)]
    messages = batch_messages_of(metadata, payload, size_max)
    return [(text_properties(single.properties), single, part) for single, part in messages]


def _dead_letter(session: Session, handle: ProducerHandle, properties: dict[str, str]) -> DeadLetter | None:
    origin = read_origin(properties)
    if origin is None:
        return None
    if origin.entry_id >= SINGLE_ID_MIN:
        entry_id, index = parse_id(origin.entry_id)
        origin = msgspec.structs.replace(origin, entry_id=entry_id, batch_index=index)
    for consumer in session.consumers.values():
        subscription = consumer.consumer.subscription
        if (
            isinstance(subscription, Subscription)
            and consumer.topic.ledger_id == origin.ledger_id
            and origin.entry_id in consumer.consumer.pending
        ):
            return DeadLetter(subscription, origin.entry_id, origin.batch_index, _key(origin, handle))
    return None


def _key(origin: Origin, handle: ProducerHandle) -> str:
    return f"{origin.batch_index} {origin.generation} {origin.retries} {handle.topic.name.base.full}"


def _rebuilt(metadata: pb.MessageMetadata, parts: list[tuple[pb.SingleMessageMetadata | None, bytes]]) -> bytes:
    """The batch with fewer messages."""
    rebuilt = pb.MessageMetadata()
    rebuilt.CopyFrom(metadata)
    payload = pack_batch(rebuilt, [(single, payload) for single, payload in parts if single is not None])
    return build_blob(rebuilt, payload)

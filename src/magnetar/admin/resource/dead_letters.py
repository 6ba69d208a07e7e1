"""Dead letters of a topic: list, count and show them. Nothing is acknowledged or changed.

Owns their JSON; `deadletter.properties` parses origin and reason. Partitions are read one after the other. Message ids
are written as clients do: `ledger:entry[:partition[:batch index]]`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec
from msgspec import UNSET, UnsetType

from magnetar.admin.http.errors import BadRequest, MessageNotFound, OperationNotAllowed
from magnetar.admin.http.request import Call
from magnetar.admin.http.time_slice import TimeSlice
from magnetar.admin.iso_time import iso_time_or_none
from magnetar.admin.opened import open_persistent_partitions
from magnetar.admin.stats.dead_letters import dead_letter_topics_of
from magnetar.bounds import BYTES_SPLIT, DEAD_LETTER_PAGE
from magnetar.broker.topic import waiting
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.run import Entry
from magnetar.deadletter.properties import DeadLetterInfo, FailureRecord, read_history, read_info
from magnetar.deadletter.tally import ReasonCounts, Tally
from magnetar.errors import NotAllowed
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.entry import ChunkEntry, EncryptedEntry, messages_of
from magnetar.wire.errors import EntryError
from magnetar.wire.metadata import MetadataError, split_blob
from magnetar.wire.text import readable

LIMIT_DEFAULT, LIMIT_MAX = 100, DEAD_LETTER_PAGE.limit
_PREVIEW_MAX = 4096
_PART = 100  # dead letters of a batch that are read together

_POSITION = re.compile(r"(\d{1,19}):(\d{1,19})(?::(?:-1|\d{1,10}))?(?::(-1|\d{1,10}))?", re.ASCII)


# -- message ids


@dataclass(frozen=True, slots=True)
class _MessageId:
    ledger_id: int
    entry_id: int
    batch_index: int = -1

    @classmethod
    def parse(cls, name: str, text: str) -> _MessageId:
        match = _POSITION.fullmatch(text)
        if match is None:
            raise BadRequest(f"{name} {text[:100]!r} is not of the form ledger:entry[:partition[:batch index]]")
        return cls(int(match[1]), int(match[2]), -1 if match[3] is None else int(match[3]))


def _topics(call: Call) -> list[PersistentTopic]:
    """The partitions of a dead letter topic; other topics are rejected, with the names of their dead letter topics."""
    name = call.topic
    if not name.is_persistent:
        raise OperationNotAllowed("only persistent topics have dead letters")
    topics = open_persistent_partitions(call)
    if not call.broker.catalog.holds_dead_letters(name):
        found = dead_letter_topics_of(call.broker, name)
        names = f"its dead letter topics are {', '.join(found)}" if found else "it has none"
        raise NotAllowed(f"{name.full} is not a dead letter topic: {names}")
    return topics


def _after(call: Call, topics: list[PersistentTopic]) -> tuple[list[PersistentTopic], _MessageId | None]:
    """The remaining partitions, and the last dead letter already seen in the first of them."""
    text = call.query.get("after")
    if not text:
        return topics, None
    message_id = _MessageId.parse("parameter after", text)
    for index, topic in enumerate(topics):
        if topic.ledger_id == message_id.ledger_id:
            return topics[index:], message_id
    raise MessageNotFound(f"parameter after {text!r}: ledger {message_id.ledger_id} is not one of {call.topic.full}")


# -- dead letters of an entry


@dataclass(frozen=True, slots=True)
class _DeadLetter:
    """One message of a dead letter topic. `content` is None if it cannot be read; `fault` is the reason."""

    topic: PersistentTopic
    entry_id: int
    batch_index: int
    batch_size: int
    metadata: pb.MessageMetadata
    single: pb.SingleMessageMetadata | None
    content: bytes | None
    fault: str = ""

    @property
    def id(self) -> str:
        batch = f":{self.batch_index}" if self.batch_index >= 0 else ""
        return f"{self.topic.ledger_id}:{self.entry_id}:{self.topic.name.partition}{batch}"

    @property
    def own(self) -> pb.MessageMetadata | pb.SingleMessageMetadata:
        """The metadata of this message alone."""
        return self.metadata if self.single is None else self.single

    @property
    def properties(self) -> dict[str, str]:
        return {readable(pair.key): readable(pair.value) for pair in self.own.properties}

    @property
    def time_ms(self) -> int:
        return self.metadata.publish_time

    @property
    def is_waiting(self) -> bool:
        return waiting.is_waiting(self.topic, self.entry_id, self.batch_index)

    def info(self) -> DeadLetterInfo:
        return read_info(self.properties, self.topic.name)


def _dead_letters_of(topic: PersistentTopic, entry: Entry) -> Iterator[_DeadLetter]:
    """One per message; one for an entry, or the rest of a batch, that cannot be split. Markers are left out."""
    entry_id, announced, _, blob = entry
    try:
        metadata, payload = split_blob(blob)
    except MetadataError as error:
        yield _DeadLetter(topic, entry_id, -1, 0, pb.MessageMetadata(), None, None, str(error))
        return
    if metadata.HasField("marker_type"):
        return
    is_batch, count = metadata.HasField("num_messages_in_batch"), metadata.num_messages_in_batch
    try:
        if is_batch and count != announced:
            raise EntryError(f"it has {count} messages, and its producer announced {announced}")
        for index, (single, content) in enumerate(messages_of(metadata, payload, BYTES_SPLIT.limit)):
            if single is None:
                yield _DeadLetter(topic, entry_id, -1, 0, metadata, None, content)
            elif not single.compacted_out:
                yield _DeadLetter(topic, entry_id, index, count, metadata, single, content)
    except (EncryptedEntry, ChunkEntry):
        what = "encrypted" if metadata.encryption_keys else "a chunk"
        fault = f"the message is {what}: the payload is shown as it was sent"
        yield _DeadLetter(topic, entry_id, -1, 0, metadata, None, payload, fault)
    except EntryError as error:
        yield _DeadLetter(topic, entry_id, -1, 0, metadata, None, payload, str(error))


async def _scan(
    call: Call, topics: list[PersistentTopic], after: _MessageId | None
) -> AsyncIterator[list[_DeadLetter]]:
    """The waiting dead letters of each entry, with `handled` all, beginning after `after`; of a long batch in parts.

    Yields to other tasks while it reads.
    """
    settings, time_slice, handled = call.broker.settings, TimeSlice(), call.flag("handled")
    for topic in topics:
        next_id, last = topic.log.first, topic.log.confirmed
        if after is not None:
            next_id = max(next_id, after.entry_id + (after.batch_index < 0))
        while next_id <= last:
            if not handled and (next_id := waiting.next_waiting(topic, next_id)) > last:
                break
            entries = topic.log.read(next_id, settings.dispatcherMaxReadBatchSize, settings.dispatcherMaxReadSizeBytes)
            if not entries:
                break
            for entry in entries:
                seen = after.batch_index if after is not None and entry[0] == after.entry_id else -2
                found = (one for one in _dead_letters_of(topic, entry) if one.batch_index > seen)
                letters = (one for one in found if handled or one.is_waiting)
                while part := list(islice(letters, _PART)):
                    yield part
                    await time_slice.checkpoint()
            next_id = entries[-1][0] + 1
        after = None


# -- list


class DeadLetterSummary(msgspec.Struct, rename="camel", kw_only=True):
    """`size` is the size of the payload. `handled`: every durable subscription has acknowledged it."""

    id: str
    time: str | None
    reason: str
    description: str | None
    origin_topic: str | None
    origin_subscription: str | None
    origin_message_id: str | None
    count: int | None
    consumer: str | UnsetType = UNSET
    consumer_address: str | UnsetType = UNSET
    client_version: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    size: int
    handled: bool | UnsetType = UNSET
    fault: str | UnsetType = UNSET


class DeadLetterPreview(DeadLetterSummary, rename="camel", kw_only=True):
    """With the payload, if it is short: see `DeadLetterDetails`."""

    key_is_base64: bool | UnsetType = UNSET
    schema_version_base64: str | UnsetType = UNSET
    payload_encoding: str | None
    payload: msgspec.Raw | str | None


class DeadLetterPage(msgspec.Struct, rename="camel"):
    """`next` is the `after` of the next page; null at the end."""

    dead_letters: list[DeadLetterSummary]
    next: str | None = None


async def list_dead_letters(call: Call) -> DeadLetterPage:
    """List the waiting dead letters of a topic, with `handled` all: `limit` (1 to 1000), beginning `after` an id.

    With `payloads`, each has its payload if it is not larger than 4 KiB.
    """
    with_payloads = call.flag("payloads")
    limit = call.number("limit", 1, LIMIT_MAX, default=LIMIT_DEFAULT)
    topics, after = _after(call, _topics(call))
    page = DeadLetterPage([])
    async for letters in _scan(call, topics, after):
        for letter in letters:
            if len(page.dead_letters) == limit:
                page.next = page.dead_letters[-1].id
                return page
            page.dead_letters.append(_preview(letter) if with_payloads else _summary(letter))
    return page


def _summary(letter: _DeadLetter) -> DeadLetterSummary:
    info = letter.info()
    return DeadLetterSummary(
        id=letter.id,
        time=_time(letter.time_ms),
        reason=info.reason,
        description=info.description,
        origin_topic=info.origin_topic,
        origin_subscription=info.origin_subscription,
        origin_message_id=info.origin_message_id,
        count=info.count,
        consumer=info.consumer or UNSET,
        consumer_address=info.consumer_address or UNSET,
        client_version=info.client_version or UNSET,
        error=info.error or UNSET,
        key=readable(letter.own.partition_key) if letter.own.HasField("partition_key") else UNSET,
        size=len(letter.content or b""),
        handled=UNSET if letter.is_waiting else True,
        fault=letter.fault or UNSET,
    )


def _preview(letter: _DeadLetter) -> DeadLetterSummary:
    summary, metadata = _summary(letter), letter.metadata
    if letter.content is None or letter.metadata.encryption_keys or summary.size > _PREVIEW_MAX:
        return summary
    encoding, payload = _payload(letter)
    return DeadLetterPreview(
        **msgspec.structs.asdict(summary),
        key_is_base64=True if letter.own.partition_key_b64_encoded else UNSET,
        schema_version_base64=_base64(metadata.schema_version) if metadata.HasField("schema_version") else UNSET,
        payload_encoding=encoding,
        payload=payload,
    )


def _time(time_ms: int | None) -> str | None:
    return iso_time_or_none(time_ms) if time_ms else None


# -- count


class OriginStats(msgspec.Struct, rename="camel", kw_only=True):
    topic: str | None
    subscription: str | None
    dead_letters: int
    reasons: dict[str, int]
    first: str | None
    last: str | None


class DeadLetterStats(msgspec.Struct, rename="camel", kw_only=True):
    """`waiting` and `handled` are entries of the topic; all other numbers are of the dead letters that were read.

    `origins_left_out` counts the dead letters of origins beyond the first thousand.

    `aborted` if a limit ended the scan early; continue with `after` set to `next`.
    """

    waiting: int
    handled: int
    dead_letters: int
    reasons: dict[str, int]
    first: str | None
    last: str | None
    origins: list[OriginStats]
    origins_left_out: int
    aborted: bool
    next: str | None


async def get_stats(call: Call) -> DeadLetterStats:
    """Count waiting dead letters, with `handled` all, by reason and origin, by reading them.

    `aborted` and `next` if a limit ended it early.
    """
    settings, tally = call.broker.settings, Tally()
    topics, after = _after(call, _topics(call))
    left, end_ms = (
        settings.subscriptionBacklogScanMaxEntries,
        call.broker.clock.monotonic_ms() + settings.subscriptionBacklogScanMaxTimeMs,
    )
    last: str | None = None
    async for letters in _scan(call, topics, after):
        if left == 0 or call.broker.clock.monotonic_ms() > end_ms:
            return _stats(topics, tally, next_=last)
        left -= 1
        for letter in letters:
            tally.add(letter.info(), letter.time_ms)
            last = letter.id
    return _stats(topics, tally, next_=None)


def _stats(topics: list[PersistentTopic], tally: Tally, next_: str | None) -> DeadLetterStats:
    return DeadLetterStats(
        waiting=sum(map(waiting.count, topics)),
        handled=sum(map(waiting.handled, topics)),
        dead_letters=tally.all.total,
        reasons=tally.all.reasons,
        first=_time(tally.all.first_ms),
        last=_time(tally.all.last_ms),
        origins=[_origin(*origin, counts) for origin, counts in tally.by_origin.items()],
        origins_left_out=tally.left_out,
        aborted=next_ is not None,
        next=next_,
    )


def _origin(topic: str | None, subscription: str | None, counts: ReasonCounts) -> OriginStats:
    return OriginStats(
        topic=topic,
        subscription=subscription,
        dead_letters=counts.total,
        reasons=counts.reasons,
        first=_time(counts.first_ms),
        last=_time(counts.last_ms),
    )


# -- show


class FailureDetails(msgspec.Struct, rename="camel"):
    topic: str
    subscription: str
    reason: str
    count: int
    first: str | None
    last: str | None
    consumer: str | UnsetType = UNSET
    address: str | UnsetType = UNSET
    client_version: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class DeadLetterDetails(DeadLetterSummary, rename="camel", kw_only=True):
    """`payload` is JSON, text or base64, see `payload_encoding`; null for a message without a value."""

    failures: list[FailureDetails]
    properties: dict[str, str]
    producer_name: str
    sequence_id: int
    event_time: str | UnsetType = UNSET
    key_is_base64: bool | UnsetType = UNSET
    ordering_key_base64: str | UnsetType = UNSET
    schema_version_base64: str | UnsetType = UNSET
    compression: str
    batch_size: int | UnsetType = UNSET
    is_encrypted: bool
    payload_encoding: str | None
    payload: msgspec.Raw | str | None


def get(call: Call) -> DeadLetterDetails:
    """Show one dead letter: its headers, its failures, and its payload as JSON, text or base64."""
    message_id = _MessageId.parse("message id", call.path["messageId"])
    for topic in _topics(call):
        entry = topic.log.read_one(message_id.entry_id) if topic.ledger_id == message_id.ledger_id else None
        if entry is not None:
            return _details(_one(_dead_letters_of(topic, entry), message_id))
    raise _missing(message_id)


def _one(letters: Iterator[_DeadLetter], message_id: _MessageId) -> _DeadLetter:
    if message_id.batch_index < 0:
        first, second = next(letters, None), next(letters, None)
        if first is not None and second is not None:
            raise NotAllowed(
                f"entry {message_id.ledger_id}:{message_id.entry_id} is a batch of {first.batch_size} messages:"
                f" name one, as in {first.id}"
            )
        letters = iter([] if first is None else [first])
    for letter in letters:
        if message_id.batch_index in (-1, letter.batch_index):
            return letter
    raise _missing(message_id)


def _missing(message_id: _MessageId) -> MessageNotFound:
    batch = f", batch index {message_id.batch_index}" if message_id.batch_index >= 0 else ""
    return MessageNotFound(f"Message id not found: {message_id.ledger_id}:{message_id.entry_id}{batch}")


def _details(letter: _DeadLetter) -> DeadLetterDetails:
    own, metadata = letter.own, letter.metadata
    encoding, payload = _payload(letter)
    return DeadLetterDetails(
        **msgspec.structs.asdict(_summary(letter)),
        failures=[_failure(failure) for failure in read_history(letter.properties)],
        properties=letter.properties,
        producer_name=readable(metadata.producer_name),
        sequence_id=_signed(own.sequence_id),
        event_time=_time(own.event_time) or UNSET,
        key_is_base64=True if own.partition_key_b64_encoded else UNSET,
        ordering_key_base64=_base64(own.ordering_key) if own.HasField("ordering_key") else UNSET,
        schema_version_base64=_base64(metadata.schema_version) if metadata.HasField("schema_version") else UNSET,
        compression=pb.CompressionType.Name(metadata.compression),
        batch_size=letter.batch_size or UNSET,
        is_encrypted=bool(metadata.encryption_keys),
        payload_encoding=encoding,
        payload=payload,
    )


def _payload(letter: _DeadLetter) -> tuple[str | None, msgspec.Raw | str | None]:
    content = letter.content
    if content is None or letter.own.null_value:
        return None, None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "base64", _base64(content)
    if text.lstrip()[:1] in ("{", "["):
        try:
            msgspec.json.decode(content)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return "text", text
        return "json", msgspec.Raw(content)  # unchanged, to keep numbers exact
    return "text", text


def _failure(failure: FailureRecord) -> FailureDetails:
    return FailureDetails(
        failure.topic,
        failure.subscription,
        failure.reason,
        failure.count,
        _time(failure.first),
        _time(failure.last),
        failure.consumer or UNSET,
        failure.address or UNSET,
        failure.client_version or UNSET,
        failure.error or UNSET,
    )


def _signed(value: int) -> int:
    """Unsigned on the wire, but signed in every client."""
    return value - (1 << 64) if value >> 63 else value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()

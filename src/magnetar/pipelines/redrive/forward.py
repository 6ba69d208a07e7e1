"""Forwarding: plain letters go back without columns between, in one task that reads and sends.

The quick way for a redrive that chooses and edits nothing, on a cluster with moves. A letter that is not plain (a
batch, compressed, encrypted, in chunks, for quarantine) ends it: `stage` continues from there. Owns the metadata of a
redriven message; agrees with `rows`, which states the same in SQL.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from magnetar.client.consume.entry import EntryRun
from magnetar.client.inline import InlineClient
from magnetar.client.message import MessageId
from magnetar.client.produce.entry_producers import EntryProducers, ProducerKey
from magnetar.client.produce.routing import HASHES
from magnetar.clock import SystemClock
from magnetar.deadletter.properties import (
    DEATH_ERROR,
    DEATH_HISTORY,
    REAL_TOPIC,
    REDRIVE_GENERATION,
    REDRIVE_SUBSCRIPTION,
    read_count,
    read_reason,
    read_subscription,
)
from magnetar.names import TopicName
from magnetar.pipelines.moving.task import PRODUCER_PREFIX
from magnetar.pipelines.redrive.rows import RESET
from magnetar.pipelines.redrive.stage import ANY_ORIGIN, OriginKey, RedriveStage, RedriveTarget
from magnetar.spark.clients import inline_client
from magnetar.spark.dead_letters.letter_columns import origin_of
from magnetar.spark.dead_letters.plan import LetterRange
from magnetar.spark.sink.options import SinkOptions
from magnetar.spark.sink.targets import TargetTopic, target_topic
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.entry import open_entry
from magnetar.wire.errors import EntryError
from magnetar.wire.metadata import build_blob
from magnetar.wire.moves import ALL_SUBSCRIPTIONS, MOVE_ONLY, MOVE_SUBSCRIPTION, MOVE_TOPIC, MOVED, positions_of

_HELD_BYTES = 8 << 20
_HELD_LETTERS = 16_384
_BATCH_MESSAGES, _BATCH_BYTES = 1000, 128 * 1024
_AHEAD = 2_000  # letters that are looked at for unknown origins, once there is one
_ERROR_SHOWN = 200
_FLOWS_REMEMBERED = 50_000
_DROPPED = frozenset(RESET)
_NO_INDEX = -1


@dataclass
class Forwarded:
    """What became of a range: all its letters up to `up_to` are sent, or stay. Without `is_plain` the next one is not.
    `unknown` are origins without a target that come next."""

    topic: str
    up_to: MessageId
    is_plain: bool = True
    sent: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    unknown: set[OriginKey] = field(default_factory=set)


def forward(stage: RedriveStage, generations_max: int, published_until_ms: int, letters: LetterRange) -> Forwarded:
    """In a worker. Raises `ClientError`."""
    return _Forwarder(stage, generations_max, published_until_ms, letters).run()


@dataclass
class _Flow:
    """Letters for one partition and subscription, by key, in the order of their topic."""

    key: ProducerKey
    by_key: dict[tuple[str | bytes | None, bool], list[tuple[int, bytes, pb.MessageMetadata]]] = field(
        default_factory=dict
    )


class _Forwarder:
    def __init__(
        self, stage: RedriveStage, generations_max: int, published_until_ms: int, letters: LetterRange
    ) -> None:
        self._stage = stage
        self._generations_max = generations_max
        self._published_until_ms = published_until_ms
        self._letters = letters
        self._source = TopicName.parse(letters.span.topic)
        self._sink = SinkOptions.of(stage.options)
        self._client: InlineClient = inline_client(self._sink.client)
        self._hash = HASHES[self._sink.hashing_scheme]
        self._token = secrets.token_hex(4)
        self._clock = SystemClock()
        self._found = Forwarded(letters.span.topic, letters.span.start)
        self._origins: dict[tuple[str | None, str | None], OriginKey] = {}
        self._flows: dict[tuple[str, str, bytes], _Flow] = {}
        self._flow_of: dict[tuple[RedriveTarget, str | bytes | None, bytes], _Flow] = {}
        self._held = self._held_bytes = self._ahead = 0
        self._targets: dict[str, TargetTopic] = {}
        self._ledger_id = letters.span.end.ledger_id  # a topic of a Magnetar broker has one
        self._sequence = 0
        self._is_stopped = False
        self._producers = EntryProducers(self._client.client, deduplicated=False)

    def run(self) -> Forwarded:
        span = self._letters.span
        reader = self._client.run(self._client.client.entries(span.topic, span.start, span.end))
        try:
            while runs := self._client.run(reader.next_runs()):
                for run in runs:
                    self._take(run)
                if self._held >= _HELD_LETTERS or self._held_bytes >= _HELD_BYTES:
                    self._send()
                if self._is_stopped and (not self._found.unknown or self._ahead >= _AHEAD):
                    break
            else:
                if not self._is_stopped:
                    self._found.up_to = span.end
            self._send()
            self._client.run(self._producers.flush())
        finally:
            self._client.run(reader.close())
            self._client.run(self._producers.close())
        return self._found

    # -- letters

    def _take(self, run: EntryRun) -> None:
        count = len(run.blobs)
        unacknowledged = self._letters.unacknowledged
        entries = np.arange(run.entry_id, run.entry_id + count)
        is_open = np.ones(count, np.bool_)
        if unacknowledged is not None:
            is_open = unacknowledged.mask(entries, np.full(count, _NO_INDEX), run.ledger_id)
        for index in np.flatnonzero(is_open).tolist():
            if self._is_stopped and (not self._found.unknown or self._ahead >= _AHEAD):
                return
            self._letter(run.ledger_id, run.entry_id + index, run.blobs[index])
        if not self._is_stopped:
            self._found.up_to = MessageId(run.ledger_id, run.entry_id + count - 1, run.partition)

    def _stop(self, ledger_id: int, entry_id: int, *, is_plain: bool) -> None:
        """Before this letter."""
        if not self._is_stopped:
            self._is_stopped = True
            self._found.up_to = MessageId(ledger_id, entry_id - 1, self._found.up_to.partition)
            self._found.is_plain = is_plain

    def _letter(self, ledger_id: int, entry_id: int, blob: bytes) -> None:
        try:
            metadata, start = open_entry(blob)
        except EntryError:
            return self._stop(ledger_id, entry_id, is_plain=False)
        if metadata.HasField("marker_type") or metadata.publish_time > self._published_until_ms:
            return None
        properties = {pair.key: pair.value for pair in metadata.properties}
        generation = _generation_in(properties)
        if not _is_plain(metadata, properties) or generation is None or generation >= self._generations_max:
            return self._stop(ledger_id, entry_id, is_plain=False)
        origin = self._origin(properties)
        target = self._stage.targets.get(origin) or self._stage.targets.get(ANY_ORIGIN)
        if target is None:
            self._stop(ledger_id, entry_id, is_plain=True)
            self._found.unknown.add(origin)
        if self._is_stopped:
            self._ahead += 1
        elif target is not None and target.problem:
            self._found.kept[target.problem] += 1
        elif target is not None:
            single = self._redriven(metadata, properties, origin, generation)
            self._hold(target, entry_id, metadata, single, blob[start:])
        return None

    def _origin(self, properties: dict[str, str]) -> OriginKey:
        key = properties.get(REAL_TOPIC), read_subscription(properties, self._source)
        origin = self._origins.get(key)
        if origin is None:
            topic, partition = origin_of(key[0])
            origin = self._origins[key] = OriginKey(topic, partition, key[1])
        return origin

    # -- messages

    def _redriven(
        self, metadata: pb.MessageMetadata, properties: dict[str, str], origin: OriginKey, generation: int
    ) -> pb.SingleMessageMetadata:
        single = pb.SingleMessageMetadata(properties=[pair for pair in metadata.properties if pair.key not in _DROPPED])
        single.properties.add(key=REDRIVE_GENERATION, value=str(generation + 1))
        if ANY_ORIGIN not in self._stage.targets and origin.subscription is not None:
            single.properties.add(key=REDRIVE_SUBSCRIPTION, value=origin.subscription)
        if DEATH_HISTORY not in properties and origin.topic is not None:
            history = _first_death(properties, origin, metadata.publish_time)
            single.properties.add(key=DEATH_HISTORY, value=history)
        if metadata.HasField("partition_key"):
            single.partition_key = metadata.partition_key
            single.partition_key_b64_encoded = metadata.partition_key_b64_encoded
        if metadata.HasField("ordering_key"):
            single.ordering_key = metadata.ordering_key
        if metadata.event_time > 0:
            single.event_time = metadata.event_time
        if metadata.null_value:
            single.null_value = True
        return single

    def _hold(
        self,
        target: RedriveTarget,
        entry_id: int,
        metadata: pb.MessageMetadata,
        single: pb.SingleMessageMetadata,
        payload: bytes,
    ) -> None:
        has_key = metadata.HasField("partition_key")
        key = (metadata.partition_key if has_key else None, metadata.partition_key_b64_encoded)
        place = (target, key[0], metadata.schema_version)
        flow = self._flow_of.get(place)
        if flow is None:
            if len(self._flow_of) >= _FLOWS_REMEMBERED:
                self._flow_of.clear()
            flow = self._flow_of[place] = self._flow(target, key[0], metadata.schema_version)
        single.payload_size = len(payload)
        section = single.SerializeToString()
        message = b"".join((len(section).to_bytes(4, "big"), section, payload))
        flow.by_key.setdefault(key, []).append((entry_id, message, metadata))
        self._held += 1
        self._held_bytes += len(message)

    def _flow(self, target: RedriveTarget, key: str | bytes | None, version: bytes) -> _Flow:
        found: TargetTopic = self._target(target.topic)
        partition = max(0, self._source.partition)
        if key is not None:
            partition = self._hash(key if isinstance(key, str) else key.decode(errors="replace"))
        topic = found.partitions[partition % len(found.partitions)]
        flow = self._flows.get((topic, target.only, version))
        if flow is None:
            metadata = {MOVE_TOPIC: self._source.base.full, MOVE_SUBSCRIPTION: ALL_SUBSCRIPTIONS}
            if target.only:
                metadata[MOVE_ONLY] = target.only
            name = f"{PRODUCER_PREFIX}{self._stage.pipeline}/{self._token}-{len(self._flows)}"
            flow = _Flow(ProducerKey(topic, name, tuple(metadata.items())))
            self._flows[topic, target.only, version] = flow
        return flow

    def _target(self, topic: str) -> TargetTopic:
        found = self._targets.get(topic)
        if found is None:
            found = self._targets[topic] = target_topic(self._client, self._sink.client, topic)
        return found

    # -- sending

    def _send(self) -> None:
        """Everything that is held, a batch for each key."""
        self._client.run(self._send_held())
        self._held = self._held_bytes = 0

    async def _send_held(self) -> None:
        await self._producers.open([flow.key for flow in self._flows.values() if flow.by_key])
        for (_, _, version), flow in self._flows.items():
            producer = self._producers[flow.key] if flow.by_key else None
            for letters in flow.by_key.values():
                assert producer is not None
                for part in _batches(letters):
                    self._sequence += 1
                    blob = self._batch(producer.name, version, part)
                    await producer.send(
                        blob, sequence_id=self._sequence, highest_sequence_id=self._sequence, messages=len(part)
                    )
                self._found.sent[flow.key.topic] += len(letters)
            flow.by_key = {}

    def _batch(self, name: str, version: bytes, letters: list[tuple[int, bytes, pb.MessageMetadata]]) -> bytes:
        first = letters[0][2]
        metadata = pb.MessageMetadata(
            producer_name=name,
            sequence_id=self._sequence,
            publish_time=self._clock.now_ms(),
            num_messages_in_batch=len(letters),
        )
        if version:
            metadata.schema_version = version
        if first.HasField("partition_key"):
            metadata.partition_key = first.partition_key
            metadata.partition_key_b64_encoded = first.partition_key_b64_encoded
        if first.HasField("ordering_key"):
            metadata.ordering_key = first.ordering_key
        moved = positions_of(self._ledger_id, [(entry_id, _NO_INDEX) for entry_id, _, _ in letters])
        metadata.properties.add(key=MOVED, value=moved.text)
        return build_blob(metadata, b"".join(message for _, message, _ in letters))


def _batches(
    letters: list[tuple[int, bytes, pb.MessageMetadata]],
) -> Iterator[list[tuple[int, bytes, pb.MessageMetadata]]]:
    part: list[tuple[int, bytes, pb.MessageMetadata]] = []
    size = 0
    for letter in letters:
        if part and (len(part) >= _BATCH_MESSAGES or size + len(letter[1]) > _BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append(letter)
        size += len(letter[1])
    if part:
        yield part


def _is_plain(metadata: pb.MessageMetadata, properties: dict[str, str]) -> bool:
    """One message, whose texts are UTF-8: protobuf has others as bytes."""
    if metadata.HasField("num_messages_in_batch") or metadata.encryption_keys or metadata.num_chunks_from_msg > 1:
        return False
    if metadata.compression != pb.NONE or not isinstance(metadata.partition_key, str):
        return False
    try:
        "".join(properties), "".join(properties.values())
    except TypeError:
        return False
    return True


def _generation_in(properties: dict[str, str]) -> int | None:
    """None for one that is no number."""
    text = properties.get(REDRIVE_GENERATION)
    if text is None:
        return 0
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 10 else None


def _first_death(properties: dict[str, str], origin: OriginKey, published_ms: int) -> str:
    """The history of a letter whose client wrote none."""
    record = {
        "topic": origin.topic,
        "subscription": origin.subscription or "",
        "reason": read_reason(properties),
        "count": read_count(properties) or 0,
        "first": published_ms,
        "last": published_ms,
    }
    if error := properties.get(DEATH_ERROR):
        record["error"] = error[:_ERROR_SHOWN]
    return json.dumps([record], ensure_ascii=False, separators=(",", ":"))


def forward_all(
    stage: RedriveStage, generations_max: int, published_until_ms: int, ranges: Iterable[LetterRange]
) -> list[Forwarded]:
    """The task of a job."""
    return [forward(stage, generations_max, published_until_ms, one) for one in ranges]

"""Two brokers as two clusters, their stored entries, and copying between them without Spark."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import httpx

from magnetar.client import EARLIEST, LATEST, AsyncClient, Entry, MessageId
from magnetar.client.inline import InlineClient
from magnetar.pipelines.copy.assignment import Assignment, Outcome
from magnetar.pipelines.copy.copier import copy
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import SOURCE_POSITION
from magnetar.testing import TestBroker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import compress
from magnetar.wire.metadata import build_blob, messages_in, split_blob

SUBSCRIPTION = "magnetar.repl.b"  # which a client may create, unlike a broker's
SLICE_S, LINGER_S = 5.0, 0.05
_numbers = itertools.count()


def new_topic() -> str:
    return f"persistent://public/default/t{next(_numbers)}"


def endpoint(name: str, broker: TestBroker) -> ClusterEndpoint:
    return ClusterEndpoint(name, broker.service_url, broker.http_url)


def ask(broker: TestBroker, method: str, path: str, body: object = None) -> Any:
    headers = {"Content-Type": "application/json"}
    url = f"{broker.http_url}/admin/v2/{path}"
    answer = httpx.request(method, url, json=body, headers=headers, timeout=10, trust_env=False)
    assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
    return answer.json() if answer.content else None


def path_of(topic: str) -> str:
    return topic.replace("://", "/")


def create(broker: TestBroker, topic: str) -> str:
    ask(broker, "PUT", path_of(topic))
    return topic


# -- entries


def message(number: int, payload: bytes | None = None, **fields: Any) -> bytes:
    metadata = pb.MessageMetadata(producer_name="me", sequence_id=number, publish_time=1000 + number, **fields)
    return build_blob(metadata, b"%d" % number if payload is None else payload)


def batch(first: int, count: int, compression: pb.CompressionType.ValueType = pb.NONE, **fields: Any) -> bytes:
    numbers = range(first, first + count)
    singles = [
        (pb.SingleMessageMetadata(payload_size=0, sequence_id=number, partition_key=f"k{number}"), b"%d" % number)
        for number in numbers
    ]
    payload = build_batch(singles)
    metadata = pb.MessageMetadata(
        producer_name="me",
        sequence_id=first,
        highest_sequence_id=first + count - 1,
        publish_time=1000 + first,
        num_messages_in_batch=count,
        compression=compression,
        uncompressed_size=len(payload),
        **fields,
    )
    return build_blob(metadata, compress(compression, payload))


def store(broker: TestBroker | str, topic: str, blobs: Iterable[bytes], schema: pb.Schema | None = None) -> bytes:
    """Publishes entries unchanged; returns the schema version, if any."""

    async def send(client: AsyncClient) -> bytes:
        async with await client.entry_producer(topic, schema=schema) as producer:
            for number, blob in enumerate(blobs, producer.last_sequence_id + 1):
                await producer.send(blob, sequence_id=number, highest_sequence_id=number, messages=messages_in(blob))
            await producer.flush()
            return producer.schema_version or b""

    with InlineClient(broker if isinstance(broker, str) else broker.service_url) as inline:
        return inline.run(send(inline.client))


def stored(broker: TestBroker | str, topic: str) -> list[Entry]:
    async def read(client: AsyncClient) -> list[Entry]:
        entries: list[Entry] = []
        async with await client.entries(topic, EARLIEST, LATEST) as reader:
            while some := await reader.next():
                entries += some
        return entries

    with InlineClient(broker if isinstance(broker, str) else broker.service_url) as inline:
        return inline.run(read(inline.client))


def position_of(broker: TestBroker | str, topic: str, subscription: str = SUBSCRIPTION) -> MessageId:
    async def ask_for(client: AsyncClient) -> MessageId:
        async with await client.cursor(topic, subscription, initial_position=EARLIEST) as cursor:
            position = await cursor.position()
            await cursor.close_and_wait()
            return position

    with InlineClient(broker if isinstance(broker, str) else broker.service_url) as inline:
        return inline.run(ask_for(inline.client))


def payloads(entries: Sequence[Entry]) -> list[bytes]:
    return [split_blob(entry.blob)[1] for entry in entries]


def metadata_of(entry: Entry) -> pb.MessageMetadata:
    return split_blob(entry.blob)[0]


def source_positions(entries: Sequence[Entry]) -> list[str]:
    return [pair.value for entry in entries for pair in metadata_of(entry).properties if pair.key == SOURCE_POSITION]


def positions(entries: Sequence[Entry]) -> list[str]:
    return [f"{entry.id.ledger_id}:{entry.id.entry_id}" for entry in entries]


# -- copying


def assignment(a: TestBroker, b: TestBroker, topic: str, **fields: Any) -> Assignment:
    given = {"target": topic, "subscription": SUBSCRIPTION, **fields}
    return Assignment(endpoint("a", a), endpoint("b", b), topic, **given)


def copy_one(assigned: Assignment, slice_s: float = SLICE_S, linger_s: float = LINGER_S) -> Outcome:
    [outcome] = copy([assigned], slice_s, linger_s)
    return outcome

"""Messages of every kind the official client can publish, and the properties a copy must keep."""

from __future__ import annotations

import json
from typing import Any

import pulsar
from clusters import Cluster, path_of
from pulsar.schema import Integer, Record, String

from magnetar.replication.model import SOURCE_POSITION

MESSAGES = 202
_LARGE = bytes(range(256)) * 45_000  # 11.5 MB: three entries of the default size

_COMPRESSIONS = (
    pulsar.CompressionType.NONE,
    pulsar.CompressionType.LZ4,
    pulsar.CompressionType.ZLib,
    pulsar.CompressionType.ZSTD,
    pulsar.CompressionType.SNAPPY,
)


class Order(Record):
    number = Integer()
    text = String()


class OrderWithPlace(Record):
    number = Integer()
    text = String()
    place = String(required_default=True)


ORDERS = [Order(number=number, text=f"order {number}") for number in range(5)]
PLACED_ORDERS = [OrderWithPlace(number=number, text="placed", place="here") for number in range(5, 10)]


def publish_all_kinds(cluster: Cluster, topic: str) -> None:
    """Publishes plain and batched messages with every compression, keys, properties and times; one in chunks, one
    empty.
    """
    for compression in _COMPRESSIONS:
        for batched in (False, True):
            with cluster.producer(topic, compression_type=compression, batching_enabled=batched) as producer:
                for number in range(20):
                    producer.send_async(
                        f"{compression} {batched} {number}".encode() * 20,
                        None,
                        properties={"number": str(number), "compression": str(compression)},
                        partition_key=f"key {number % 3}",
                        ordering_key=f"order {number % 2}" if batched else None,
                        event_timestamp=1000 + number,
                    )
    cluster.renew_client()
    with cluster.producer(topic, chunking_enabled=True) as producer:
        producer.send(_LARGE, properties={"is": "large"})
    with cluster.producer(topic) as producer:
        producer.send(b"", properties={"is": "empty"})


def publish_orders(cluster: Cluster, topic: str, kind: Any) -> None:
    """Publishes two versions of a schema, the second in a batch."""
    for schema, batched, records in ((kind(Order), False, ORDERS), (kind(OrderWithPlace), True, PLACED_ORDERS)):
        with cluster.producer(topic, schema=schema, batching_enabled=batched) as producer:
            for record in records:
                producer.send_async(record, None)


def check_orders(source: Cluster, target: Cluster, topic: str, kind: Any) -> None:
    path = path_of(topic).replace("persistent/", "schemas/", 1) + "/schemas"
    there, here = (cluster.ask("GET", path)["getSchemaResponses"] for cluster in (target, source))
    assert len(there) == 2
    assert [_schema(one) for one in there] == [_schema(one) for one in here]
    copies = target.read(topic, schema=kind(Order))
    assert [(copy.value().number, copy.value().text) for copy in copies] == [
        (record.number, record.text) for record in ORDERS + PLACED_ORDERS
    ]


def _schema(found: dict[str, Any]) -> tuple[int, str, Any]:
    return found["version"], found["type"], json.loads(found["data"])


def check_copies(source: Cluster, target: Cluster, topic: str) -> None:
    originals, copies = source.read(topic), target.read(topic)
    assert [_seen(copy) for copy in copies] == [_seen(original) for original in originals]
    assert [copy.message_id().batch_index() for copy in copies] == [
        original.message_id().batch_index() for original in originals
    ], "batches stay batches"
    for original, copy in zip(originals, copies, strict=True):
        id_ = original.message_id()
        if id_.batch_index() < 0 and len(original.data()) < len(_LARGE):
            assert copy.properties()[SOURCE_POSITION] == f"{id_.ledger_id()}:{id_.entry_id()}"


def _seen(message: pulsar.Message) -> tuple[Any, ...]:
    """Every field a consumer receives, except the source position added to a copy."""
    properties = {key: value for key, value in message.properties().items() if key != SOURCE_POSITION}
    return (
        message.data(),
        message.partition_key(),
        message.ordering_key(),
        properties,
        message.event_timestamp(),
        message.publish_timestamp(),
    )

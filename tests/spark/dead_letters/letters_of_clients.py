"""Dead letters as the clients, brokers and frameworks in use write them, in one namespace of a broker."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import httpx
import pulsar
from pulsar.schema import AvroSchema, Double, JsonSchema, Record, String

from magnetar.client import EARLIEST, AsyncClient, Client, MessageId
from magnetar.client.inline import InlineClient
from magnetar.deadletter.properties import FailureRecord
from magnetar.deadletter.stamp import Raised, stamped
from magnetar.testing import TestBroker

ORIGIN = "persistent://public/default"
FAILED_MS = 1_700_000_000_000


class Order(Record):
    id = String()
    amount = Double()


JAVA = {
    "REAL_TOPIC": f"{ORIGIN}/java-partition-2",
    "REAL_SUBSCRIPTION": "billing",
    "ORIGIN_MESSAGE_ID": "12:34:2",
    "RECONSUMETIMES": "3",
    "DELAY_TIME": "1000",
}
CPP = {"REAL_TOPIC": f"{ORIGIN}/cpp", "ORIGIN_MESSAGE_ID": "(12,35,-1,4)"}
GO = {"REAL_TOPIC": f"{ORIGIN}/go", "ORIGIN_MESSAGE_IDY_TIME": "12:36:-1", "RECONSUMETIMES": "2"}
SPRING = {**JAVA, "exception-thrown-cause": "java.lang.IllegalStateException: no price for item 4711"}


def failed(topic: str, reason: str, error: str = "", raised: Raised | None = None, **before: str) -> dict[str, str]:
    record = FailureRecord(
        topic=f"{ORIGIN}/{topic}",
        subscription="s",
        reason=reason,
        count=4,
        first=FAILED_MS,
        last=FAILED_MS + 5000,
        consumer="worker-1",
        error=error,
    )
    return stamped(before, record, "7:8:-1", "nacked 4 times", raised)


def publish(client: Client, topic: str, *letters: tuple[bytes, dict[str, str]], batching: bool = True) -> None:
    with client.producer(topic, batching=batching) as producer:
        sent = [
            producer.send_async(value, key=f"k{number}", properties=properties)
            for number, (value, properties) in enumerate(letters)
        ]
        for each in sent:
            each.result()


def acknowledge(running: TestBroker, topic: str, subscription: str, entries: Sequence[int]) -> None:
    """On a durable subscription, which is created before the first message."""

    async def acknowledge(client: AsyncClient) -> None:
        async with await client.cursor(topic, subscription, initial_position=EARLIEST) as cursor:
            ledger = (await cursor.position()).ledger_id
            await cursor.acknowledge_each([MessageId(ledger, entry) for entry in entries])

    with InlineClient(running.service_url) as client:
        client.run(acknowledge(client.client))


def rest(running: TestBroker, method: str, path: str, body: object = None) -> None:
    url = f"{running.http_url}/admin/v2/{path}"
    httpx.request(method, url, json=body).raise_for_status()


def topic_path(topic: str, *words: str) -> str:
    return "/".join(("persistent/public/default", topic, *words))


def publish_by_policies(running: TestBroker) -> None:
    """Two messages with each schema that fail on a subscription with the broker's policy, and two by the client's."""
    client = pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        schemas = {"json": JsonSchema(Order), "avro": AvroSchema(Order), "custom": JsonSchema(Order)}
        for topic, schema in schemas.items():
            letters = "graveyard" if topic == "custom" else f"{topic}-s-DLQ"
            rest(running, "PUT", topic_path(topic))
            rest(running, "PUT", topic_path(topic, "subscription", "s"))
            policy = {"maxRedeliverCount": 1, "deadLetterTopic": f"{ORIGIN}/{letters}"}
            rest(running, "POST", topic_path(topic, "subscription/s/deadLetterPolicy"), policy)
            producer = client.create_producer(topic, schema=schema, batching_enabled=True)
            for number in range(2):
                producer.send_async(Order(id=f"o{number}", amount=number + 0.5), None, partition_key=f"k{number}")
            producer.flush()
            consumer = client.subscribe(
                topic, "s", consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=10
            )
            for _ in range(4):
                consumer.negative_acknowledge(consumer.receive(10_000))
            wait_for(running, letters, 2)
        publish_by_client_policy(running, client)
    finally:
        client.close()


def publish_by_client_policy(running: TestBroker, client: pulsar.Client) -> None:
    rest(running, "PUT", topic_path("python"))
    policy = pulsar.ConsumerDeadLetterPolicy(1, "persistent://public/default/python-s-DLQ", "kept")
    consumer = client.subscribe(
        "python",
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=10,
        dead_letter_policy=policy,
    )
    producer = client.create_producer("python")
    producer.send(json.dumps({"id": "p", "amount": 1}).encode())
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(10_000))
    wait_for(running, "python-s-DLQ", 1)


def wait_for(running: TestBroker, topic: str, count: int) -> None:
    url = f"{running.http_url}/admin/v2/{topic_path(topic, 'internalStats')}"
    end = time.monotonic() + 30
    while True:
        response = httpx.get(url)
        if response.is_success and response.json()["numberOfEntries"] >= count:
            return
        assert time.monotonic() < end, f"{topic} does not get {count} dead letters"
        time.sleep(0.02)

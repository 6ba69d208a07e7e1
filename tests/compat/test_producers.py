"""Producers of the official Python client: access modes, names, batches, chunks, compression, encryption."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pulsar
import pytest

from magnetar.testing import TestBroker
from tests.compat.stage import (
    connect,
    consume,
    data_of,
    eventually,
    numbered,
    send_batch,
    serving,
    take,
    topic_in,
)

Mode = pulsar.ProducerAccessMode


# -- names


def test_generated_names_are_unique(client: pulsar.Client, topic: str) -> None:
    names = {client.create_producer(topic).producer_name() for _ in range(3)}
    assert len(names) == 3
    assert "" not in names


def test_a_given_name_is_kept_and_rejected_for_a_second_producer(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, producer_name="ann")
    assert producer.producer_name() == "ann"
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="ann")
    producer.close()
    assert client.create_producer(topic, producer_name="ann").producer_name() == "ann"


def test_generated_names_are_never_reused(tmp_path: Path, topic: str) -> None:
    names = []
    for _ in range(2):
        with serving(tmp_path) as (_, client):
            names.append(client.create_producer(topic).producer_name())
    assert names[0] != names[1]


# -- access modes


def test_shared_producers_write_side_by_side(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    for producer in [client.create_producer(topic) for _ in range(2)]:
        producer.send(producer.producer_name().encode())
    assert len(set(consume(consumer, 2))) == 2


def test_an_exclusive_producer_blocks_all_others(client: pulsar.Client, topic: str) -> None:
    exclusive = client.create_producer(topic, access_mode=Mode.Exclusive)
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=Mode.Exclusive)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic)
    exclusive.send(b"still mine")
    exclusive.close()
    client.create_producer(topic).send(b"free again")


def test_an_exclusive_producer_does_not_disconnect_others(client: pulsar.Client, topic: str) -> None:
    shared = client.create_producer(topic)
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=Mode.Exclusive)
    shared.send(b"undisturbed")


def test_waiting_for_exclusive_access_ends_when_the_holder_leaves(shared_broker: TestBroker, topic: str) -> None:
    client, second = connect(shared_broker), connect(shared_broker)
    holder = client.create_producer(topic, access_mode=Mode.Exclusive)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(second.create_producer, topic, access_mode=Mode.WaitForExclusive)
        producers = topic_in(shared_broker, topic).producers
        eventually(lambda: len(producers.waiting) == 1)
        assert not waiting.done()
        holder.close()
        waiting.result(10).send(b"my turn")
    client.close()
    second.close()


def test_fencing_ends_the_former_exclusive_producer(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    former = client.create_producer(topic, access_mode=Mode.ExclusiveWithFencing)
    former.send(b"before")
    successor = client.create_producer(topic, access_mode=Mode.ExclusiveWithFencing)
    with pytest.raises((pulsar.ProducerFenced, pulsar.AlreadyClosed)):
        former.send(b"too late")
    successor.send(b"after")
    assert consume(consumer, 2) == [b"before", b"after"]


def test_fencing_also_ends_a_shared_producer(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    shared = client.create_producer(topic, send_timeout_millis=300)
    successor = client.create_producer(topic, access_mode=Mode.ExclusiveWithFencing)
    with pytest.raises(pulsar.PulsarException):
        shared.send(b"kept out")
    successor.send(b"mine")
    assert consume(consumer, 1) == [b"mine"]


def test_fencing_survives_a_restart(tmp_path: Path, topic: str) -> None:
    """The epoch is durable and keeps counting, so that a producer fenced before the restart stays rejected."""
    epochs = []
    for _ in range(2):
        with serving(tmp_path) as (running, client):
            client.create_producer(topic, access_mode=Mode.ExclusiveWithFencing).send(b"x")
            epochs.append(topic_in(running, topic).epoch)
    assert epochs == [0, 1]


# -- fields of a message


def test_all_fields_of_a_message_arrive(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, producer_name="ann")
    message_id = producer.send(
        "päyload".encode(),
        properties={"colour": "grün", "empty": ""},
        partition_key="k",
        ordering_key="o",
        event_timestamp=1_234_567,
    )
    message = consumer.receive(10_000)
    assert message.data().decode() == "päyload"
    assert message.properties() == {"colour": "grün", "empty": ""}
    assert (message.partition_key(), message.ordering_key()) == ("k", "o")
    assert message.event_timestamp() == 1_234_567
    assert message.producer_name() == "ann"
    assert message.topic_name() == f"persistent://public/default/{topic}"
    assert str(message.message_id()) == str(message_id)
    assert message.publish_timestamp() > 0


def test_an_empty_message_arrives(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"")
    assert consume(consumer, 1) == [b""]


def test_message_ids_increase(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    ids = [producer.send(b"x") for _ in range(5)]
    assert ids == sorted(ids)
    assert [message_id.entry_id() for message_id in ids] == [0, 1, 2, 3, 4]


# -- sizes


def test_a_message_over_the_limit_is_rejected(topic: str) -> None:
    with serving(maxMessageSize=10_000) as (_, client):
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        with pytest.raises(pulsar.MessageTooBig):
            producer.send(bytes(10_001))
        producer.send(bytes(9_000))
        assert consume(consumer, 1) == [bytes(9_000)]


def test_the_largest_message_the_client_allows_arrives(topic: str) -> None:
    """Clients do not count the frame around payload and metadata, so an entry may slightly exceed the limit."""
    with serving(maxMessageSize=10_000) as (_, client):
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic)
        for size in range(10_000, 9_000, -1):
            with contextlib.suppress(pulsar.MessageTooBig):
                producer.send(bytes(size))
                break
        assert [len(payload) for payload in consume(consumer, 1)] == [size]


def test_a_message_of_megabytes_arrives(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    payload = os.urandom(5 * 1024 * 1024 - 1024)
    client.create_producer(topic).send(payload)
    assert consume(consumer, 1) == [payload]


def test_a_large_message_is_sent_in_chunks(topic: str) -> None:
    payload = os.urandom(100_000)
    with serving(maxMessageSize=10_000) as (running, client):
        consumer = client.subscribe(topic, "s")
        producer = client.create_producer(topic, chunking_enabled=True)
        producer.send(payload)
        producer.send(b"small")
        assert consume(consumer, 2) == [payload, b"small"]
        assert topic_in(running, topic).log.last > 10


def test_a_reconnected_consumer_receives_all_chunks_again(topic: str) -> None:
    payload = os.urandom(50_000)
    with serving(maxMessageSize=10_000) as (_, client):
        consumer = client.subscribe(topic, "s")
        client.create_producer(topic, chunking_enabled=True).send(payload)
        assert data_of(take(consumer, 1)) == [payload]
        consumer.close()
        assert consume(client.subscribe(topic, "s"), 1) == [payload]


def test_acknowledging_a_chunked_message_acknowledges_all_chunks(topic: str) -> None:
    with serving(maxMessageSize=10_000) as (running, client):
        consumer = client.subscribe(topic, "s")
        client.create_producer(topic, chunking_enabled=True).send(os.urandom(50_000))
        consume(consumer, 1)
        consumer.close()
        assert topic_in(running, topic).cursors[0].backlog == 0


# -- batches


def test_a_batch_is_one_entry(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    ids = send_batch(producer, numbered(10))
    messages = take(consumer, 10)
    assert data_of(messages) == numbered(10)
    assert [m.message_id().batch_index() for m in messages] == list(range(10))
    assert {message_id.entry_id() for message_id in ids} == {0}
    topic_seen = topic_in(shared_broker, topic)
    assert topic_seen.log.last == 0
    assert topic_seen.messages_in == 10


def test_key_based_batches_have_one_key_each(shared_broker: TestBroker, client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=1000,
        batching_type=pulsar.BatchingType.KeyBased,
    )
    for index in range(9):
        producer.send_async(str(index).encode(), lambda *_: None, partition_key=f"k{index % 3}")
    producer.flush()
    entry_of = {m.data(): (m.partition_key(), m.message_id().entry_id()) for m in take(consumer, 9)}
    assert len(set(entry_of.values())) == 3
    assert {key for key, _ in entry_of.values()} == {"k0", "k1", "k2"}
    assert topic_in(shared_broker, topic).log.last == 2


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize("compression", ["LZ4", "ZLib", "ZSTD", "SNAPPY"])
def test_compressed_messages_arrive(client: pulsar.Client, topic: str, compression: str, batched: bool) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, compression_type=getattr(pulsar.CompressionType, compression), batching_enabled=batched
    )
    payloads = [bytes([65 + index]) * 10_000 for index in range(4)]
    send_batch(producer, payloads)
    assert consume(consumer, 4) == payloads


# -- encryption: the broker forwards payloads that it cannot read


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> pulsar.CryptoKeyReader:
    folder = tmp_path_factory.mktemp("keys")
    private, public = folder / "private.pem", folder / "public.pem"
    commands = [
        ["openssl", "genrsa", "-out", str(private), "2048"],
        ["openssl", "rsa", "-in", str(private), "-pubout", "-out", str(public)],
    ]
    try:
        for command in commands:
            subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return pulsar.CryptoKeyReader(str(public), str(private))


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
def test_encrypted_messages_arrive(
    shared_broker: TestBroker, client: pulsar.Client, topic: str, keys: pulsar.CryptoKeyReader, batched: bool
) -> None:
    consumer = client.subscribe(topic, "s", crypto_key_reader=keys)
    producer = client.create_producer(
        topic,
        encryption_key="app",
        crypto_key_reader=keys,
        batching_enabled=batched,
        batching_max_publish_delay_ms=1000,
    )
    payloads = numbered(5, "secret")
    send_batch(producer, payloads)
    assert consume(consumer, 5) == payloads
    seen = topic_in(shared_broker, topic)
    stored = shared_broker.run(lambda: seen.log.read(0, 10, 1 << 20))
    assert stored
    assert all(b"secret" not in entry[3] for entry in stored)


def test_encrypted_and_compressed_chunks_arrive(topic: str, keys: pulsar.CryptoKeyReader) -> None:
    payload = os.urandom(30_000)
    with serving(maxMessageSize=10_000) as (_, client):
        consumer = client.subscribe(topic, "s", crypto_key_reader=keys)
        producer = client.create_producer(
            topic,
            encryption_key="app",
            crypto_key_reader=keys,
            chunking_enabled=True,
            compression_type=pulsar.CompressionType.ZSTD,
        )
        producer.send(payload)
        assert consume(consumer, 1) == [payload]


def test_without_the_key_the_bytes_arrive_unchanged(
    client: pulsar.Client, topic: str, keys: pulsar.CryptoKeyReader
) -> None:
    consumer = client.subscribe(topic, "s", crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME)
    client.create_producer(topic, encryption_key="app", crypto_key_reader=keys).send(b"secret")
    message = consumer.receive(10_000)
    assert message.data() != b"secret"
    context = message.encryption_context()
    assert context is not None
    assert context.is_decryption_failed()
    used_keys = context.keys()
    assert [key.key for key in used_keys] == ["app"]


# -- concurrency


def test_many_producers_in_many_threads(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    start = threading.Barrier(4)

    def publish(name: str) -> None:
        producer = client.create_producer(topic)
        start.wait()
        for payload in numbered(50, name):
            producer.send(payload)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(publish, "abcd"))
    got = consume(consumer, 200)
    for name in "abcd":
        assert [payload for payload in got if payload.startswith(name.encode())] == numbered(50, name)

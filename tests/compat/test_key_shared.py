"""Key_Shared: one owner per key at a time, and the order of each key through changes of its owner."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict

import pulsar
import pytest

from magnetar.testing import TestBroker
from magnetar.wire.metadata import sticky_hash
from tests.compat.stage import (
    PATIENCE_MS,
    connect,
    consume,
    data_of,
    nothing_comes,
    serving,
    take,
    take_all,
)

KEY_SHARED = pulsar.ConsumerType.KeyShared
KEYS = [f"key-{index}" for index in range(30)]


def publish_keyed(producer: pulsar.Producer, rounds: int, keys: list[str] = KEYS) -> None:
    for number in range(rounds):
        for key in keys:
            producer.send_async(str(number).encode(), lambda *_: None, partition_key=key)
    producer.flush()


def numbers_by_key(messages: list[pulsar.Message]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for message in messages:
        numbers[message.partition_key()].append(int(message.data()))
    return numbers


def sticky(*ranges: tuple[int, int]) -> pulsar.ConsumerKeySharedPolicy:
    return pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=list(ranges))


@pytest.mark.parametrize("consistent_hashing", [True, False])
def test_every_key_has_one_consumer_and_its_order(topic: str, consistent_hashing: bool) -> None:
    with serving(subscriptionKeySharedUseConsistentHashing=consistent_hashing) as (_, client):
        consumers = [client.subscribe(topic, "s", KEY_SHARED) for _ in range(3)]
        publish_keyed(client.create_producer(topic), 5)
        taken = [numbers_by_key(messages) for messages in take_all(consumers)]
        assert all(taken), "a consumer owns no key"
        assert sorted(key for numbers in taken for key in numbers) == sorted(KEYS)
        assert all(order == [0, 1, 2, 3, 4] for numbers in taken for order in numbers.values())


def test_the_ordering_key_wins_over_the_partition_key(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", KEY_SHARED) for _ in range(3)]
    producer = client.create_producer(topic)
    for key in KEYS:
        producer.send(b"x", partition_key=key, ordering_key="same")
    assert sorted(len(messages) for messages in take_all(consumers)) == [0, 0, len(KEYS)]


def test_messages_without_a_key_are_distributed(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", KEY_SHARED) for _ in range(2)]
    producer = client.create_producer(topic)
    for _ in range(40):
        producer.send(b"x")
    taken = take_all(consumers)
    assert sum(map(len, taken)) == 40
    assert all(taken)


def test_a_batch_of_one_key_goes_to_the_owner_of_the_key(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", KEY_SHARED) for _ in range(3)]
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=1000,
        batching_type=pulsar.BatchingType.KeyBased,
    )
    publish_keyed(producer, 3)
    taken = [numbers_by_key(messages) for messages in take_all(consumers)]
    assert sorted(key for numbers in taken for key in numbers) == sorted(KEYS)
    assert all(order == [0, 1, 2] for numbers in taken for order in numbers.values())


# -- fixed ranges


def test_consumers_choose_their_hash_ranges(client: pulsar.Client, topic: str) -> None:
    ranges = [(0, 29_999), (30_000, 65_535)]
    consumers = [client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=sticky(chosen)) for chosen in ranges]
    publish_keyed(client.create_producer(topic), 1)
    for (start, end), messages in zip(ranges, take_all(consumers), strict=True):
        expected = {key for key in KEYS if start <= sticky_hash(key.encode()) <= end}
        assert expected
        assert {message.partition_key() for message in messages} == expected


def test_a_consumer_may_have_several_ranges(client: pulsar.Client, topic: str) -> None:
    outer = client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=sticky((0, 9_999), (50_000, 65_535)))
    inner = client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=sticky((10_000, 49_999)))
    publish_keyed(client.create_producer(topic), 1)
    got_outer, got_inner = ({message.partition_key() for message in got} for got in take_all([outer, inner]))
    assert got_inner == {key for key in KEYS if 10_000 <= sticky_hash(key.encode()) < 50_000}
    assert got_outer == set(KEYS) - got_inner


def test_overlapping_ranges_are_rejected(client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=sticky((0, 100)))
    with pytest.raises(pulsar.ConsumerAssignError):
        client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=sticky((100, 200)))
    client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=sticky((101, 200)))


def test_fixed_and_automatic_ranges_do_not_mix(client: pulsar.Client, topic: str) -> None:
    client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=sticky((0, 100)))
    with pytest.raises(pulsar.ConsumerAssignError):
        client.subscribe(topic, "s", KEY_SHARED)


def test_an_unassigned_hash_waits_for_an_owner(client: pulsar.Client, topic: str) -> None:
    low = client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=sticky((0, 32_767)))
    publish_keyed(client.create_producer(topic), 2)
    got_low = take_all([low])[0]
    high = client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=sticky((32_768, 65_535)))
    got_high = take_all([high])[0]
    assert len(got_low) + len(got_high) == 2 * len(KEYS)
    assert all(order == [0, 1] for order in numbers_by_key(got_high).values())


# -- consumers join and leave


def test_a_key_held_by_its_former_owner_waits(client: pulsar.Client, topic: str) -> None:
    """The new owner receives nothing of a key until the former owner's messages are acknowledged."""
    first = client.subscribe(topic, "s", KEY_SHARED)
    producer = client.create_producer(topic)
    publish_keyed(producer, 1)
    held = take(first, len(KEYS))
    second = client.subscribe(topic, "s", KEY_SHARED)
    publish_keyed(producer, 1)
    stayed = {message.partition_key() for message in take_all([first])[0]}
    assert nothing_comes(second)
    assert 0 < len(stayed) < len(KEYS)
    for message in held:
        first.acknowledge(message)
    moved = take(second, len(KEYS) - len(stayed))
    assert {message.partition_key() for message in moved} == set(KEYS) - stayed


def test_out_of_order_delivery_does_not_wait(client: pulsar.Client, topic: str) -> None:
    def subscribe() -> pulsar.Consumer:
        policy = pulsar.ConsumerKeySharedPolicy(allow_out_of_order_delivery=True)
        return client.subscribe(topic, "s", KEY_SHARED, key_shared_policy=policy)

    first = subscribe()
    producer = client.create_producer(topic)
    publish_keyed(producer, 1)
    take(first, len(KEYS))
    second = subscribe()
    publish_keyed(producer, 1)
    got = take_all([first, second])
    assert len(got[1]) > 0
    assert len(got[0]) + len(got[1]) == len(KEYS)


def test_messages_of_a_leaving_consumer_are_delivered_first_and_in_order(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s", KEY_SHARED)
    producer = client.create_producer(topic)
    publish_keyed(producer, 3)
    take(first, 10)
    second = client.subscribe(topic, "s", KEY_SHARED)
    publish_keyed(producer, 1)
    first.close()
    orders = numbers_by_key(take(second, 4 * len(KEYS)))
    assert all(order == [0, 1, 2, 0] for order in orders.values())


def test_a_nacked_message_holds_back_later_ones_of_its_key(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", KEY_SHARED)
    producer = client.create_producer(topic)
    publish_keyed(producer, 3, ["k"])
    take(consumer, 3)
    consumer.redeliver_unacknowledged_messages()
    publish_keyed(producer, 1, ["k"])
    assert data_of(take(consumer, 4)) == [b"0", b"1", b"2", b"0"]


def test_a_full_consumer_does_not_block_the_keys_of_others(client: pulsar.Client, topic: str) -> None:
    full = client.subscribe(topic, "s", KEY_SHARED, receiver_queue_size=1)
    other = client.subscribe(topic, "s", KEY_SHARED)
    publish_keyed(client.create_producer(topic), 10)
    got_other = take_all([other])[0]
    keys = {message.partition_key() for message in got_other}
    assert keys
    assert len(got_other) == 10 * len(keys)
    rest = numbers_by_key(take(full, 10 * (len(KEYS) - len(keys))))
    assert all(order == list(range(10)) for order in rest.values())


class Worker(threading.Thread):
    """A consumer with its own connection that acknowledges every message until told to leave."""

    def __init__(self, running: TestBroker, topic: str, seen: list[tuple[str, int]], lock: threading.Lock) -> None:
        super().__init__()
        self._client = connect(running)
        self._consumer = self._client.subscribe(topic, "s", KEY_SHARED, receiver_queue_size=10)
        self._seen, self._lock = seen, lock
        self._leaving = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._leaving.is_set():
            try:
                message = self._consumer.receive(20)
            except pulsar.Timeout:
                continue
            with self._lock:
                self._seen.append((message.partition_key(), int(message.data())))
            self._consumer.acknowledge(message)

    def leave(self) -> None:
        self._leaving.set()
        self.join()
        self._client.close()


def test_order_per_key_while_consumers_join_and_leave_under_load(topic: str) -> None:
    """A message may be redelivered when its consumer leaves, but never precede an earlier one of its key."""
    seen: list[tuple[str, int]] = []
    lock = threading.Lock()
    chance = random.Random(7)
    rounds = 60
    with serving() as (running, client):
        workers = [Worker(running, topic, seen, lock) for _ in range(3)]
        producer = client.create_producer(topic, max_pending_messages=10_000)
        for number in range(rounds):
            for key in KEYS:
                producer.send_async(str(number).encode(), lambda *_: None, partition_key=key)
            if number % 5 == 4:
                producer.flush()
                if chance.random() < 0.5 and len(workers) > 1:
                    workers.pop(chance.randrange(len(workers))).leave()
                else:
                    workers.append(Worker(running, topic, seen, lock))
        producer.flush()
        wait_for(seen, lock, rounds * len(KEYS))
        for worker in workers:
            worker.leave()
    highest: dict[str, int] = {}
    for key, number in seen:
        assert number <= highest.get(key, -1) + 1, f"{key}: {number} came after {highest.get(key)}"
        highest[key] = max(highest.get(key, -1), number)
    assert highest == dict.fromkeys(KEYS, rounds - 1)


def wait_for(seen: list[tuple[str, int]], lock: threading.Lock, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while True:
        with lock:
            if len(set(seen)) == count:
                return
            assert time.monotonic() < deadline, f"{len(set(seen))} of {count} came"
        time.sleep(0.02)


def test_a_new_key_owner_continues_after_a_restart_of_all_consumers(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", KEY_SHARED)
    publish_keyed(client.create_producer(topic), 2, ["a", "b"])
    messages = take(consumer, 4)
    consumer.acknowledge(messages[1])  # b0, a gap after a0
    consumer.close()
    assert consume(client.subscribe(topic, "s", KEY_SHARED), 3) == [b"0", b"1", b"1"]

"""Damaged data on a real disk: what operators and clients see, and what they can do."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

import magnetar.testing
from magnetar.broker import keys
from magnetar.storage.api import Space
from magnetar.storage.rocks import RocksStorage
from magnetar.testing import TestBroker

NAMESPACE = "persistent/public/default"
FULL = "persistent://public/default/"
GARBAGE = b"\xc1\xff garbage"
COUNT = 200


def overwrite(folder: Path, change: Callable[[RocksStorage], tuple[bytes, bytes]]) -> None:
    storage = RocksStorage(folder)
    batch = storage.batch()
    batch.put(*change(storage))
    storage.write(batch)
    storage.sync()
    storage.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Topics a and b with messages, and a subscription of each, on disk."""
    data = tmp_path / "data"
    with magnetar.testing.broker(data) as running:
        client = connected(running)
        for name in "ab":
            client.subscribe(name, "s", initial_position=pulsar.InitialPosition.Earliest).close()
            producer = client.create_producer(name, batching_enabled=False)
            for number in range(COUNT):
                producer.send_async(payload(name, number), lambda result, message_id: None)
            producer.flush()
        client.close()
    return data


def payload(topic: str, number: int) -> bytes:
    """The number, and bytes that cannot be compressed: they are in the table as they are."""
    return f"{number:08}".encode() + random.Random(f"{topic}{number}").randbytes(2000)


def connected(running: TestBroker) -> pulsar.Client:
    return pulsar.Client(
        running.service_url, operation_timeout_seconds=10, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )


@pytest.fixture
def damaged(folder: Path) -> Iterator[TestBroker]:
    """The records of topic a, and of the subscription of b, cannot be read."""
    overwrite(folder, lambda storage: (keys.named(keys.TOPIC, FULL + "a"), GARBAGE))
    overwrite(folder, lambda storage: (first_key(storage, keys.SUBSCRIPTION, b"\x00" * 8, 1), GARBAGE))
    with magnetar.testing.broker(folder) as running:
        yield running


def first_key(storage: RocksStorage, kind: bytes, rest: bytes, index: int) -> bytes:
    return storage.scan(Space.STATE, kind, keys.after(kind))[index][0]


def rest(running: TestBroker, method: str, path: str, **query: Any) -> httpx.Response:
    return httpx.request(method, f"{running.http_url}/admin/v2/{path}", params=query, timeout=30)


def test_operators_see_what_is_damaged_and_clients_why(damaged: TestBroker) -> None:
    client = connected(damaged)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("a")
    with pytest.raises(pulsar.PulsarException):
        client.subscribe("b", "s")
    other = client.subscribe("b", "other", initial_position=pulsar.InitialPosition.Earliest)
    assert other.receive(30_000).data().startswith(b"00000000")
    listed = rest(damaged, "GET", "brokers/damaged").json()
    assert [(one["kind"], one["name"], one["subscription"]) for one in listed["damaged"]] == [
        ("topic", FULL + "a", ""),
        ("subscription", FULL + "b", "s"),
    ]
    assert all("cannot be decoded" in one["reason"] for one in listed["damaged"])
    reply = rest(damaged, "GET", f"{NAMESPACE}/a/stats")
    assert reply.status_code == 500 and "a is damaged: its record cannot be decoded" in reply.json()["reason"]
    stats = rest(damaged, "GET", f"{NAMESPACE}/b/stats").json()
    assert "cannot be decoded" in stats["subscriptions"]["s"]["damaged"]
    assert "damaged" not in stats["subscriptions"]["other"]
    assert rest(damaged, "GET", f"{NAMESPACE}/b/subscriptions").json() == ["other", "s"]
    metrics = httpx.get(f"{damaged.http_url}/metrics/").text
    assert 'magnetar_damaged{cluster="standalone",kind="topic"} 1\n' in metrics
    assert 'magnetar_damaged{cluster="standalone",kind="schema"} 0\n' in metrics
    assert rest(damaged, "GET", "brokers/health").status_code == 200, "a warning, not a failure"
    client.close()


def test_the_command_line_lists_and_skips(damaged: TestBroker) -> None:
    def magnetar_command(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "magnetar", *words, "--url", damaged.http_url]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    rest(damaged, "GET", f"{NAMESPACE}/b/stats")  # opens it
    listed = magnetar_command("brokers", "damaged")
    assert listed.returncode == 0 and f"s of {FULL}b" in listed.stdout and f"{FULL}a" in listed.stdout
    doctor = magnetar_command("doctor", "topics")
    assert doctor.returncode == 1 and "magnetar topics delete --force" in doctor.stdout
    skipped = magnetar_command("subscriptions", "skip-damaged", "b", "s")
    assert "starts over with the first message" in skipped.stdout, skipped.stderr
    assert "nothing to skip" in magnetar_command("topics", "skip-damaged", "b").stdout


def test_what_is_damaged_is_deleted_by_force(damaged: TestBroker) -> None:
    assert rest(damaged, "DELETE", f"{NAMESPACE}/a").status_code == 500
    assert rest(damaged, "DELETE", f"{NAMESPACE}/b/subscription/s").status_code == 500
    assert rest(damaged, "DELETE", f"{NAMESPACE}/b/subscription/s", force="true").status_code == 204
    assert rest(damaged, "DELETE", f"{NAMESPACE}/a", force="true").status_code == 204
    assert rest(damaged, "GET", "brokers/damaged").json() == {"damaged": [], "unlisted": 0}
    assert rest(damaged, "GET", NAMESPACE).json() == [FULL + "b"]


def test_a_namespace_with_damage_is_deleted_by_force(folder: Path) -> None:
    overwrite(folder, lambda storage: (keys.named(keys.TOPIC, FULL + "a"), GARBAGE))
    overwrite(folder, lambda storage: (keys.named(keys.NAMESPACE, "public/default"), GARBAGE))
    overwrite(folder, lambda storage: (keys.named(keys.TENANT, "public"), GARBAGE))
    settings = {"forceDeleteNamespaceAllowed": True, "forceDeleteTenantAllowed": True}
    with magnetar.testing.broker(folder, **settings) as running:
        assert rest(running, "DELETE", "namespaces/public/default", force="true").status_code == 204
        assert rest(running, "DELETE", "tenants/public", force="true").status_code == 204
        assert rest(running, "GET", "brokers/damaged").json()["damaged"] == []


def test_fault_unreadable_block_of_a_real_file_costs_its_messages_only(folder: Path) -> None:
    storage = RocksStorage(folder)
    storage.compact(Space.ENTRIES, b"", b"\xff" * 16)
    storage.close()
    flip(folder, payload("a", 100)[1000:1020])
    with magnetar.testing.broker(folder) as running:
        client = connected(running)
        consumers = {name: client.subscribe(name, "s") for name in "ab"}
        got = {name: read_on(consumer) for name, consumer in consumers.items()}
        whole = list(range(COUNT))
        assert got["b"] == whole, "the other topic is whole"
        bad = "a"
        assert 0 < len(got[bad]) <= 100 and got[bad] == whole[: len(got[bad])]
        stats = rest(running, "GET", f"{NAMESPACE}/{bad}/stats").json()
        assert "checksum" in stats["subscriptions"]["s"]["damaged"] and "checksum" in stats["damaged"]
        skipped = rest(running, "POST", f"{NAMESPACE}/{bad}/subscription/s/skipDamaged").json()[FULL + bad]
        assert skipped["entries"] > 0 and not skipped["isLeft"]
        rest_of_it = read_on(consumers[bad])
        assert got[bad] + rest_of_it == [
            n for n in whole if not len(got[bad]) <= n < len(got[bad]) + skipped["entries"]
        ]
        assert 100 not in rest_of_it and rest_of_it[-1] == COUNT - 1
        producer = client.create_producer(bad)
        producer.send(b"still served")
        assert consumers[bad].receive(30_000).data() == b"still served"
        assert running.run(lambda: running.server.broker.damage.has_blocks), "no compaction is started from now on"
        client.close()


def flip(folder: Path, text: bytes) -> None:
    """One byte of the first block with this text in any table."""
    for path in sorted(folder.glob("*.sst")):
        data = bytearray(path.read_bytes())
        at = data.find(text)
        if at >= 0:
            data[at] ^= 0x55
            path.write_bytes(data)
            return
    raise AssertionError("the text is in no table")


def read_on(consumer: pulsar.Consumer) -> list[int]:
    """Numbers of the messages until none comes."""
    numbers: list[int] = []
    while True:
        try:
            message = consumer.receive(3000)
        except pulsar.Timeout:
            return numbers
        consumer.acknowledge(message)
        numbers.append(int(message.data()[:8]))


@pytest.mark.parametrize("key", [keys.LAST_ID, keys.OWN_CLUSTER])
def test_fault_global_record_refuses_the_start_in_one_line(folder: Path, key: bytes) -> None:
    overwrite(folder, lambda storage: (key, b"\xff\xfe\xfd"))
    command = [sys.executable, "-m", "magnetar", "standalone", "--data", str(folder), "--port", "0", "--http-port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert f"the record {key.decode()!r}" in ended.stderr

"""Races: clients that auto-create the same topic, and creation against deletion until the broker is killed."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from magnetar.testing import broker as running_broker
from magnetar.wire import schema_pb2 as pb
from tests.crash.killable import KillableBroker
from tests.server.raw_client import RawClient

Command = pb.BaseCommand
CLIENTS = 50
NAMESPACE = "/admin/v2/persistent/public/default"


def gather(count: int, action: Callable[[int], object]) -> list[object]:
    """Starts all calls at the same moment and returns their results."""
    barrier = threading.Barrier(count)

    def one(index: int) -> object:
        barrier.wait()
        return action(index)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@pytest.fixture
def clients() -> list[RawClient]:
    RawClient.opened.clear()
    return RawClient.opened


class TestFiftyClients:
    @pytest.mark.parametrize("kind", ["non-partitioned", "partitioned"])
    def test_ac1_one_topic_and_one_response(self, kind: str, clients: list[RawClient]) -> None:
        settings = {"allowAutoTopicCreationType": kind, "defaultNumPartitions": 4}
        with running_broker(**settings) as broker:
            for _ in range(CLIENTS):
                RawClient(broker)

            def ask(index: int) -> object:
                request = pb.CommandPartitionedTopicMetadata(topic="t", request_id=1)
                clients[index].send_command(Command(type=Command.PARTITIONED_METADATA, partitionMetadata=request))
                return clients[index].receive().partitionMetadataResponse.partitions

            def produce(index: int) -> object:
                clients[index].produce_to("t-partition-3" if kind == "partitioned" else "t")
                return "ok"

            answers = gather(CLIENTS, ask)
            assert answers == [4 if kind == "partitioned" else 0] * CLIENTS
            assert gather(CLIENTS, produce) == ["ok"] * CLIENTS
            catalog = broker.server.broker.catalog
            assert len(catalog.topics) == (4 if kind == "partitioned" else 1)
            assert len(catalog.partitioned) == (1 if kind == "partitioned" else 0)
            for client in clients:
                client.close()

    def test_by_rest_one_creates_and_all_others_get_a_conflict(self) -> None:
        with running_broker() as broker:
            url = f"{broker.http_url}{NAMESPACE}/t/partitions"

            def create(index: int) -> object:
                return httpx.put(url, json=3).status_code

            assert Counter(gather(CLIENTS, create)) == {204: 1, 409: CLIENTS - 1}
            assert len(broker.server.broker.catalog.topics) == 3


class TestCreateAndDelete:
    """A broker process is killed in between: no partially created topic, before or after."""

    @pytest.mark.parametrize("seed", range(4))
    def test_no_partially_created_topic_after_sigkill(self, seed: int, tmp_path: Path) -> None:
        broker = KillableBroker(tmp_path / "data")
        broker.start()
        acknowledged: dict[str, bool] = {}  # topic -> whether it existed at the last response
        doubtful: set[str] = set()  # requested, no response
        stop, begun = threading.Event(), threading.Event()

        def toggle(name: str) -> None:
            """One thread per name, so that the meaning of the last response is known."""
            url = f"{broker.http_url}{NAMESPACE}/{name}/partitions"
            with httpx.Client(timeout=5) as http, contextlib.suppress(httpx.HTTPError):
                while not stop.is_set():
                    doubtful.add(name)
                    assert http.put(url, json=5).status_code == 204
                    acknowledged[name] = True
                    begun.set()
                    doubtful.discard(name)
                    doubtful.add(name)
                    assert http.delete(url).status_code == 204
                    acknowledged[name] = False
                    doubtful.discard(name)

        threads = [threading.Thread(target=toggle, args=(f"t{number}",)) for number in range(6)]
        for thread in threads:
            thread.start()
        assert begun.wait(30), "no request succeeded before the kill"
        time.sleep(random.Random(seed).uniform(0, 0.5))
        broker.kill()
        stop.set()
        for thread in threads:
            thread.join()
        broker.start()
        try:
            with httpx.Client(base_url=broker.http_url, timeout=5) as http:
                self.check(http, acknowledged, doubtful)
        finally:
            broker.kill()

    def check(self, http: httpx.Client, acknowledged: dict[str, bool], doubtful: set[str]) -> None:
        topics = Counter(full.rpartition("/")[2].split("-")[0] for full in http.get(NAMESPACE).json())
        partitioned = {full.rpartition("/")[2] for full in http.get(f"{NAMESPACE}/partitioned").json()}
        assert topics == dict.fromkeys(partitioned, 5)  # all partitions with their metadata, or neither
        for name, is_there in acknowledged.items():
            if name not in doubtful:
                assert (name in partitioned) == is_there, name
        for name in partitioned:
            assert http.get(f"{NAMESPACE}/{name}/partitioned-stats").json()["metadata"]["partitions"] == 5
        for name in acknowledged:
            # Remains do not prevent a new creation.
            http.delete(f"{NAMESPACE}/{name}/partitions")
            assert http.put(f"{NAMESPACE}/{name}/partitions", json=2).status_code == 204
            assert http.get(f"{NAMESPACE}/{name}/partitions").json()["partitions"] == 2

    def test_creation_and_deletion_race_for_one_name(self) -> None:
        with running_broker() as broker:
            url = f"{broker.http_url}{NAMESPACE}/t/partitions"

            def either(index: int) -> object:
                response = httpx.put(url, json=4) if index % 2 else httpx.delete(url)
                return response.status_code

            for _ in range(5):
                assert set(gather(20, either)) <= {204, 404, 409}
                catalog = broker.server.broker.catalog
                assert len(catalog.topics) == 4 * len(catalog.partitioned)

"""An in-memory broker behind its HTTP application, without sockets, with crashes on demand."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from magnetar.admin.app import create_app
from magnetar.admin.http.guard import Guard
from magnetar.broker.broker import Broker
from magnetar.broker.host import ManualHost
from magnetar.broker.peer import Delivery, Receipt
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.throttling.rate_limit import RateLimit
from magnetar.broker.topic.producer import Producer
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.clock import ManualClock
from magnetar.errors import MagnetarError
from magnetar.health import Facts, Reading
from magnetar.names import TopicName
from magnetar.server.backup import Backups
from magnetar.server.http import Alarm
from magnetar.server.ports.addresses import Addresses, Ports
from magnetar.settings.settings import Settings
from magnetar.storage.memory import MemoryStorage
from magnetar.wire.schema_pb2 import MessageMetadata

NOW_MS = 1_700_000_000_000
NAMESPACE = "public/default"


class Listener:
    """A client's end that records its notifications."""

    writable = True
    address = "/127.0.0.1:50000"
    client_version = "Test-Client-1.0"
    is_limited = False

    def __init__(self) -> None:
        self.delivered: list[int] = []
        self.closed = 0

    def receipts(self, producer: Producer, receipts: Sequence[Receipt]) -> None: ...

    def send_error(self, producer: Producer, sequence_id: int, error: MagnetarError) -> None:
        raise error

    def deliver(self, consumer: Consumer, deliveries: Sequence[Delivery]) -> None:
        self.delivered += [delivery[0] for delivery in deliveries]

    def active_changed(self, consumer: Consumer, is_active: bool) -> None: ...

    def end_of_topic(self, consumer: Consumer) -> None: ...

    def close_consumer(self, consumer: Consumer) -> None:
        self.closed += 1

    def close_producer(self, producer: Producer) -> None:
        self.closed += 1

    def hold(self, limit: RateLimit) -> None: ...

    def release(self, limit: RateLimit) -> None: ...


class SteadyVitals:
    """Vitals that the test sets."""

    def __init__(self) -> None:
        self.now = Facts("serving")
        self.failed_write = ""
        self.values: dict[str, Reading] = {}
        self.responses: Counter[int] = Counter()

    def facts(self) -> Facts:
        return self.now

    async def proof(self) -> str:
        return self.failed_write

    async def readings(self) -> Mapping[str, Reading]:
        return self.values

    def responded(self, status: int) -> None:
        self.responses[status] += 1


class Admin:
    """`admin("PUT", path, json=3)` responds like the HTTP port. `commits` counts commits."""

    def __init__(self, storage: MemoryStorage | None = None, **settings: Any) -> None:
        self.settings = Settings(**settings)
        self.storage = storage or MemoryStorage()
        self.host = ManualHost()
        self.broker = Broker(self.settings, self.storage, ManualClock(NOW_MS), self.host)
        self.vitals = SteadyVitals()
        self.commits = 0
        self.commit()
        self.backups = Backups(self.storage, self._committed)
        self.app = create_app(
            self.broker,
            addresses=Addresses(self.settings, Ports(6650, 8080)).of,
            committed=self._committed,
            alarm=Alarm,
            vitals=self.vitals,
            backups=self.backups,
            guard=Guard(self.settings, "broker.test"),
        )

    async def _committed(self) -> None:
        self.commits += 1
        self.commit()

    def commit(self) -> None:
        while (group := self.broker.commits.take()) is not None:
            self.storage.write(group.batch)
            self.storage.sync()
            group.complete()

    def __call__(self, method: str, path: str, **request: Any) -> httpx.Response:
        if "content" in request:
            request["headers"] = {"content-type": "application/json", **request.get("headers", {})}

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://broker.test:8080") as client:
                return await client.request(method, path, **request)

        return asyncio.run(send())

    def get(self, path: str) -> Any:
        """The JSON of a response, which must be 200."""
        response = self("GET", path)
        assert response.status_code == 200, response.text
        return response.json()

    def reason(self, status: int, method: str, path: str, **request: Any) -> str:
        """The reason of a rejection, which must have this status."""
        response = self(method, path, **request)
        assert response.status_code == status, f"{response.status_code} {response.text}"
        assert response.headers["content-type"] == "application/json"
        body = response.json()
        assert list(body) == ["reason"] and body["reason"]
        return str(body["reason"])

    def done(self, method: str, path: str, **request: Any) -> None:
        """A change that must return 204, and be on disk by then."""
        response = self(method, path, **request)
        assert response.status_code == 204, f"{response.status_code} {response.text}"
        assert response.content == b""
        assert self.broker.commits.idle

    def after_crash(self) -> Admin:
        """A new process on the same disk."""
        return Admin(self.storage.crash())

    def existing(self, namespace: str = NAMESPACE) -> tuple[list[str], dict[str, int]]:
        """All topics of a namespace, and the partitioned ones with their counts."""
        catalog = self.broker.catalog
        partitioned = {full: record.partitions for full, record in catalog.partitioned.items()}
        return sorted(catalog.topics_of[namespace]), partitioned

    # -- clients

    def publish(self, topic: str, *payloads: bytes, batch: int = 0, name: str = "p") -> Producer:
        """Publishes one entry per payload, with a producer that stays connected."""
        opened = self.broker.topic(TopicName.parse(topic), create=True)
        producer = opened.producers.by_name.get(name)
        if producer is None:
            producer = Producer(Listener(), 7, name, connected_at_ms=NOW_MS, metadata={"app": "test"})
            opened.add_producer(producer)
        metadata = MessageMetadata(producer_name=name, sequence_id=0, publish_time=NOW_MS)
        if batch:
            metadata.num_messages_in_batch = batch
        head = metadata.SerializeToString()
        for payload in payloads:
            blob = len(head).to_bytes(4, "big") + head + payload
            opened.publish(producer, [(0, 0, batch or 1, blob, False, False)])
        self.commit()
        return producer

    def subscribe(self, topic: str, subscription: str, *, permits: int = 0, durable: bool = True) -> Consumer:
        opened = self.broker.topic(TopicName.parse(topic), create=True)
        consumer = Consumer(Listener(), 3, "c", SubscriptionType.Shared, connected_at_ms=NOW_MS)
        opened.subscribe(consumer, SubscribeRequest(subscription, durable=durable, from_earliest=True))
        if permits:
            assert consumer.subscription is not None
            consumer.subscription.flow(consumer, permits)
        while self.broker.has_work:
            self.broker.pump()
        self.commit()
        return consumer

    def unsubscribe_idle(self, consumer: Consumer) -> None:
        """Closes the consumer; a durable subscription stays."""
        assert consumer.subscription is not None
        consumer.subscription.remove_consumer(consumer)
        self.commit()

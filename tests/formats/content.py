"""The content of the data folders: every kind of record, written by the broker itself, and the same read again."""

from __future__ import annotations

from typing import Any

import msgspec

from magnetar.access.principal import Author
from magnetar.broker import keys
from magnetar.broker.broker import Broker
from magnetar.broker.catalog.policies import Overrides, Retention
from magnetar.broker.catalog.rate_policy import PublishRate
from magnetar.broker.catalog.record import ClusterRecord, TenantRecord
from magnetar.broker.host import ManualHost
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.clock import ManualClock
from magnetar.declared.model import Progress, RunReport, RunReports, RunState
from magnetar.names import TopicName
from magnetar.replication.model import SOURCE_POSITION
from magnetar.replication.route_parts import RouteParts
from magnetar.schema.types import Schema, SchemaType
from magnetar.settings.settings import Settings
from magnetar.storage.api import Space, Storage
from magnetar.wire.metadata import build_blob, split_blob
from magnetar.wire.schema_pb2 import MessageMetadata
from tests.broker.dead_letters import fail, with_policy
from tests.broker.world import START_MS, Client, World

CLUSTER = "home"
PIPELINE = "magnetar.repl.away/acme/shop/t/9"
DELIVER_AT_MS = START_MS + 3_600_000
SETTINGS: dict[str, Any] = {"clusterName": CLUSTER, "brokerDeduplicationEnabled": True}
KINDS = {key[:1] for name, key in vars(keys).items() if name.isupper() and isinstance(key, bytes)}


class StoredWorld(World):
    """A world on any storage."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage  # type: ignore[assignment]
        self.clock = ManualClock(START_MS)
        self.settings = Settings(**SETTINGS)
        self.host = ManualHost()
        self.broker = Broker(self.settings, storage, self.clock, self.host)
        self.client = Client()
        self._ids = iter(range(1, 1_000_000))
        self.settle()


def populate(storage: Storage) -> None:
    """Writes every kind of record."""
    world = StoredWorld(storage)
    broker, catalog = world.broker, world.broker.catalog
    catalog.save_cluster("away", ClusterRecord(service_url="http://away:8080", broker_service_url="pulsar://away:6650"))
    catalog.create_tenant("acme", TenantRecord(admin_roles=["boss"], allowed_clusters=[CLUSTER, "away"]))
    catalog.create_namespace("acme/shop")
    catalog.create_partitioned(TopicName.parse("acme/shop/split"), 2, {"owner": "me"})
    catalog.set_overrides(
        TopicName.parse("acme/shop/split"), Overrides(retention=Retention(60, 100), publish_rate=PublishRate(7, 8))
    )
    broker.set_dynamic_setting("maxConsumersPerTopic", "77")
    broker.schemas.put("public/default/t", Schema(SchemaType.STRING), "FULL")
    broker.replication.policies.set("away", "acme/shop", RouteParts(where="a > 1"))
    broker.pipelines.declare("acme/shop", "fix", "redrive", {"sources": ["t-s-DLQ"]}, Author("boss"))
    done = RunReport(broker.pipelines.get("acme/shop", "fix").id, 1, RunState.DONE, progress=Progress(7, 7, {"x": 1}))
    broker.pipelines.receive(RunReports("p", True, [done]))
    broker.pipelines.resume("acme/shop", "fix")
    world.settle()

    consumer = world.consumer()
    with_policy(world, 1)
    world.publish(10)
    fail(world, consumer, 3)
    fail(world, consumer, 3)  # dead
    fail(world, consumer, 5)  # counted
    subscription = world.subscription()
    for entry_id in (0, 1, 7):
        subscription.ack(entry_id)
    world.settle()
    world.publish(1, "late", deliver_at_ms=DELIVER_AT_MS)

    world.publish(4, "trimmed")
    world.consumer("done", "trimmed")
    trimmed = world.topic("trimmed")
    trimmed.truncate()
    world.settle()
    world.publish(2, "trimmed", producer=world.producer("trimmed", "again"))

    _replicate(world, PIPELINE, {})
    _replicate(world, "pulsar.repl.away-->home", {SOURCE_POSITION: "7:8"})
    world.settle()


def populate_more(storage: Storage) -> None:
    """The work of a second broker on the same storage."""
    world = StoredWorld(storage)
    world.publish(3, "second")
    world.subscription().ack(2)
    world.settle()


def _replicate(world: World, name: str, properties: dict[str, str]) -> None:
    producer = world.producer("copied", name, knows_positions=bool(properties))
    metadata = MessageMetadata(producer_name="original", sequence_id=8, publish_time=START_MS, replicated_from="away")
    for key, value in properties.items():
        metadata.properties.add(key=key, value=value)
    world.topic("copied").publish(producer, [(8, 8, 1, build_blob(metadata, b"copy"), False, False)])
    world.settle()


def kinds_of(storage: Storage) -> set[bytes]:
    return {key[:1] for key, _ in storage.scan(Space.STATE, b"", b"\xff" * 9)}


def described(storage: Storage) -> Any:
    """Everything of a folder that a client or an administrator can see, as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(_described(StoredWorld(storage))))


def _described(world: StoredWorld) -> dict[str, Any]:
    broker, catalog = world.broker, world.broker.catalog
    return {
        "cluster": {name: (found.service_url, found.broker_service_url) for name, found in catalog.clusters.items()},
        "tenants": {name: found.allowed_clusters for name, found in catalog.tenants.items()},
        "namespaces": sorted(catalog.namespaces),
        "partitioned": {
            name: (found.partitions, found.properties, found.overrides.retention)
            for name, found in catalog.partitioned.items()
        },
        "publish rates": {name: found.overrides.publish_rate for name, found in catalog.partitioned.items()},
        "dynamic settings": broker.dynamic_settings,
        "routes": {" ".join(scope): parts.where for scope, parts in broker.replication.policies.all().items()},
        "pipelines": {one.full: (one.verb, one.spec, one.run, one.runs, one.author) for one in broker.pipelines.all()},
        "schema": [version.schema.type.name for version in broker.schemas.versions("public/default/t")],
        "topics": {full: _topic(world.topic(full)) for full in sorted(catalog.topics)},
    }


def _topic(topic: PersistentTopic) -> dict[str, Any]:
    log = topic.log
    return {
        "id": topic.ledger_id,
        "bounds": (log.first, log.last),
        "messages": [(entry[0], split_blob(entry[3])[1]) for entry in log.read(0, 1000, 1 << 30)],
        "delayed until": topic.delayed.next_ms,
        "sequences": {name: topic.last_sequence_id(name) for name in ("p", "again", PIPELINE)},
        "subscriptions": {subscription.name: _subscription(subscription) for subscription in topic.cursors},
    }


def _subscription(subscription: Subscription) -> dict[str, Any]:
    cursor = subscription.cursor
    state = cursor.state_of(5)
    return {
        "mark-delete": cursor.mark_delete,
        "acked": cursor.acked.to_array().tolist(),
        "failures of 5": None if state is None else state.count,
        "policy": subscription.record.dead_letters,
    }

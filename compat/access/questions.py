"""What is asked: binary commands and REST requests, each of which leaves the stage as it was.

A request that would change something names what does not exist, or sets what is already set: who may do it is answered
by 404, 409 or 412 as well as by 204. Does not know who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cast import APP, FOREIGN, PARTITIONED, PREFIXED, TOPIC

from magnetar.wire.schema_pb2 import BaseCommand, CommandGetTopicsOfNamespace, CommandSubscribe, Schema


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: object = None

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Command:
    """Builds the command from a request id."""

    name: str
    build: Callable[[int], BaseCommand]


def _requests() -> Iterator[Request]:
    get = ("/metrics/", "/admin/v2/brokers/health", "/admin/v2/brokers/version")
    yield from (Request("GET", path) for path in get)
    for path in (
        "brokers", "brokers/standalone", "brokers/leaderBroker", "brokers/configuration",
        "brokers/configuration/values", "brokers/configuration/runtime", "brokers/backlog-quota-check", "clusters",
        "clusters/standalone", "tenants", "tenants/acme", "namespaces/acme", f"namespaces/{FOREIGN}",
    ):  # fmt: skip
        yield Request("GET", f"/admin/v2/{path}")
    yield from _changes_of_clusters_and_tenants()
    yield from _of_namespaces()
    yield from _of_topics()
    yield from _of_subscriptions()
    yield from _of_schemas()
    for topic in (TOPIC, PARTITIONED, f"{FOREIGN}/orders"):
        yield Request("GET", f"/lookup/v2/topic/persistent/{topic}")


def _changes_of_clusters_and_tenants() -> Iterator[Request]:
    v2 = "/admin/v2"
    yield Request("POST", f"{v2}/brokers/configuration/maxConcurrentLookupRequest/50000")
    yield Request("POST", f"{v2}/clusters/absent", {"serviceUrl": "http://127.0.0.1:1"})
    yield Request("DELETE", f"{v2}/clusters/absent")
    yield Request("PUT", f"{v2}/tenants/acme", {"adminRoles": [], "allowedClusters": ["standalone"]})
    yield Request("POST", f"{v2}/tenants/absent", {"adminRoles": [], "allowedClusters": ["standalone"]})
    yield Request("DELETE", f"{v2}/tenants/absent")
    yield Request("PUT", f"{v2}/namespaces/{APP}")
    yield Request("DELETE", f"{v2}/namespaces/acme/absent")


def _of_namespaces() -> Iterator[Request]:
    home = f"/admin/v2/namespaces/{APP}"
    for path in (
        "", "/topics", "/permissions", "/permissions/subscription", "/retention", "/messageTTL", "/backlogQuotaMap",
        "/deduplication", "/persistence", "/publishRate", "/dispatchRate", "/replication", "/bundles", "/properties",
        "/schemaCompatibilityStrategy", "/autoTopicCreation", "/maxProducersPerTopic", "/delayedDelivery",
    ):  # fmt: skip
        yield Request("GET", f"{home}{path}")
    yield Request("POST", f"{home}/permissions/newcomer", ["produce"])
    yield Request("DELETE", f"{home}/permissions/newcomer")
    yield Request("POST", f"{home}/permissions/subscription/unused", ["newcomer"])
    yield Request("DELETE", f"{home}/permissions/unused/newcomer")
    yield Request("POST", f"{home}/retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0})
    yield Request("DELETE", f"{home}/retention")
    yield Request("POST", f"{home}/messageTTL", 0)
    yield Request("DELETE", f"{home}/messageTTL")
    yield Request("DELETE", f"{home}/deduplication")
    yield Request("POST", f"{home}/replication", ["standalone"])
    yield Request("DELETE", f"{home}/publishRate")
    yield Request("DELETE", f"{home}/dispatchRate")
    yield Request("POST", f"{home}/subscriptionAuthMode", "None")
    yield Request("PUT", f"{home}/schemaCompatibilityStrategy", "UNDEFINED")
    yield Request("PUT", f"{home}/property/colour/red")
    yield Request("PUT", "/admin/v2/namespaces/acme/absent/unload")
    yield Request("POST", f"{home}/clearBacklog/absent")
    yield Request("POST", f"{home}/unsubscribe/absent")
    yield Request("GET", f"/admin/v2/persistent/{APP}")
    yield Request("GET", f"/admin/v2/persistent/{APP}/partitioned")
    yield Request("GET", f"/admin/v2/persistent/{FOREIGN}")


def _of_topics() -> Iterator[Request]:
    home = f"/admin/v2/persistent/{TOPIC}"
    for path in (
        "stats", "internalStats", "internal-info", "partitions", "subscriptions", "permissions", "backlog",
        "lastMessageId", "messageid/0", "properties", "retention", "messageTTL", "dispatchRate", "deduplicationEnabled",
        "maxProducers",
    ):  # fmt: skip
        yield Request("GET", f"{home}/{path}")
    absent = f"/admin/v2/persistent/{APP}/absent"
    yield Request("GET", f"/admin/v2/persistent/{PARTITIONED}/partitions")
    yield Request("GET", f"/admin/v2/persistent/{PARTITIONED}/partitioned-stats")
    yield Request("GET", f"/admin/v2/persistent/{FOREIGN}/orders/stats")
    yield Request("GET", f"/admin/v2/persistent/{FOREIGN}/orders/partitions")
    yield Request("PUT", home)
    yield Request("PUT", f"/admin/v2/persistent/{PARTITIONED}/partitions", 2)
    yield Request("POST", f"/admin/v2/persistent/{PARTITIONED}/partitions", 2)
    yield Request("DELETE", absent)
    yield Request("DELETE", f"{absent}/partitions")
    yield Request("POST", f"{absent}/terminate")
    yield Request("PUT", f"{absent}/unload")
    yield Request("POST", f"{absent}/trim")
    yield Request("POST", f"{absent}/createMissedPartitions")
    yield Request("PUT", f"{absent}/properties", {"colour": "red"})
    yield Request("DELETE", f"{absent}/properties?key=colour")
    yield Request("GET", f"{home}/ledger/0/entry/0")
    yield Request("GET", f"{home}/examinemessage")
    yield Request("DELETE", f"{absent}/truncate")
    yield Request("POST", f"{home}/permissions/newcomer", ["produce"])
    yield Request("DELETE", f"{home}/permissions/newcomer")
    yield Request("POST", f"{home}/messageTTL?messageTTL=0")
    yield Request("DELETE", f"{home}/messageTTL")
    yield Request("DELETE", f"{home}/retention")
    yield Request("DELETE", f"{home}/dispatchRate")


def _of_subscriptions() -> Iterator[Request]:
    home = f"/admin/v2/persistent/{TOPIC}/subscription"
    for name in ("billing", "free"):
        yield Request("PUT", f"{home}/{name}", "earliest")
        yield Request("POST", f"{home}/{name}/skip/0")
        yield Request("POST", f"{home}/{name}/skip_all")
        yield Request("POST", f"{home}/{name}/resetcursor/0")
        yield Request("POST", f"{home}/{name}/expireMessages/1000")
        yield Request("GET", f"{home}/{name}/position/1")
        yield Request("GET", f"{home}/{name}/properties")
        yield Request("PUT", f"{home}/{name}/properties", {})
        yield Request("POST", f"{home}/{name}/analyzeBacklog")
        yield Request("GET", f"{home}/{name}/replicatedSubscriptionStatus")
    yield Request("DELETE", f"{home}/absent")
    yield Request("POST", f"/admin/v2/persistent/{TOPIC}/all_subscription/expireMessages/1000")


def _of_schemas() -> Iterator[Request]:
    home = f"/admin/v2/schemas/{TOPIC}"
    definition = {"type": "STRING", "schema": "", "properties": {}}
    yield Request("GET", f"{home}/schema")
    yield Request("GET", f"{home}/schemas")
    yield Request("POST", f"{home}/compatibility", definition)
    yield Request("POST", f"{home}/version", definition)
    yield Request("POST", f"/admin/v2/schemas/{PREFIXED}/orders/schema", definition)
    yield Request("DELETE", f"/admin/v2/schemas/{APP}/absent/schema")


def _producer(topic: str, name: str = "") -> Callable[[int], BaseCommand]:
    def build(request_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.PRODUCER)
        command.producer.topic, command.producer.producer_id = f"persistent://{topic}", request_id
        if name:
            command.producer.producer_name = name
        command.producer.request_id = request_id
        return command

    return build


def _consumer(topic: str, subscription: str) -> Callable[[int], BaseCommand]:
    def build(request_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.SUBSCRIBE)
        command.subscribe.topic, command.subscribe.subscription = f"persistent://{topic}", subscription
        command.subscribe.consumer_id = command.subscribe.request_id = request_id
        command.subscribe.subType = CommandSubscribe.Shared
        return command

    return build


def _lookup(topic: str) -> Callable[[int], BaseCommand]:
    def build(request_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.LOOKUP)
        command.lookupTopic.topic, command.lookupTopic.request_id = f"persistent://{topic}", request_id
        return command

    return build


def _partitions(topic: str) -> Callable[[int], BaseCommand]:
    def build(request_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA)
        command.partitionMetadata.topic, command.partitionMetadata.request_id = f"persistent://{topic}", request_id
        return command

    return build


def _topics(namespace: str) -> Callable[[int], BaseCommand]:
    def build(request_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE)
        command.getTopicsOfNamespace.namespace, command.getTopicsOfNamespace.request_id = namespace, request_id
        command.getTopicsOfNamespace.mode = CommandGetTopicsOfNamespace.PERSISTENT
        return command

    return build


def _schema(topic: str) -> Callable[[int], BaseCommand]:
    def build(request_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.GET_SCHEMA)
        command.getSchema.topic, command.getSchema.request_id = f"persistent://{topic}", request_id
        return command

    return build


def _new_schema(topic: str) -> Callable[[int], BaseCommand]:
    def build(request_id: int) -> BaseCommand:
        command = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA)
        command.getOrCreateSchema.topic, command.getOrCreateSchema.request_id = f"persistent://{topic}", request_id
        command.getOrCreateSchema.schema.name, command.getOrCreateSchema.schema.schema_data = "text", b""
        command.getOrCreateSchema.schema.type = Schema.String
        return command

    return build


REQUESTS = tuple(_requests())
COMMANDS = (
    *(
        Command(f"{name} {topic}", build(topic))
        for topic in (TOPIC, f"{APP}/other", f"{PARTITIONED}-partition-0", f"{FOREIGN}/orders")
        for name, build in (("produce", _producer), ("lookup", _lookup), ("partitions", _partitions))
    ),
    *(Command(f"get schema {topic}", _schema(topic)) for topic in (TOPIC, f"{FOREIGN}/orders")),
    *(Command(f"get or create schema {topic}", _new_schema(topic)) for topic in (TOPIC, f"{FOREIGN}/orders")),
    *(Command(f"get topics {namespace}", _topics(namespace)) for namespace in (APP, FOREIGN)),
    Command(f"produce as a replicator {TOPIC}", _producer(TOPIC, "pulsar.repl.elsewhere")),
    *(
        Command(f"subscribe {topic} {subscription}", _consumer(topic, subscription))
        for topic, subscription in (
            (TOPIC, "billing"), (TOPIC, "free"), (TOPIC, "pulsar.repl.elsewhere"), (f"{APP}/other", "free"),
            (f"{FOREIGN}/orders", "free"),
            (f"{PREFIXED}/orders", "free"), (f"{PREFIXED}/orders", "ns-consume-one"), (f"{PREFIXED}/orders", "billing"),
        )
    ),
)  # fmt: skip

"""Which topics exist, and which may come to be: the rules of creation for every way in.

The catalog is all names with their records, in memory and on disk; a topic itself is opened on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from magnetar.broker import keys, record
from magnetar.broker.record import NamespaceRecord, PartitionedRecord, TenantRecord, TopicRecord
from magnetar.errors import (
    AlreadyExists,
    NamespaceNotFound,
    NotAllowed,
    PartitionCountInvalid,
    TenantNotFound,
    TopicNotFound,
)
from magnetar.names import TopicName, parse_namespace
from magnetar.storage.api import Space

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker

R = TypeVar("R")

# Never auto-created partitioned: a dead letter topic is small, and its name is computed, not chosen (PIP-263).
_PLAIN_SUFFIXES = ("-DLQ", "-RETRY")
WAS_AUTO_CREATED = "wasAutoCreated"


class Catalog:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.tenants: dict[str, TenantRecord] = {}
        self.namespaces: dict[str, NamespaceRecord] = {}
        self.partitioned: dict[str, PartitionedRecord] = {}
        self.topics: dict[str, TopicRecord] = {}
        self.topics_of: dict[str, dict[str, None]] = {}  # namespace -> full names, of open non-persistent ones too

    def load(self) -> None:
        self.tenants = self._read(keys.TENANT, record.decode_tenant)
        self.namespaces = self._read(keys.NAMESPACE, record.decode_namespace)
        self.partitioned = self._read(keys.PARTITIONED, record.decode_partitioned)
        self.topics = self._read(keys.TOPIC, record.decode_topic)
        self.topics_of = {namespace: {} for namespace in self.namespaces}
        for full in self.topics:
            self._list(full)
        if self._broker.is_new:
            self.create_tenant("public", TenantRecord(allowed_clusters=[self._broker.settings.clusterName]))
            self.create_namespace("public/default")

    def _read(self, kind: bytes, decode: Callable[[bytes], R]) -> dict[str, R]:
        rows = self._broker.storage.scan(Space.STATE, kind, keys.after(kind))
        return {key[1:].decode(): decode(value) for key, value in rows}

    # -- tenants and namespaces

    def create_tenant(self, tenant: str, tenant_record: TenantRecord) -> None:
        parse_namespace(f"{tenant}/default")
        if tenant in self.tenants:
            raise AlreadyExists("Tenant already exists")
        self.tenants[tenant] = tenant_record
        self._broker.commits.batch().put(keys.named(keys.TENANT, tenant), record.encode(tenant_record))

    def create_namespace(self, namespace: str) -> None:
        tenant, _ = parse_namespace(namespace)
        if tenant not in self.tenants:
            raise TenantNotFound("Tenant does not exist")
        if namespace in self.namespaces:
            raise AlreadyExists("Namespace already exists")
        self.namespaces[namespace] = NamespaceRecord()
        self.topics_of[namespace] = {}
        self._broker.commits.batch().put(
            keys.named(keys.NAMESPACE, namespace), record.encode(self.namespaces[namespace])
        )

    def check_namespace(self, name: TopicName) -> None:
        """Raises unless topics of this kind may live in this namespace."""
        settings = self._broker.settings
        if name.is_persistent and not settings.enablePersistentTopics:
            raise NotAllowed("enablePersistentTopics is false on this broker")
        if not name.is_persistent and not settings.enableNonPersistentTopics:
            raise NotAllowed("enableNonPersistentTopics is false on this broker")
        if name.namespace_full not in self.namespaces:
            raise NamespaceNotFound("Namespace not found")

    def delete_tenant(self, tenant: str) -> None:
        """Forgets a tenant that has no namespaces."""
        assert not any(namespace.startswith(tenant + "/") for namespace in self.namespaces), "tenant has namespaces"
        del self.tenants[tenant]
        self._broker.commits.batch().delete(keys.named(keys.TENANT, tenant))

    def delete_namespace(self, namespace: str) -> None:
        """Forgets a namespace that has no topics."""
        assert not self.topics_of[namespace], "namespace has topics"
        del self.namespaces[namespace]
        del self.topics_of[namespace]
        self._broker.commits.batch().delete(keys.named(keys.NAMESPACE, namespace))

    # -- topics

    def exists(self, name: TopicName) -> bool:
        return name.full in self.topics_of.get(name.namespace_full, ())

    def require(self, name: TopicName, *, create: bool) -> None:
        """Makes sure that the topic exists for a producer or a consumer, creating it where the rules allow."""
        self.check_namespace(name)
        if self.exists(name):
            return
        if name.full in self.partitioned:
            raise NotAllowed(f"topic {name.full} is partitioned: produce to or consume from its partitions")
        if name.is_partition:
            base = self.partitioned.get(name.base.full)
            if base is None:
                raise NotAllowed(f"Partition metadata not found for the partitioned topic: {name.base.full}")
            if name.partition >= base.partitions:
                raise TopicNotFound(f"Topic {name.full} not found: {name.base.full} has {base.partitions} partitions")
            self.create(name, {})
            return
        if not create or not self._broker.settings.allowAutoTopicCreation:
            raise TopicNotFound(f"Topic {name.full} not found")
        if self._auto_partitions(name):
            self.create_partitioned(name, self._auto_partitions(name), {WAS_AUTO_CREATED: "true"})
            raise NotAllowed(f"topic {name.full} is partitioned: produce to or consume from its partitions")
        self.create(name, {WAS_AUTO_CREATED: "true"})

    def partitions(self, name: TopicName, *, create: bool) -> int:
        """How many partitions a topic has, 0 for a plain one (PIP-344: with create=False nothing is made)."""
        self.check_namespace(name)
        partitioned = self.partitioned.get(name.full)
        if partitioned is not None:
            return partitioned.partitions
        if self.exists(name):
            return 0
        if name.is_partition:
            base = self.partitioned.get(name.base.full)
            if base is not None and name.partition < base.partitions:
                return 0
        elif create and self._broker.settings.allowAutoTopicCreation:
            count = self._auto_partitions(name)
            if count:
                self.create_partitioned(name, count, {WAS_AUTO_CREATED: "true"})
            return count
        raise TopicNotFound(f"Topic {name.full} not found")

    def _auto_partitions(self, name: TopicName) -> int:
        settings = self._broker.settings
        if settings.allowAutoTopicCreationType != "partitioned" or name.local.endswith(_PLAIN_SUFFIXES):
            return 0
        return settings.defaultNumPartitions

    def create(self, name: TopicName, properties: dict[str, str]) -> None:
        """Makes a plain topic or one partition."""
        self.check_namespace(name)
        if self.exists(name) or name.full in self.partitioned:
            raise AlreadyExists("This topic already exists")
        self._check_limit(name, 1)
        self._add(name, properties)

    def create_partitioned(self, name: TopicName, partitions: int, properties: dict[str, str]) -> None:
        """Makes a partitioned topic and all its partitions in one transaction."""
        self.check_namespace(name)
        self._check_partition_count(partitions)
        if name.is_partition:
            raise NotAllowed(f"{name.full} is the name of a partition and cannot be partitioned itself")
        if self.exists(name) or name.full in self.partitioned:
            raise AlreadyExists("This topic already exists")
        self._check_limit(name, partitions)
        self._save_partitioned(name, PartitionedRecord(partitions, properties))
        for index in range(partitions):
            if not self.exists(name.with_partition(index)):
                self._add(name.with_partition(index), dict(properties))

    def grow_partitioned(self, name: TopicName, partitions: int) -> None:
        partitioned = self.partitioned.get(name.full)
        if partitioned is None:
            raise TopicNotFound(f"Topic {name.full} not found")
        self._check_partition_count(partitions)
        if partitions < partitioned.partitions:
            raise PartitionCountInvalid(
                f"Desired partitions {partitions} can't be less than the current partitions {partitioned.partitions}."
            )
        self._check_limit(name, partitions - partitioned.partitions)
        self._save_partitioned(name, PartitionedRecord(partitions, partitioned.properties))
        for index in range(partitions):
            if not self.exists(name.with_partition(index)):
                self._add(name.with_partition(index), {})

    def forget_partitioned(self, name: TopicName) -> None:
        del self.partitioned[name.full]
        self._broker.commits.batch().delete(keys.named(keys.PARTITIONED, name.full))

    def forget(self, name: TopicName) -> None:
        """The topic itself has been deleted."""
        self.topics.pop(name.full, None)
        self.topics_of[name.namespace_full].pop(name.full, None)

    def _add(self, name: TopicName, properties: dict[str, str]) -> None:
        if name.is_persistent:
            batch = self._broker.commits.batch()
            topic_record = TopicRecord(id=self._broker.next_id(batch), properties=properties)
            self.topics[name.full] = topic_record
            batch.put(keys.named(keys.TOPIC, name.full), record.encode(topic_record))
            self._broker.created(name, topic_record)
        self._list(name.full)

    def _save_partitioned(self, name: TopicName, partitioned: PartitionedRecord) -> None:
        self.partitioned[name.full] = partitioned
        self._broker.commits.batch().put(keys.named(keys.PARTITIONED, name.full), record.encode(partitioned))

    def _list(self, full: str) -> None:
        self.topics_of.setdefault(TopicName.parse(full).namespace_full, {})[full] = None

    def _check_limit(self, name: TopicName, more: int) -> None:
        limit = self._broker.settings.maxTopicsPerNamespace
        if 0 < limit < len(self.topics_of[name.namespace_full]) + more:
            raise NotAllowed(
                f"namespace {name.namespace_full} has {len(self.topics_of[name.namespace_full])} topics,"
                f" {more} more would exceed maxTopicsPerNamespace {limit}"
            )

    def _check_partition_count(self, partitions: int) -> None:
        if partitions <= 0:
            raise PartitionCountInvalid("Number of partitions should be more than 0")
        limit = self._broker.settings.maxNumPartitionsPerPartitionedTopic
        if 0 < limit < partitions:
            raise PartitionCountInvalid(f"Number of partitions should be less than or equal to {limit}")

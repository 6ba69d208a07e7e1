"""The catalog: records of clusters, tenants, namespaces and topics by name, in memory and on disk.

Auto-creation is decided in `creation`; the broker opens a topic on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from magnetar.access.principal import Author
from magnetar.bounds import PARTITIONS
from magnetar.broker import keys
from magnetar.broker.catalog import record, stored
from magnetar.broker.catalog.changes import report_overrides
from magnetar.broker.catalog.policies import NOTHING_SET, Overrides, Policies
from magnetar.broker.catalog.record import (
    WAS_AUTO_CREATED,
    ClusterRecord,
    NamespaceRecord,
    PartitionedRecord,
    TenantRecord,
    TopicRecord,
)
from magnetar.broker.damage_list import id_in
from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX, RETRY_SUFFIX
from magnetar.errors import (
    AlreadyExists,
    NamespaceNotFound,
    NotAllowed,
    PartitionCountInvalid,
    TenantNotFound,
    TopicDamaged,
    TopicNotFound,
)
from magnetar.log.events import TOPIC_CREATED, TOPIC_DELETED
from magnetar.names import NON_PERSISTENT, PERSISTENT, TopicName, parse_namespace
from magnetar.replication.model import COPY_OF

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker


class Catalog:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.clusters: dict[str, ClusterRecord] = {}  # remote ones only
        self.tenants: dict[str, TenantRecord] = {}
        self.namespaces: dict[str, NamespaceRecord] = {}
        self.partitioned: dict[str, PartitionedRecord] = {}
        self.topics: dict[str, TopicRecord] = {}
        self.damaged: dict[str, int | None] = {}  # topics whose records cannot be read, with their id if it can
        self.non_persistent: dict[str, dict[str, str]] = {}  # properties of non-persistent topics
        self.topics_of: dict[str, dict[str, None]] = {}  # namespace -> full names, persistent or not
        self.dead_letter_topics_of: dict[str, dict[str, None]] = {}  # namespace -> full names; partitions one by one
        self._policies: dict[str, Policies] = {}  # effective ones of namespaces, cached

    def load(self) -> None:
        storage, damage, own = self._broker.storage, self._broker.damage, self._broker.settings.clusterName
        noting = stored.noting
        self.clusters = stored.read(
            storage, keys.CLUSTER, record.decode_cluster, noting(damage, "cluster", ClusterRecord)
        )
        lost_tenant = noting(damage, "tenant", lambda: TenantRecord(allowed_clusters=[own]))
        self.tenants = stored.read(storage, keys.TENANT, record.decode_tenant, lost_tenant)
        lost_namespace = noting(damage, "namespace", stored.namespace)
        self.namespaces = stored.read(storage, keys.NAMESPACE, record.decode_namespace, lost_namespace)
        self.topics = stored.read(storage, keys.TOPIC, record.decode_topic, self._note_topic)
        self.partitioned = stored.read(storage, keys.PARTITIONED, record.decode_partitioned, self._note_partitioned)
        self.topics_of = {namespace: {} for namespace in self.namespaces}
        for full in [full for full in self.topics if not stored.is_topic(full)]:
            del self.topics[full]
            damage.note("topic", full, "its name is not the full name of a topic")
        for full in (*self.topics, *self.damaged):
            self._list(full)
        if self._broker.is_new:
            self.create_tenant("public", TenantRecord(allowed_clusters=[self._broker.settings.clusterName]))
            self.create_namespace("public/default")

    def _note_topic(self, name: str, value: bytes, error: Exception) -> None:
        self._broker.damage.note("topic", name, error)
        if stored.is_topic(name):
            self.damaged[name] = id_in(value)

    def _note_partitioned(self, name: str, value: bytes, error: Exception) -> PartitionedRecord:
        self._broker.damage.note("topic", name, error)
        return stored.partitioned(name, [*self.topics, *self.damaged])

    def check_readable(self, name: TopicName) -> None:
        """Raises for a topic whose record cannot be read."""
        if name.full in self.damaged:
            known = self._broker.damage.of("topic", name.full)
            reason = "its record cannot be decoded" if known is None else known.reason
            raise TopicDamaged(f"topic {name.full} is damaged: {reason}; it can only be deleted, by force")

    def is_uncertain(self, name: TopicName) -> bool:
        """Whether policies of the topic are not known, because a record that may set them cannot be read."""
        damage = self._broker.damage
        if not damage:
            return False
        return damage.of("namespace", name.namespace_full) is not None or damage.of("topic", name.base.full) is not None

    # -- clusters and tenants

    def save_cluster(self, cluster: str, cluster_record: ClusterRecord) -> None:
        self.clusters[cluster] = cluster_record
        self._broker.damage.clear("cluster", cluster)
        self._save(keys.CLUSTER, cluster, cluster_record)
        self._broker.replication.clusters_changed()

    def delete_cluster(self, cluster: str) -> None:
        del self.clusters[cluster]
        self._broker.damage.clear("cluster", cluster)
        self._broker.commits.batch().delete(keys.named(keys.CLUSTER, cluster))
        self._broker.replication.forget_routes(remote=cluster)
        self._broker.replication.clusters_changed()

    def create_tenant(self, tenant: str, tenant_record: TenantRecord) -> None:
        parse_namespace(f"{tenant}/default")
        if tenant in self.tenants:
            raise AlreadyExists("Tenant already exists")
        self.save_tenant(tenant, tenant_record)

    def save_tenant(self, tenant: str, tenant_record: TenantRecord) -> None:
        before = self.tenants.get(tenant)
        self.tenants[tenant] = tenant_record
        self._broker.damage.clear("tenant", tenant)
        self._save(keys.TENANT, tenant, tenant_record)
        if before is not None and before.admin_roles != tenant_record.admin_roles:
            self._broker.authorization.changed(tenant)

    def delete_tenant(self, tenant: str) -> None:
        """Deletes a tenant without namespaces."""
        assert not any(namespace.startswith(tenant + "/") for namespace in self.namespaces), "tenant has namespaces"
        del self.tenants[tenant]
        self._broker.damage.clear("tenant", tenant)
        self._broker.commits.batch().delete(keys.named(keys.TENANT, tenant))
        self._broker.authorization.changed(tenant)

    # -- namespaces

    def create_namespace(self, namespace: str, namespace_record: NamespaceRecord | None = None) -> None:
        tenant, _ = parse_namespace(namespace)
        if tenant not in self.tenants:
            raise TenantNotFound("Tenant does not exist")
        if namespace in self.namespaces:
            raise AlreadyExists("Namespace already exists")
        self.topics_of[namespace] = {}
        self.save_namespace(namespace, namespace_record or NamespaceRecord())

    def check_namespace(self, name: TopicName) -> None:
        """Raises unless the namespace exists and topics of this kind are enabled."""
        settings = self._broker.settings
        if name.is_persistent and not settings.enablePersistentTopics:
            raise NotAllowed("enablePersistentTopics is false on this broker")
        if not name.is_persistent and not settings.enableNonPersistentTopics:
            raise NotAllowed("enableNonPersistentTopics is false on this broker")
        if name.namespace_full not in self.namespaces:
            raise NamespaceNotFound("Namespace not found")

    def delete_namespace(self, namespace: str) -> None:
        """Deletes a namespace without topics."""
        assert not self.topics_of[namespace], "namespace has topics"
        del self.namespaces[namespace]
        self._broker.damage.clear("namespace", namespace)
        del self.topics_of[namespace]
        self.dead_letter_topics_of.pop(namespace, None)
        self._policies.pop(namespace, None)
        batch = self._broker.commits.batch()
        batch.delete(keys.named(keys.NAMESPACE, namespace))
        self._broker.schemas.forget_namespace(namespace, batch)
        self._broker.replication.forget_routes(scope=namespace)
        self._broker.pipelines.forget_namespace(namespace)
        self._broker.authorization.changed(namespace.partition("/")[0])

    def save_namespace(self, namespace: str, namespace_record: NamespaceRecord) -> None:
        """Stores a new or changed namespace; changes take effect on its open topics immediately."""
        before = self.namespaces.get(namespace)
        self.namespaces[namespace] = namespace_record
        self._broker.damage.clear("namespace", namespace)
        self._save(keys.NAMESPACE, namespace, namespace_record)
        if before is None or before.overrides != namespace_record.overrides:
            self._policies.pop(namespace, None)
            self._broker.apply_policies(self.topics_of[namespace])
            earlier = NOTHING_SET if before is None else before.overrides
            report_overrides(self._broker.event, f"{namespace}/*", earlier, namespace_record.overrides, "namespace")
            if _targets_changed(earlier, namespace_record.overrides):
                self._broker.replication.targets_changed(self.topics_of[namespace])
        if before is not None and before.access != namespace_record.access:
            self._broker.authorization.changed(namespace.partition("/")[0])

    def pipeline_authors(self, tenant: str) -> list[Author]:
        """The roles on whose behalf declared pipelines work in a tenant."""
        return self._broker.pipelines.authors(tenant)

    # -- policies

    def policies_of(self, namespace: str) -> Policies:
        """The effective policies of a namespace."""
        policies = self._policies.get(namespace)
        if policies is None:
            policies = self._broker.policies.with_overrides(self.namespaces[namespace].overrides)
            self._policies[namespace] = policies
        return policies

    def policies_of_topic(self, name: TopicName) -> Policies:
        above = self.policies_of(name.namespace_full)
        if self.holds_failed_messages(name):
            above = above.for_failed_messages()
        return above.with_overrides(self.overrides_of(name))

    def overrides_of(self, name: TopicName) -> Overrides:
        """The overrides of a topic; partitions have those of their partitioned topic."""
        kept = self.partitioned.get(name.base.full) or self.topics.get(name.full)
        return NOTHING_SET if kept is None else kept.overrides

    def holds_failed_messages(self, name: TopicName) -> bool:
        return self.holds_dead_letters(name) or self.holds_retries(name)

    def holds_dead_letters(self, name: TopicName) -> bool:
        """Whether this is a dead letter topic: by its name, or because a policy uses it."""
        return name.base.local.endswith(DEAD_LETTER_SUFFIX) or any(
            one.holds_dead_letters for one in self._records_of(name)
        )

    def holds_retries(self, name: TopicName) -> bool:
        """Whether this is a retry topic: by its name, or because a client uses it."""
        return name.base.local.endswith(RETRY_SUFFIX) or any(one.holds_retries for one in self._records_of(name))

    def is_renamed_copy(self, name: TopicName) -> bool:
        """Whether the topic was created for copies of a topic with another name, in another cluster."""
        return any(COPY_OF in one.properties for one in self._records_of(name))

    def _records_of(self, name: TopicName) -> list[PartitionedRecord | TopicRecord]:
        """Of an existing topic and of the partitioned topic it belongs to."""
        return [one for one in (self.partitioned.get(name.base.full), self.topics.get(name.full)) if one is not None]

    def mark(self, name: TopicName, *, retries: bool = False) -> None:
        """Failed messages go to this existing persistent topic, or to its partitions: from now on it keeps them."""
        if self.holds_retries(name) if retries else self.holds_dead_letters(name):
            return
        field, partitioned = "holds_retries" if retries else "holds_dead_letters", self.partitioned.get(name.base.full)
        if partitioned is None:
            self.check_readable(name)
            self.save_topic(name, msgspec.structs.replace(self.topics[name.full], **{field: True}))
        else:
            self._save_partitioned(name.base, msgspec.structs.replace(partitioned, **{field: True}))
        for full in self._logs_of(name):
            self._list(full)
        self._broker.apply_policies(self._logs_of(name))

    def _logs_of(self, name: TopicName) -> list[str]:
        """The topic, or all partitions of the partitioned topic it belongs to."""
        partitioned = self.partitioned.get(name.base.full)
        if partitioned is None:
            return [name.full]
        return [name.base.with_partition(index).full for index in range(partitioned.partitions)]

    def set_overrides(self, name: TopicName, overrides: Overrides) -> None:
        """Of an existing persistent topic, or of all its partitions."""
        partitioned, before = self.partitioned.get(name.base.full), self.overrides_of(name)
        if partitioned is None:
            self.check_readable(name)
            self.save_topic(name, msgspec.structs.replace(self.topics[name.full], overrides=overrides))
        else:
            self._save_partitioned(name.base, msgspec.structs.replace(partitioned, overrides=overrides))
        topics = self._logs_of(name)
        self._broker.apply_policies(topics)
        report_overrides(self._broker.event, name.base.full if partitioned else name.full, before, overrides, "topic")
        if _targets_changed(before, overrides):
            self._broker.replication.targets_changed(topics)

    def settings_changed(self) -> None:
        self._policies.clear()
        for topics in self.topics_of.values():
            self._broker.apply_policies(topics)

    # -- topics

    def exists(self, name: TopicName) -> bool:
        return self.exists_full(name.namespace_full, name.full)

    def exists_full(self, namespace: str, full: str) -> bool:
        return full in self.topics_of.get(namespace, ())

    def schema_owner(self, name: TopicName) -> TopicName:
        """The topic whose schema this one has: that of a partition is the partitioned topic's, and that of a topic
        that is not persistent belongs to the persistent one of its name, if there is one.
        """
        own = name.base
        twin = own if own.is_persistent else TopicName.parse(f"{PERSISTENT}://{own.namespace_full}/{own.local}")
        return twin if twin.full in self.partitioned or self.exists(twin) else own

    def has_relatives(self, name: TopicName) -> bool:
        """Whether another topic shares its schema: the same name, persistent or not, partitioned or not, or one of
        its partitions.
        """
        own = f"{name.namespace_full}/{name.base.local}"
        for full in (f"{PERSISTENT}://{own}", f"{NON_PERSISTENT}://{own}"):
            if full in self.partitioned or self.exists_full(name.namespace_full, full):
                return True
        if not name.is_partition:
            return False
        # Needed only for a partition that was left without its partitioned topic.
        others = self.topics_of.get(name.namespace_full, ())
        return any(TopicName.parse(full).base.local == name.base.local for full in others)

    def properties_of(self, name: TopicName) -> dict[str, str]:
        """Of an existing topic, partition or partitioned topic."""
        kept = self.partitioned.get(name.full) or self.topics.get(name.full)
        return self.non_persistent.get(name.full, {}) if kept is None else kept.properties

    def set_properties(self, name: TopicName, properties: dict[str, str]) -> None:
        """Of an existing topic or partitioned topic."""
        self.check_readable(name)
        if name.full in self.partitioned:
            partitioned = self.partitioned[name.full]
            self._save_partitioned(name, msgspec.structs.replace(partitioned, properties=properties))
        elif name.full in self.topics:
            self.save_topic(name, msgspec.structs.replace(self.topics[name.full], properties=properties))
        else:
            self.non_persistent[name.full] = properties

    def save_topic(self, name: TopicName, topic_record: TopicRecord) -> None:
        self.topics[name.full] = topic_record
        self._save(keys.TOPIC, name.full, topic_record)
        self._broker.recorded(name, topic_record)

    def create(self, name: TopicName, properties: dict[str, str]) -> None:
        """Creates a plain topic or one partition."""
        self.check_namespace(name)
        if self.exists(name) or name.full in self.partitioned:
            raise AlreadyExists("This topic already exists")
        self._check_limit(name, 1)
        self._add(name, properties)

    def create_partitioned(self, name: TopicName, partitions: int, properties: dict[str, str]) -> None:
        """Creates a partitioned topic and all its partitions in one transaction."""
        self.check_namespace(name)
        self._check_partition_count(partitions)
        if name.is_partition:
            raise NotAllowed(f"{name.full} is the name of a partition and cannot be partitioned")
        if self.exists(name) or name.full in self.partitioned:
            raise AlreadyExists("This topic already exists")
        self._check_limit(name, partitions)
        self._save_partitioned(name, PartitionedRecord(partitions, properties))
        for index in range(partitions):
            if not self.exists(name.with_partition(index)):
                self._add(name.with_partition(index), dict(properties))
        self._broker.replication.topic_changed(name)

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
        grown_from = partitioned.grown_from or (partitioned.partitions if partitions > partitioned.partitions else 0)
        grown = msgspec.structs.replace(partitioned, partitions=partitions, grown_from=grown_from)
        self._save_partitioned(name, grown)
        for index in range(partitions):
            if not self.exists(name.with_partition(index)):
                self._add(name.with_partition(index), dict(partitioned.properties))
        self._broker.replication.topic_changed(name)

    def forget_partitioned(self, name: TopicName) -> None:
        del self.partitioned[name.full]
        self._broker.damage.clear("topic", name.full)
        self._broker.commits.batch().delete(keys.named(keys.PARTITIONED, name.full))
        self._broker.replication.topic_deleted(name)

    def forget(self, name: TopicName) -> None:
        """Removes a topic that was deleted."""
        self.topics.pop(name.full, None)
        self.damaged.pop(name.full, None)
        self._broker.damage.clear_topic(name.full)
        self.non_persistent.pop(name.full, None)
        self.topics_of[name.namespace_full].pop(name.full, None)
        self.dead_letter_topics_of.get(name.namespace_full, {}).pop(name.full, None)
        self._broker.event(TOPIC_DELETED, topic=name.full)
        self._broker.replication.topic_deleted(name)

    def _add(self, name: TopicName, properties: dict[str, str]) -> None:
        self._list(name.full)
        origin = "auto-created" if WAS_AUTO_CREATED in properties else "explicit"
        self._broker.event(TOPIC_CREATED, topic=name.full, origin=origin)
        if not name.is_persistent:
            self.non_persistent[name.full] = properties
            return
        batch = self._broker.commits.batch()
        topic_record = TopicRecord(
            id=self._broker.next_id(batch), properties=properties, created_ms=self._broker.now_ms()
        )
        self.topics[name.full] = topic_record
        batch.put(keys.named(keys.TOPIC, name.full), record.encode(topic_record))
        self._broker.created(name, topic_record)
        self._broker.replication.topic_changed(name)

    def _save_partitioned(self, name: TopicName, partitioned: PartitionedRecord) -> None:
        self.partitioned[name.full] = partitioned
        self._broker.damage.clear("topic", name.full)
        self._save(keys.PARTITIONED, name.full, partitioned)

    def _save(self, kind: bytes, name: str, kept: record.Record) -> None:
        self._broker.commits.put(keys.named(kind, name), record.encode(kept))

    def _list(self, full: str) -> None:
        name = TopicName.parse(full)
        self.topics_of.setdefault(name.namespace_full, {})[full] = None
        if name.is_persistent and self.holds_dead_letters(name):
            self.dead_letter_topics_of.setdefault(name.namespace_full, {})[full] = None

    def _check_limit(self, name: TopicName, more: int) -> None:
        limit = self.policies_of(name.namespace_full).max_topics
        if 0 < limit < len(self.topics_of[name.namespace_full]) + more:
            raise NotAllowed(
                f"namespace {name.namespace_full} has {len(self.topics_of[name.namespace_full])} topics,"
                f" {more} more would exceed maxTopicsPerNamespace {limit}"
            )

    def _check_partition_count(self, partitions: int) -> None:
        if partitions <= 0:
            raise PartitionCountInvalid("Number of partitions should be more than 0")
        limit = self._broker.settings.maxNumPartitionsPerPartitionedTopic or PARTITIONS.limit
        if partitions > limit:
            raise PartitionCountInvalid(f"Number of partitions should be less than or equal to {limit}")


def _targets_changed(before: Overrides, after: Overrides) -> bool:
    return before.replication_clusters != after.replication_clusters

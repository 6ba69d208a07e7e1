"""Records that the catalog stores: clusters, tenants, namespaces, topics and subscriptions."""

from __future__ import annotations

import msgspec

from magnetar.broker.catalog.failure_policy import BreakerPolicy, DeadLetterPolicy
from magnetar.broker.catalog.policies import Overrides

WAS_AUTO_CREATED = "wasAutoCreated"  # a property of topics


class TenantRecord(msgspec.Struct, omit_defaults=True):
    admin_roles: list[str] = []
    allowed_clusters: list[str] = []


class ClusterRecord(msgspec.Struct, omit_defaults=True):
    """Addresses of a remote cluster and our credentials there; empty fields fall back to the settings."""

    service_url: str = ""
    service_url_tls: str = ""
    broker_service_url: str = ""
    broker_service_url_tls: str = ""
    authentication_plugin: str = ""
    authentication_parameters: str = ""
    broker_client_tls_enabled: bool = False
    tls_allow_insecure_connection: bool = False
    broker_client_trust_certs_file_path: str = ""
    broker_client_certificate_file_path: str = ""
    broker_client_key_file_path: str = ""

    def __repr__(self) -> str:
        return f"ClusterRecord({self.broker_service_url or self.broker_service_url_tls or self.service_url!r}, …)"


class NamespaceRecord(msgspec.Struct, omit_defaults=True):
    """`permissions` are the actions of each role, `subscription_permissions` the roles of each subscription.

    `topic_permissions` are the actions of each role by full topic name, for a partitioned topic under its own name.
    They are here, and not with the topic, since a non-persistent topic has no record.
    """

    properties: dict[str, str] = {}
    overrides: Overrides = msgspec.field(default_factory=Overrides)
    permissions: dict[str, list[str]] = {}
    subscription_permissions: dict[str, list[str]] = {}
    topic_permissions: dict[str, dict[str, list[str]]] = {}

    @property
    def access(self) -> tuple[object, ...]:
        """What decides what roles may do here: equal if no right has changed."""
        mode = self.overrides.subscription_auth_mode
        return self.permissions, self.subscription_permissions, self.topic_permissions, mode


class PartitionedRecord(msgspec.Struct, omit_defaults=True):
    """Overrides and marks apply to every partition. `grown_from`: partitions before the first growth, or 0."""

    partitions: int
    properties: dict[str, str] = {}
    overrides: Overrides = msgspec.field(default_factory=Overrides)
    grown_from: int = 0
    holds_dead_letters: bool = False
    holds_retries: bool = False


class TopicRecord(msgspec.Struct, omit_defaults=True):
    """The marks: a dead letter policy, of the broker or of a client, sent dead letters or retries to this topic.

    `ledger`: the ledger of its message ids, 0 for `id`. `former_ledgers`: those of before a loss, with the number of
    entries from then that are left; ids of the former ledgers are the same in the new one.
    """

    id: int
    properties: dict[str, str] = {}
    epoch: int = -1
    terminated: bool = False
    holds_dead_letters: bool = msgspec.field(default=False, name="holds_letters")
    holds_retries: bool = False
    created_ms: int = 0  # 0: created before this was recorded
    overrides: Overrides = msgspec.field(default_factory=Overrides)
    ledger: int = 0
    former_ledgers: dict[int, int] = {}

    @property
    def ledger_id(self) -> int:
        return self.ledger or self.id


class SubscriptionRecord(msgspec.Struct, omit_defaults=True):
    """`dead_letters_from`: the origin of that policy. `paused`: why delivery is paused, empty if it is not.

    `begins`: the first entry it ever was to read, of a topic that keeps what no subscription has read; else 0.
    """

    id: int
    properties: dict[str, str] = {}
    replicated: bool = False
    dead_letters: DeadLetterPolicy | None = None
    dead_letters_from: str = ""
    backoff_ms: list[int] = []
    breaker: BreakerPolicy | None = None
    paused: str = ""
    begins: int = 0


Record = ClusterRecord | TenantRecord | NamespaceRecord | PartitionedRecord | TopicRecord | SubscriptionRecord

encode = msgspec.msgpack.encode
decode_tenant = msgspec.msgpack.Decoder(TenantRecord).decode
decode_cluster = msgspec.msgpack.Decoder(ClusterRecord).decode
decode_namespace = msgspec.msgpack.Decoder(NamespaceRecord).decode
decode_partitioned = msgspec.msgpack.Decoder(PartitionedRecord).decode
decode_topic = msgspec.msgpack.Decoder(TopicRecord).decode
decode_subscription = msgspec.msgpack.Decoder(SubscriptionRecord).decode

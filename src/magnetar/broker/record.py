"""What the catalog keeps on disk about tenants, namespaces, topics and subscriptions."""

from __future__ import annotations

import msgspec


class TenantRecord(msgspec.Struct, omit_defaults=True):
    admin_roles: list[str] = []
    allowed_clusters: list[str] = []


class NamespaceRecord(msgspec.Struct, omit_defaults=True):
    properties: dict[str, str] = {}


class PartitionedRecord(msgspec.Struct, omit_defaults=True):
    partitions: int
    properties: dict[str, str] = {}


class TopicRecord(msgspec.Struct, omit_defaults=True):
    id: int
    properties: dict[str, str] = {}
    epoch: int = -1
    terminated: bool = False


class SubscriptionRecord(msgspec.Struct, omit_defaults=True):
    id: int
    properties: dict[str, str] = {}
    replicated: bool = False


encode = msgspec.msgpack.encode
decode_tenant = msgspec.msgpack.Decoder(TenantRecord).decode
decode_namespace = msgspec.msgpack.Decoder(NamespaceRecord).decode
decode_partitioned = msgspec.msgpack.Decoder(PartitionedRecord).decode
decode_topic = msgspec.msgpack.Decoder(TopicRecord).decode
decode_subscription = msgspec.msgpack.Decoder(SubscriptionRecord).decode

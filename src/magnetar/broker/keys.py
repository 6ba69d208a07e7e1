"""Keys of the storage: big-endian, and sorted so that data read together is stored together. The only byte layouts.

entries   topic u64 | last entry of a run u64      -> the run (see `run`)
state     'A' tenant                               -> TenantRecord
          'B' setting name                         -> dynamic value as text
          'D' tenant/namespace/name                -> PipelineRecord, of a declared pipeline
          'K' cluster name                         -> ClusterRecord
          'N' tenant/namespace                     -> NamespaceRecord
          'P' base topic name                      -> PartitionedRecord
          'T' topic name                           -> TopicRecord
          'W' cluster \\0 tenant/namespace[/topic] -> RoutePolicy of routes to the cluster
          'V' tenant/namespace/topic \\0 version u64 -> VersionRecord, of a schema
          'S' topic u64 | subscription name        -> SubscriptionRecord
          'c' subscription u64                     -> mark-delete entry i64
          'd' topic u64 | producer name            -> sequence i64 | last use ms u64
          'r' topic u64 | producer name            -> the same, of pipelines that replicate
          'R' topic u64 | producer name            -> source ledger u64 | entry u64 | last use ms u64
          'f' topic u64                            -> first entry u64 | bytes before it u64
          'l' topic u64 | deliver at ms u64 | entry u64 -> nothing (the index of delayed messages)
          'p' subscription u64 | entry u64         -> EntryState of an unacknowledged or out-of-order entry
          '#'                                      -> last id given to a topic or a subscription u64
          '@'                                      -> name of the cluster that the data belongs to
"""

from __future__ import annotations

import struct

ID = struct.Struct(">Q")
PAIR = struct.Struct(">QQ")
SIGNED = struct.Struct(">q")
SEQUENCE = struct.Struct(">qQ")
REPLICATED_POSITION = struct.Struct(">QQQ")

CLUSTER, DYNAMIC_SETTING, SCHEMA, ROUTE, PIPELINE = b"K", b"B", b"V", b"W", b"D"
TENANT, NAMESPACE, PARTITIONED, TOPIC, SUBSCRIPTION = b"A", b"N", b"P", b"T", b"S"
REPLICATED, PULSAR_REPLICATED = b"r", b"R"
CURSOR, DEDUPLICATION, FIRST, DELAYED, POSITION, LAST_ID = b"c", b"d", b"f", b"l", b"p", b"#"
OWN_CLUSTER = b"@"


def named(kind: bytes, name: str) -> bytes:
    return kind + name.encode()


def under(kind: bytes, owner: int, rest: bytes = b"") -> bytes:
    """A key of `kind` of one topic or subscription."""
    return kind + ID.pack(owner) + rest


def after(prefix: bytes) -> bytes:
    """The first key that does not start with `prefix`: the end of its range."""
    head, last = prefix[:-1], prefix[-1]
    return head + bytes([last + 1]) if last < 255 else after(head)

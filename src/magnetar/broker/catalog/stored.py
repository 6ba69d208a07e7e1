"""Catalog records on disk, read at start: one that cannot be read is noted as damaged, and the others are used.

Owns what takes the place of an unreadable record, such that nothing is deleted, copied or forgotten because of it:

    cluster              no address: its routes wait, and their positions stay
    tenant               of this cluster, without roles
    namespace            its topics are served, and keep every message until policies are set again
    partitioned topic    as many partitions as there are topics of its name; they keep every message
    topic                none: it is listed, refused with the reason, and can be deleted by force
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from magnetar.broker import keys
from magnetar.broker.catalog.policies import BacklogQuota, Overrides, QuotaKind, QuotaPolicy, Retention
from magnetar.broker.catalog.record import NamespaceRecord, PartitionedRecord
from magnetar.broker.damage_list import UNREADABLE, DamageKind, DamageList
from magnetar.errors import InvalidName
from magnetar.names import PARTITION_SUFFIX, TopicName
from magnetar.storage.api import Space, Storage

R = TypeVar("R")


def read(
    storage: Storage,
    kind: bytes,
    decode: Callable[[bytes], R],
    note: Callable[[str, bytes, Exception], R | None],
) -> dict[str, R]:
    """All records of a kind. `note` gets those that cannot be read, and returns what takes their place, if anything."""
    found: dict[str, R] = {}
    for key, value in storage.scan(Space.STATE, kind, keys.after(kind)):
        name = key[1:].decode(errors="backslashreplace")
        try:
            key[1:].decode()  # a name that is not text is a part of the record that cannot be read
            found[name] = decode(value)
        except UNREADABLE as error:
            instead = note(name, value, error)
            if instead is not None:
                found[name] = instead
    return found


def noting(damage: DamageList, kind: DamageKind, instead: Callable[[], R]) -> Callable[[str, bytes, Exception], R]:
    """For `read`: the record is damaged, and another one takes its place."""

    def note(name: str, value: bytes, error: Exception) -> R:
        damage.note(kind, name, error)
        return instead()

    return note


def namespace() -> NamespaceRecord:
    return NamespaceRecord(overrides=keeping_everything())


def partitioned(name: str, topics: list[str]) -> PartitionedRecord:
    """Of a partitioned topic whose partitions are among `topics`."""
    prefix = name + PARTITION_SUFFIX
    indexes = [int(rest) for full in topics if full.startswith(prefix) and (rest := full[len(prefix) :]).isdecimal()]
    return PartitionedRecord(max(indexes, default=0) + 1, overrides=keeping_everything())


def keeping_everything() -> Overrides:
    """Policies that delete nothing, because those that were set are not known."""
    unlimited = BacklogQuota(-1, QuotaPolicy.producer_request_hold)
    return Overrides(retention=Retention(-1, -1), message_ttl_s=0, backlog_quotas=dict.fromkeys(QuotaKind, unlimited))


def is_topic(name: str) -> bool:
    try:
        return TopicName.parse(name).full == name
    except InvalidName:
        return False

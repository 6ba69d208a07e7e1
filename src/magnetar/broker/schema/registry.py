"""The schema registry: the versions of every schema.

A schema belongs to tenant/namespace/topic: the partitions of a topic share it. Versions count from 0 and never change.
A deleted schema leaves a mark, so that no version number is used twice; a schema deleted by force or with its topic
leaves nothing. `examination` finds out which schemas may follow each other, `admission` what clients may bring.

Versions are read from disk on first use. A version that is not durable yet stays in memory until it is.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from magnetar.bounds import SCHEMA_CACHE, SCHEMA_HISTORY
from magnetar.broker import keys
from magnetar.broker.commit import Commits
from magnetar.broker.damage_list import UNREADABLE, DamageList
from magnetar.broker.schema.examination import Examination
from magnetar.errors import InvalidSchema, SchemaDamaged
from magnetar.names import TopicName
from magnetar.schema.types import Schema, SchemaType
from magnetar.storage.api import Batch, Space, Storage, StorageError

HISTORY_SIZE_MAX = SCHEMA_HISTORY.limit
"""Bytes of all versions of one schema: a new one is compared with all of them, in memory."""

CACHE_SIZE_MAX = SCHEMA_CACHE.limit
"""Bytes of the most recently used schemas, which are kept in memory."""

_OVERHEAD = 300  # Python's own, per version and per list of versions


class VersionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored form. `is_deleted` marks the deletion of all versions before it."""

    schema: Schema
    created_ms: int
    is_deleted: bool = False


_encode = msgspec.msgpack.encode
_decode = msgspec.msgpack.Decoder(VersionRecord).decode


class Version(msgspec.Struct, frozen=True):
    number: int
    schema: Schema
    created_ms: int


class _History:
    """The versions of one schema, oldest first."""

    __slots__ = ("next_number", "versions")

    def __init__(self) -> None:
        self.versions: list[Version] = []
        self.next_number = 0

    @property
    def size(self) -> int:
        return _OVERHEAD + sum(version.schema.size + _OVERHEAD for version in self.versions)

    def add(self, number: int, record: VersionRecord) -> None:
        self.next_number = number + 1
        if record.is_deleted:
            self.versions = []
        else:
            self.versions.append(Version(number, record.schema, record.created_ms))


class SchemaRegistry:
    def __init__(self, storage: Storage, commits: Commits, now_ms: Callable[[], int], damage: DamageList) -> None:
        self._storage = storage
        self._commits = commits
        self._now_ms = now_ms
        self._damage = damage
        self._histories: dict[str, _History] = {}  # the most recently used one is the last
        self._unwritten: Counter[str] = Counter()
        self._ready: Examination | None = None
        self.cached_bytes = 0

    # -- queries

    def versions(self, schema_id: str) -> list[Version]:
        """Oldest first; empty for a schema that does not exist or was deleted."""
        return self._history(schema_id).versions

    def latest(self, schema_id: str) -> Version | None:
        versions = self.versions(schema_id)
        return versions[-1] if versions else None

    def at(self, schema_id: str, number: int) -> Version | None:
        return next((version for version in self.versions(schema_id) if version.number == number), None)

    def find(self, schema_id: str, schema: Schema) -> Version | None:
        """The version that equals this schema; raises InvalidSchema."""
        return self.examination(schema_id, schema).find()

    def check_compatible(self, schema_id: str, schema: Schema, strategy: str) -> None:
        """Raises unless the schema may become the next version."""
        self.examination(schema_id, schema).check_compatible(strategy)

    def check_reader(self, schema_id: str, schema: Schema, strategy: str) -> None:
        """Raises unless a consumer with this schema can read the topic."""
        self.examination(schema_id, schema).check_reader(strategy)

    def examination(self, schema_id: str, schema: Schema) -> Examination:
        """The one that was made ahead, if nothing has changed since; otherwise a new one."""
        versions, ready = self.versions(schema_id), self._ready
        return ready if ready is not None and ready.fits(schema, versions) else Examination(schema, versions, ready)

    @contextlib.contextmanager
    def using(self, ready: Examination | None) -> Iterator[None]:
        """While one command is handled, what was found out ahead of it counts."""
        self._ready = ready
        if ready is not None:
            ready.is_ready = True
        try:
            yield
        finally:
            self._ready = None

    # -- changes

    def put(self, schema_id: str, schema: Schema, strategy: str) -> int:
        """The number of the version that equals this schema, added if there is none and it is compatible."""
        found = self.examination(schema_id, schema).find_or_check(strategy)
        if found is not None:
            return found.number
        size = self._history(schema_id).size + schema.size
        if size > HISTORY_SIZE_MAX:
            raise InvalidSchema(
                f"all versions of schema {schema_id} would have {size} bytes, the limit is {HISTORY_SIZE_MAX}"
            )
        return self._add(schema_id, VersionRecord(schema, self._now_ms()))

    def copy(self, source: str, target: str) -> None:
        """Adds the later versions of `source` to `target` under the same numbers, for messages moved there.

        A target that has other versions keeps them alone: those who use it did not agree to more.
        """
        versions, known = self.versions(source), {version.number: version.schema for version in self.versions(target)}
        next_number = self._history(target).next_number
        if any(known.get(version.number, version.schema) != version.schema for version in versions):
            return
        for version in versions:
            if version.number >= next_number:
                self._add(target, VersionRecord(version.schema, version.created_ms), version.number)

    def delete(self, schema_id: str) -> int:
        """Returns the number of the mark."""
        self._drop_damaged(schema_id)
        self._commits.batch().delete_range(Space.STATE, *_range(schema_id))
        return self._add(schema_id, VersionRecord(Schema(SchemaType.NONE), self._now_ms(), is_deleted=True))

    def forget(self, schema_id: str, batch: Batch) -> None:
        """Deletes everything in `batch`: versions start from 0 again."""
        self._drop_damaged(schema_id)
        if not self._history(schema_id).next_number:
            return
        batch.delete_range(Space.STATE, *_range(schema_id))
        self._replace(schema_id, _History())
        self._keep_until_durable(schema_id)

    def _drop_damaged(self, schema_id: str) -> None:
        """Before a schema is deleted: one that cannot be read is taken for one of as many versions without content."""
        try:
            self._history(schema_id)
        except SchemaDamaged:
            self._damage.clear("schema", schema_id)
            prefix, end = _range(schema_id)
            history = _History()
            with contextlib.suppress(StorageError):  # then it starts from 0 again
                for key, _ in self._storage.scan(Space.STATE, prefix, end):
                    if len(key) == len(prefix) + keys.ID.size:
                        history.next_number = keys.ID.unpack_from(key, len(prefix))[0] + 1
            history.next_number = max(1, history.next_number)
            self._replace(schema_id, history)

    def forget_namespace(self, namespace: str, batch: Batch) -> None:
        start = keys.named(keys.SCHEMA, f"{namespace}/")
        batch.delete_range(Space.STATE, start, keys.after(start))
        for damage in self._damage.all():
            if damage.kind == "schema" and damage.name.startswith(f"{namespace}/"):
                self._damage.clear("schema", damage.name)
        for schema_id in [schema_id for schema_id in self._histories if schema_id.startswith(f"{namespace}/")]:
            self._replace(schema_id, _History())
            self._keep_until_durable(schema_id)

    def _add(self, schema_id: str, record: VersionRecord, number: int | None = None) -> int:
        history = self._history(schema_id)
        number, before = history.next_number if number is None else number, history.size
        group, value = self._commits.open(), _encode(record)
        group.durable = True
        group.batch.put(_range(schema_id)[0] + keys.ID.pack(number), value)
        group.grow(len(value))
        history.add(number, record)
        self.cached_bytes += history.size - before
        self._keep_until_durable(schema_id)
        return number

    # -- memory

    def _history(self, schema_id: str) -> _History:
        history = self._histories.pop(schema_id, None)
        if history is not None:
            self._histories[schema_id] = history  # as the last
            return history
        history = _History()
        prefix, end = _range(schema_id)
        try:
            for key, value in self._storage.scan(Space.STATE, prefix, end):
                history.add(keys.ID.unpack_from(key, len(prefix))[0], _decode(value))
        except UNREADABLE as error:
            reason = self._damage.note("schema", schema_id, error)
            raise SchemaDamaged(f"schema {schema_id} is damaged: {reason}; it can only be deleted") from error
        if self._damage:
            self._damage.clear("schema", schema_id)
        self._replace(schema_id, history)
        return history

    def _replace(self, schema_id: str, history: _History) -> None:
        old = self._histories.pop(schema_id, None)
        self._histories[schema_id] = history
        self.cached_bytes += history.size - (0 if old is None else old.size)
        self._shrink(schema_id)

    def _shrink(self, used: str) -> None:
        """Evicts the least recently used schemas, but neither `used` nor those that are not on disk yet."""
        if self.cached_bytes <= CACHE_SIZE_MAX:
            return
        for schema_id in list(self._histories):
            if schema_id != used and not self._unwritten[schema_id]:
                self.cached_bytes -= self._histories.pop(schema_id).size
                if self.cached_bytes <= CACHE_SIZE_MAX:
                    return

    def _keep_until_durable(self, schema_id: str) -> None:
        """Until then the disk has an older state, which must not be read."""
        self._unwritten[schema_id] += 1
        self._commits.after(lambda: self._written(schema_id))

    def _written(self, schema_id: str) -> None:
        self._unwritten[schema_id] -= 1
        if not self._unwritten[schema_id]:
            del self._unwritten[schema_id]
        self._shrink(schema_id)


def schema_id(name: TopicName) -> str:
    return f"{name.namespace_full}/{name.base.local}"


def _range(schema_id: str) -> tuple[bytes, bytes]:
    prefix = keys.named(keys.SCHEMA, schema_id) + b"\0"
    return prefix, keys.after(prefix)

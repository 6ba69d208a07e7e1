"""Schemas travel with the messages: the version that an entry names in the source, and the one it has to name remotely.

Owns the way between them, and remembers it for as long as the process lives. The remote cluster's own rules decide
whether it takes a schema; one that it does not take is a refusal of every message that has it (GR8).
"""

from __future__ import annotations

from magnetar.client import AsyncClient, Schema
from magnetar.client.admin.schemas import schema_to_wire
from magnetar.client.errors import IncompatibleSchema
from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.copy.refusal import MessageRefused
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.wire import schema_pb2 as pb

_Route = tuple[ClusterEndpoint, str, ClusterEndpoint, str]

_schemas: dict[tuple[ClusterEndpoint, str], dict[bytes, Schema]] = {}
_versions: dict[_Route, dict[bytes, bytes]] = {}


class Schemas:
    """Of one assignment. Versions are those of the source; b"" is no schema."""

    def __init__(self, assignment: Assignment, source: AsyncClient, remote: AsyncClient) -> None:
        self._assignment = assignment
        self._source = source
        self._remote = remote
        self._schemas = _schemas.setdefault((assignment.source, assignment.topic), {})
        route = (assignment.source, assignment.topic, assignment.remote, assignment.target)
        self._versions = _versions.setdefault(route, {})
        self._refusals: dict[bytes, str] = {}  # not for longer: rules are changed, and this assignment is short

    async def remote_version(self, version: bytes) -> bytes:
        """What an entry of that version has to name in the remote cluster; raises `MessageRefused`."""
        known = self._versions.get(version)
        if known is None:
            if version in self._refusals:
                raise MessageRefused(self._refusals[version])
            known = self._versions[version] = await self._registered(version)
        return known

    async def _registered(self, version: bytes) -> bytes:
        """A producer that has the schema registers it, if the remote cluster's rules allow that."""
        schema = await self.wire(version)
        try:
            async with await self._remote.entry_producer(self._assignment.target, schema=schema) as producer:
                return producer.schema_version or b""
        except IncompatibleSchema as error:
            raise self.refused(version, error) from None

    def refused(self, version: bytes, error: IncompatibleSchema) -> MessageRefused:
        """Remembers that the remote cluster does not take messages of that version."""
        what = f"schema version {_shown(version)}" if version else "messages without a schema"
        text = f"the remote cluster refuses {what} of {self._assignment.topic}: {error.text}"
        self._refusals[version] = text
        return MessageRefused(text)

    def is_refused(self, version: bytes) -> str | None:
        return self._refusals.get(version)

    def check(self, version: bytes, remote_version: bytes | None) -> None:
        """What the remote topic says now of that version: it may have been deleted and made again since."""
        if version and self._versions.get(version) not in (None, remote_version):
            self._versions.clear()

    async def wire(self, version: bytes) -> pb.Schema | None:
        """The schema of a version, as a producer says it."""
        return schema_to_wire(await self.source(version)) if version else None

    async def source(self, version: bytes) -> Schema:
        schema = self._schemas.get(version)
        if schema is None:
            found = await self._source.schema(self._assignment.topic, version)
            if found is None:
                raise MessageRefused(f"{self._assignment.topic} has no schema of version {_shown(version)} any more")
            schema = self._schemas[version] = found
        return schema

    def known(self, version: bytes | None) -> Schema | None:
        """One that was asked for by `source` before."""
        return None if version is None else self._schemas.get(version)


def _shown(version: bytes) -> str:
    return str(int.from_bytes(version, "big")) if len(version) == 8 else version.hex()

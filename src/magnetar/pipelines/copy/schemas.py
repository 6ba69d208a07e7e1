"""Schema versions of a topic in both clusters: each version of the source, and its version in the remote cluster.

Owns the mapping, and keeps it for the life of the process. The remote cluster's compatibility rules decide whether it
accepts a schema; if it does not, every message with that schema is refused (GR8).
"""

from __future__ import annotations

from magnetar.client import AsyncClient, Schema
from magnetar.client.errors import IncompatibleSchema
from magnetar.client.schema import schema_to_wire
from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.transform.refusal import MessageRefused
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import Problem
from magnetar.wire import schema_pb2 as pb

_Route = tuple[ClusterEndpoint, str, ClusterEndpoint, str]

_schemas: dict[tuple[ClusterEndpoint, str], dict[bytes, Schema]] = {}
_versions: dict[_Route, dict[bytes, bytes]] = {}


class Schemas:
    """The schemas of one assignment. Versions are those of the source; b"" is no schema."""

    def __init__(self, assignment: Assignment, source: AsyncClient, remote: AsyncClient) -> None:
        self._assignment = assignment
        self._source = source
        self._remote = remote
        self._schemas = _schemas.setdefault((assignment.source, assignment.topic), {})
        route = (assignment.source, assignment.topic, assignment.remote, assignment.target)
        self._versions = _versions.setdefault(route, {})
        self._refusals: dict[bytes, str] = {}  # for this short assignment only: rules may change

    async def remote_version(self, version: bytes) -> bytes:
        """The version in the remote cluster. Raises `MessageRefused`."""
        known = self._versions.get(version)
        if known is None:
            if version in self._refusals:
                raise MessageRefused(self._refusals[version], Problem.SCHEMA)
            known = self._versions[version] = await self._registered(version)
        return known

    async def _registered(self, version: bytes) -> bytes:
        """Opens a producer with the schema, which registers it if the remote cluster's rules allow that."""
        schema = await self.wire(version)
        try:
            async with await self._remote.entry_producer(self._assignment.target, schema=schema) as producer:
                return producer.schema_version or b""
        except IncompatibleSchema as error:
            raise self.refused(version, error) from None

    def refused(self, version: bytes, error: IncompatibleSchema) -> MessageRefused:
        """Records that the remote cluster refuses messages of that version."""
        what = f"schema version {_shown(version)}" if version else "messages without a schema"
        text = f"the remote cluster refuses {what} of {self._assignment.topic}: {error.text}"
        self._refusals[version] = text
        return MessageRefused(text, Problem.SCHEMA)

    def is_refused(self, version: bytes) -> str | None:
        return self._refusals.get(version)

    def check(self, version: bytes, remote_version: bytes | None) -> None:
        """Forgets all versions if the remote topic reports another one: it was deleted and created again."""
        if version and self._versions.get(version) not in (None, remote_version):
            self._versions.clear()

    async def wire(self, version: bytes) -> pb.Schema | None:
        """The schema of a version, for a producer."""
        return schema_to_wire(await self.source(version)) if version else None

    async def source(self, version: bytes) -> Schema:
        schema = self._schemas.get(version)
        if schema is None:
            found = await self._source.schema(self._assignment.topic, version)
            if found is None:
                raise MessageRefused(f"schema version {_shown(version)} of {self._assignment.topic} no longer exists")
            schema = self._schemas[version] = found
        return schema

    def known(self, version: bytes | None) -> Schema | None:
        """One that `source` returned before."""
        return None if version is None else self._schemas.get(version)


def _shown(version: bytes) -> str:
    return str(int.from_bytes(version, "big")) if len(version) == 8 else version.hex()

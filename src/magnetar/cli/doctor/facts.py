"""What is seen of a topic that is replicated, in the source and in the remote cluster: plain data.

`replication_questions` finds it out, `replication_causes` draws the conclusions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from magnetar.replication.model import DeclaredRoute, Status
from magnetar.replication.partitions import Decision

if TYPE_CHECKING:
    from magnetar.security.tls import Fault


class Trouble(StrEnum):
    """What opening a producer on the remote topic says."""

    TERMINATED = "terminated"
    QUOTA = "quota"
    AUTHORIZATION = "authorization"
    SCHEMA = "schema"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class SourceFacts:
    url: str
    cluster: str
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoteFacts:
    """A remote cluster, as it is declared and as it answers. Errors are texts, empty where there was none."""

    name: str
    http_url: str | None = None
    service_url: str | None = None
    trust_certs: str = ""  # for commands that ask the cluster itself
    token: str = ""  # the same: where it is, never the token
    token_file: str = ""  # as it is declared
    role: str = ""  # whose the declared token is, as far as it says so
    address_error: str = ""  # what is declared cannot be used
    security_error: str = ""  # the same of tokens and certificates; files may be there for the pipeline, and not here
    tls_error: str = ""
    tls_fault: Fault | None = None
    http_error: str = ""
    binary_error: str = ""
    authentication_error: str = ""
    own_name: str | None = None
    is_source: bool = False  # it is the very broker that is asked
    is_ours: bool | None = None
    twins: tuple[str, ...] = ()  # other declared clusters that are this one, too

    @property
    def address(self) -> str:
        return " and ".join(url for url in (self.service_url, self.http_url) if url)

    @property
    def is_reached(self) -> bool:
        return not (
            self.address_error
            or self.security_error
            or self.tls_error
            or self.http_error
            or self.binary_error
            or self.authentication_error
        )


@dataclass(frozen=True, slots=True)
class Waiting:
    """The first entry that is still to be copied."""

    topic: str
    position: str
    size: int


@dataclass(slots=True)
class TopicFacts:
    """One topic, as a whole, and one remote cluster.

    What was not asked, or could not be answered, is as if it were fine.
    """

    declared: DeclaredRoute
    target: str
    statuses: list[Status]
    cursors_missing: list[str] = field(default_factory=list)  # topics and partitions without their subscription
    parts_missing: list[str] = field(default_factory=list)  # partitions of the source that are not there
    missing_tenant: str = ""
    missing_namespace: str = ""
    decision: Decision | None = None
    remote_partitions: int | None = None
    deduplicates: bool | None = None
    troubles: dict[str, tuple[Trouble, str]] = field(default_factory=dict)  # by remote topic
    waiting: Waiting | None = None
    size_max: int | None = None
    size_limit_is_of_topic: bool = False
    schema_refusal: str = ""
    auto_update_is_off: bool = False
    maps_back: str = ""

    @property
    def worst(self) -> Status | None:
        """One that is not copied, the longest backlog first."""
        stuck = [status for status in self.statuses if not status.state.is_copying] or self.statuses
        return max(stuck, key=lambda status: status.backlog, default=None)

    @property
    def is_stuck(self) -> bool:
        return any(not status.state.is_copying for status in self.statuses)

"""Facts about a replicated topic, in the source and in the remote cluster: plain data.

`questions` collects them, `causes` draws conclusions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from magnetar.replication.model import DeclaredRoute, Status
from magnetar.replication.partitions import Decision

if TYPE_CHECKING:
    from magnetar.security.tls import Fault


class ProducerProblem(StrEnum):
    """The error of opening a producer on the remote topic."""

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
    """A remote cluster, as declared and as it responds. Errors are text, empty if there is none."""

    name: str
    http_url: str | None = None
    service_url: str | None = None
    trust_certs: str = ""  # for commands sent to the cluster
    token: str = ""  # the same: its path, never the token itself
    token_file: str = ""  # as declared
    role: str = ""  # the subject of the declared token, if it has one
    is_blind: bool = False  # its credentials are hidden from the doctor: what it refuses without them says nothing
    address_error: str = ""  # the declared address cannot be used
    security_error: str = ""  # the same for tokens and certificates; files may exist only where the pipeline runs
    tls_error: str = ""
    tls_fault: Fault | None = None
    http_error: str = ""
    binary_error: str = ""
    authentication_error: str = ""
    own_name: str | None = None
    is_source: bool = False  # the address leads back to the source
    is_ours: bool | None = None
    wrong_port: str = ""  # an HTTP port is declared as the binary one
    right_addresses: tuple[str, str] | None = None  # then: HTTP and binary, where they were found
    twins: tuple[str, ...] = ()  # other declared clusters with the same identity

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
class NextEntry:
    """The next entry to copy."""

    topic: str
    position: str
    size: int


@dataclass(slots=True)
class TopicFacts:
    """One topic, with all its partitions, and one remote cluster.

    A fact that could not be collected has the value of a healthy topic.
    """

    declared: DeclaredRoute
    target: str
    statuses: list[Status]
    cursors_missing: list[str] = field(default_factory=list)  # topics and partitions without a replication subscription
    parts_missing: list[str] = field(default_factory=list)  # missing partitions of the source
    missing_tenant: str = ""
    missing_namespace: str = ""
    decision: Decision | None = None
    remote_partitions: int | None = None
    deduplicates: bool | None = None
    producer_problems: dict[str, tuple[ProducerProblem, str]] = field(default_factory=dict)  # by remote topic
    next_entry: NextEntry | None = None
    size_max: int | None = None
    size_limit_is_of_topic: bool = False
    schema_refusal: str = ""
    auto_update_is_off: bool = False
    other_remotes: tuple[str, ...] = ()  # the other clusters that the topic goes to
    conditions: dict[str, str] = field(default_factory=dict)  # of a filter that fails, by scope: topic, namespace

    @property
    def worst(self) -> Status | None:
        """The status with the largest backlog, of those not copied if there are any."""
        stuck = [status for status in self.statuses if not status.state.is_copying] or self.statuses
        return max(stuck, key=lambda status: status.backlog, default=None)

    @property
    def is_stuck(self) -> bool:
        return any(not status.state.is_copying for status in self.statuses)

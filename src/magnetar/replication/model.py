"""What the parts of geo-replication tell each other: states, names, and the objects of its REST interface.

Brokers declare and show it, pipelines do it, commands ask about it; here are the words they share. Knows nothing of how
any of them works.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256

import msgspec

SUBSCRIPTION_PREFIX = "pulsar.repl."
"""The durable subscription of a source topic that says how far a remote cluster has it."""

FOREIGN_SUBSCRIPTION_PREFIX = "magnetar.repl."
"""The same on Apache Pulsar, which keeps the other prefix for its own replicators."""

PRODUCER_PREFIX = "magnetar.repl."
"""Names of the producers that write copies. What comes from them is deduplicated whatever the policies say."""

FOREIGN_PRODUCER_PREFIX = "pulsar.repl."
"""Producers of Apache Pulsar's replicators, whose messages are told apart by the position in the source."""

SOURCE_POSITION = "__MSG_PROP_REPL_SOURCE_POSITION"
"""Property of a copied entry: its ledger:entry in the source. The name is Apache Pulsar's."""

ROUTE = "magnetar.route"
"""Property of a copied message: which filter, masks or new topic name were applied to it."""

ROUTE_FINGERPRINT = "magnetar.route.fingerprint"
"""Property of a consumer that copies: the fingerprint of the route policy it copies under. The broker disconnects
consumers whose policy is no longer in force, so that nothing published after a change is copied under the old one."""


class State(StrEnum):
    """Of one topic, or one partition, and one remote cluster."""

    STARTING = "starting"
    RUNNING = "running"
    CATCHING_UP = "catching-up"
    WAITING = "waiting-for-remote-topic"
    MISMATCH = "partition-mismatch"
    REFUSED = "refused-by-remote"
    UNREACHABLE = "unreachable"
    PAUSED = "paused"
    STOPPED = "stopped"

    @property
    def is_copying(self) -> bool:
        return self in (State.RUNNING, State.CATCHING_UP)


class Mismatch(StrEnum):
    """What is copied where a topic has another number of partitions in the remote cluster."""

    PIP370 = "pip370"  # what the seed of PIP-370 says: partitions of the same index, where there are any
    STOP = "stop"  # nothing, as Apache Pulsar does


class Refusal(StrEnum):
    """What becomes of a message that the remote cluster refuses: its schema, its size."""

    STOP = "stop"  # the topic waits until somebody decides
    PARK = "park"  # it goes to a dead letter topic of replication in the source cluster
    SKIP = "skip"


class MaskKind(StrEnum):
    HASH = "hash"  # SHA-256 of the value, in hexadecimal
    NULL = "null"
    FIXED = "fixed"


class Mask(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What is hidden in the value of each message: a field by its dotted path, `address.street`."""

    field: str
    kind: MaskKind = MaskKind.HASH
    text: str = ""  # of a fixed one


class RoutePolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """The treatment of messages from a topic, or all topics of a namespace, to one remote cluster."""

    where: str = ""  # SQL: which messages are copied; all, if empty
    masks: tuple[Mask, ...] = ()
    rename: str = ""  # the topic in the remote cluster, with {tenant}, {namespace} and {topic}; the same, if empty
    refused: Refusal = Refusal.STOP
    dead_letters: bool = False  # whether -DLQ and -RETRY topics are copied as well
    paused: bool = False

    @property
    def changes_messages(self) -> bool:
        return bool(self.where or self.masks)


AS_IT_IS = RoutePolicy()


def route_fingerprint(remote: str, policy: RoutePolicy) -> str:
    return f"{remote}/{sha256(msgspec.json.encode(policy)).hexdigest()[:16]}"


_PATHS = ("file:", "tlsCertFile:", "tlsKeyFile:")


class ClusterAddress(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where a cluster is reached, and how: the words are those of Pulsar's cluster data."""

    service_url: str | None = None
    service_url_tls: str | None = None
    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    authentication_plugin: str = ""  # who we are there, in Pulsar's words
    authentication_parameters: str = ""
    broker_client_tls_enabled: bool = False  # whether the addresses with TLS are to be used
    tls_allow_insecure_connection: bool = False
    broker_client_trust_certs_file_path: str = ""
    broker_client_certificate_file_path: str = ""
    broker_client_key_file_path: str = ""

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        shown["authentication_parameters"] = without_secrets(self.authentication_parameters)
        return f"ClusterAddress({', '.join(f'{name}={value!r}' for name, value in shown.items() if value)})"


def without_secrets(parameters: str) -> str:
    """Parameters of authentication as they may be shown: the paths of files, and nothing that is a token."""
    return parameters if not parameters or parameters.startswith(_PATHS) else "(hidden)"


class DeclaredRoute(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One topic, as a whole, that is to be copied to one remote cluster."""

    topic: str  # persistent://tenant/namespace/name
    partitions: int  # 0: not partitioned
    remote: str
    policy: RoutePolicy = AS_IT_IS
    grown_from: int = 0  # the partitions it had before it was first given more; 0 if it never was
    subscriptions: tuple[str, ...] = ()  # those whose positions follow to the remote cluster


class Declaration(msgspec.Struct, frozen=True, rename="camel"):
    """All that a cluster wants to be replicated. `version` is another one after every change."""

    version: str
    cluster: str
    creates_topics: bool  # createTopicToRemoteClusterForReplication
    mismatch: Mismatch  # partitionMismatch
    clusters: dict[str, ClusterAddress]
    topics: list[DeclaredRoute]


class Report(msgspec.Struct, rename="camel", omit_defaults=True):
    """How it stands with one topic that is not partitioned, or one partition, and one remote cluster."""

    topic: str
    remote: str
    state: State
    reason: str = ""
    error: str = ""  # the last one, which may be over
    since_ms: int = 0  # when it came into this state
    error_ms: int = 0
    entries_out: int = 0  # since the pipeline started
    messages_out: int = 0
    bytes_out: int = 0


class Reports(msgspec.Struct, rename="camel"):
    """What a pipelines process tells, at least every few seconds: only rows that changed, unless `is_all`."""

    pipeline: str  # one id for each start of a process
    is_all: bool
    rows: list[Report]


class Status(msgspec.Struct, rename="camel"):
    """A report with what only the source's broker knows."""

    topic: str
    remote: str
    state: State
    reason: str
    since_ms: int
    last_error: str
    last_error_ms: int
    backlog: int  # entries, as Apache Pulsar counts it
    backlog_bytes: int
    delay_s: float  # how long the oldest message that is not copied has waited
    rate_out: float  # messages a second
    throughput_out: float  # bytes a second
    has_heartbeat: bool = False  # whether a pipelines process reports
    policy: RoutePolicy = AS_IT_IS
    messages_out: int = 0  # since the pipeline started
    bytes_out: int = 0


def subscription_of(remote: str) -> str:
    return SUBSCRIPTION_PREFIX + remote


def is_replication_subscription(name: str) -> bool:
    """Whether a subscription of a persistent topic is the broker's own: the position of a route."""
    return name.startswith(SUBSCRIPTION_PREFIX)


def remote_of(subscription: str) -> str:
    """The remote cluster of a replication subscription."""
    return subscription.removeprefix(SUBSCRIPTION_PREFIX)


def is_pipeline_producer(name: str) -> bool:
    return name.startswith(PRODUCER_PREFIX)


def is_pulsar_replicator(name: str) -> bool:
    return name.startswith(FOREIGN_PRODUCER_PREFIX)


PARKED = "parked"  # instead of a cluster: refused messages that a pipeline sets aside in the source cluster itself


def source_of(producer: str) -> str:
    """The cluster whose messages a producer of this name replicates; empty if it replicates none.

    Our pipelines' names are `magnetar.repl.{cluster}/…`, those of Apache Pulsar's replicators
    `pulsar.repl.{cluster}-->{this one}`, or in older ones without the arrow.
    """
    if is_pipeline_producer(producer):
        cluster = producer.removeprefix(PRODUCER_PREFIX).partition("/")[0]
        return "" if cluster == PARKED else cluster
    if is_pulsar_replicator(producer):
        return producer.removeprefix(FOREIGN_PRODUCER_PREFIX).partition("-->")[0]
    return ""

"""The model of geo-replication: states, route policies, names, and the objects of its REST interface.

Brokers declare routes and show their status, pipelines copy, commands query. Knows nothing of how any of them works.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256

import msgspec

SUBSCRIPTION_PREFIX = "pulsar.repl."
"""The durable subscription of a source topic whose position is the last entry that a remote cluster has."""

FOREIGN_SUBSCRIPTION_PREFIX = "magnetar.repl."
"""The same on Apache Pulsar, which keeps the other prefix for its own replicators."""

PRODUCER_PREFIX = "magnetar.repl."
"""Names of the producers that write copies. Their entries are always deduplicated, whatever the policies."""

FOREIGN_PRODUCER_PREFIX = "pulsar.repl."
"""Producers of Apache Pulsar's replicators, whose entries are deduplicated by their position in the source."""

SOURCE_POSITION = "__MSG_PROP_REPL_SOURCE_POSITION"
"""Property of a copied entry: its ledger:entry in the source. The name is Apache Pulsar's."""

ROUTE = "magnetar.route"
"""Property of a copied message: the filter, masks and new topic name that were applied to it."""

PIPELINE = "magnetar.pipeline"
"""Property of a consumer by which a pipelines process waits for messages of a topic. It does not keep the topic."""

ROUTE_FINGERPRINT = "magnetar.route.fingerprint"
"""Property of a consumer that copies: the fingerprint of the route policy it copies under. The broker disconnects
consumers whose policy is no longer in force, so that nothing published after a change is copied under the old one."""


COPY_OF = "magnetar.copyOf"
"""Property of a topic that was created for copies of a topic with another name, `{cluster}/{topic}`. It is not
replicated itself: two clusters that rename would create topics in each other, with longer and longer names."""


PARKED_SUFFIX = "-REPL-DLQ"
"""Ends the name of a topic with refused messages, as they were published: without a mask, and never replicated."""


class State(StrEnum):
    """The state of one topic, or one partition, and one remote cluster."""

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


class Process(StrEnum):
    """The pipelines process of a cluster, as its broker sees it."""

    REPORTING = "reporting"
    STARTING = "starting"  # by the broker, also again after it ended
    NEEDS_SPARK = "needs-spark"  # the broker would start it
    ABSENT = "absent"  # or it hangs


class Problem(StrEnum):
    """The subject of a reason, for those that look for its cause."""

    OTHER = ""
    MESSAGE = "message"  # it is unreadable, or its route policy cannot be applied, or the remote cluster refuses it
    SCHEMA = "schema"  # the remote cluster refuses it
    SIZE = "size"  # a message is too large for the remote cluster
    FILTER = "filter"  # the condition of the route policy cannot be evaluated
    AUTHENTICATION = "authentication"  # the remote cluster rejects the credentials
    AUTHORIZATION = "authorization"  # it knows their role, which has no right to publish
    CREATION = "creation"  # nor to create or grow the topic


class Mismatch(StrEnum):
    """The policy for a topic that has another number of partitions in the remote cluster."""

    PIP370 = "pip370"  # partitions with the same index are copied, as PIP-370 has it
    STOP = "stop"  # nothing is copied, as in Apache Pulsar


class Refusal(StrEnum):
    """The policy for a message that the remote cluster refuses, for example because of its schema or size."""

    STOP = "stop"  # the topic waits for an operator
    PARK = "park"  # the message goes to a dead letter topic in the source cluster
    SKIP = "skip"


class MaskKind(StrEnum):
    HASH = "hash"  # SHA-256 of the value, in hexadecimal
    NULL = "null"
    FIXED = "fixed"


class Mask(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A hidden field in the value of each message, by its dotted path, for example `address.street`."""

    field: str
    kind: MaskKind = MaskKind.HASH
    text: str = ""  # for kind fixed


class RoutePolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """The changes to messages of a topic, or all topics of a namespace, for one remote cluster."""

    where: str = ""  # Spark SQL condition for the messages to copy; empty: all
    masks: tuple[Mask, ...] = ()
    rename: str = ""  # the name in the remote cluster, with {tenant}, {namespace}, {topic}; empty: the same
    refused: Refusal = Refusal.STOP
    dead_letters: bool = False  # copies -DLQ and -RETRY topics as well
    paused: bool = False

    @property
    def changes_messages(self) -> bool:
        return bool(self.where or self.masks)


AS_IT_IS = RoutePolicy()


def route_fingerprint(remote: str, policy: RoutePolicy) -> str:
    return f"{remote}/{sha256(msgspec.json.encode(policy)).hexdigest()[:16]}"


HIDDEN = "(hidden)"


class ClusterAddress(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The declared addresses and credentials of a cluster, in the terms of Pulsar's cluster data."""

    service_url: str | None = None
    service_url_tls: str | None = None
    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    authentication_plugin: str = ""  # our credentials there, in Pulsar's terms
    authentication_parameters: str = ""
    broker_client_tls_enabled: bool = False  # use the TLS addresses
    tls_allow_insecure_connection: bool = False
    broker_client_trust_certs_file_path: str = ""
    broker_client_certificate_file_path: str = ""
    broker_client_key_file_path: str = ""
    folders: tuple[str, ...] | None = None  # that files must be below
    has_hidden_credentials: bool = False  # there is a secret, which is left out here
    role: str = ""  # of hidden credentials, if they name one
    credentials_note: str = ""  # why there are none, although the settings have some

    @property
    def without_secret(self) -> ClusterAddress:
        """For everyone but the processes of this broker: with paths of files, which others may have too."""
        if self._shown_parameters == self.authentication_parameters:
            return self
        return msgspec.structs.replace(
            self,
            authentication_plugin="",
            authentication_parameters="",
            has_hidden_credentials=True,
            role=_role_of(self.authentication_plugin, self.authentication_parameters),
        )

    @property
    def _shown_parameters(self) -> str:
        return without_secrets(self.authentication_parameters, self.authentication_plugin)

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__struct_fields__}
        shown["authentication_parameters"] = self._shown_parameters
        return f"ClusterAddress({', '.join(f'{name}={value!r}' for name, value in shown.items() if value)})"


def _role_of(plugin: str, parameters: str) -> str:
    """The user, or the subject of a token; empty where finding it out would take a request."""
    from magnetar.client.errors import ClientError
    from magnetar.security.credentials import Security
    from magnetar.security.token import subject_of

    try:
        found = Security.from_pulsar({"authPluginClassName": plugin, "authParams": parameters})
    except ClientError:  # they cannot be used, which is reported by those who connect
        return ""
    return found.username or subject_of(found.token) or ""


def without_secrets(parameters: str, plugin: str = "") -> str:
    """Authentication parameters that may be shown: paths of files, never a token or a password.

    The plugin decides what is a path. Without it, what would be one for any of them is.
    """
    from magnetar.settings.refused import names_files

    if not parameters or names_files(plugin, parameters):
        return parameters
    return f"token:{HIDDEN}" if parameters.startswith("token:") else HIDDEN


class DeclaredRoute(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A topic, with all its partitions, and one remote cluster to copy it to."""

    topic: str  # persistent://tenant/namespace/name
    partitions: int  # 0: without partitions
    remote: str
    policy: RoutePolicy = AS_IT_IS
    grown_from: int = 0  # the partitions before it first grew; 0 if it never did
    subscriptions: tuple[str, ...] = ()  # replicated ones, whose positions follow to the remote cluster
    clash: str = ""  # why it is not copied: another topic has the same name in the remote cluster


class Declaration(msgspec.Struct, frozen=True, rename="camel"):
    """All routes of a cluster. `version` differs after every change."""

    version: str
    cluster: str
    creates_topics: bool  # createTopicToRemoteClusterForReplication
    mismatch: Mismatch  # partitionMismatch
    clusters: dict[str, ClusterAddress]  # without secrets
    topics: list[DeclaredRoute]
    clusters_version: str = ""  # of the `Handover` that has their credentials


class Report(msgspec.Struct, rename="camel", omit_defaults=True):
    """The state of one topic without partitions, or one partition, and one remote cluster."""

    topic: str
    remote: str
    state: State
    reason: str = ""
    error: str = ""  # the last one, which may be over
    since_ms: int = 0  # when it entered this state
    error_ms: int = 0
    problem: Problem = Problem.OTHER
    entries_out: int = 0  # since the pipeline started
    messages_out: int = 0
    bytes_out: int = 0


class Reports(msgspec.Struct, rename="camel"):
    """The heartbeat of a pipelines process: the rows that changed, or all."""

    pipeline: str  # an id for each start of the process
    is_all: bool
    rows: list[Report]


class Status(msgspec.Struct, rename="camel"):
    """A report, and the figures that only the source's broker has."""

    topic: str
    remote: str
    state: State
    reason: str
    since_ms: int
    last_error: str
    last_error_ms: int
    backlog: int  # in entries, as in Apache Pulsar
    backlog_bytes: int
    delay_s: float  # the age of the oldest message that is not copied
    rate_out: float  # messages a second
    throughput_out: float  # bytes a second
    process: Process = Process.ABSENT
    problem: Problem = Problem.OTHER
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

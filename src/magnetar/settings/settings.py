"""Settings of a broker: Pulsar's names, with a default, the allowed values and one sentence each.

Owns the frozen `Settings` object, which is passed and never global. Knows neither files nor the command line. Creating
one checks every value, so a `Settings` object is valid. Settings that have no effect are not listed here and are
reported as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from magnetar.errors import InvalidSetting
from magnetar.settings.kinds import Choice, Choices, Flag, Kind, Listeners, Number, Port, Text, Whole
from magnetar.settings.listeners import Listener, find_listener, parse_listeners
from magnetar.settings.protection import DAY_SECONDS, INT_MAX, LONG_MAX, ProtectionSettings

DAY_MINUTES = 1_440

TopicCreationType = Literal["non-partitioned", "partitioned"]
BacklogPolicy = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
SchemaStrategy = Literal[
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
]
SubscriptionTypeName = Literal["Exclusive", "Shared", "Failover", "Key_Shared"]
PartitionMismatch = Literal["pip370", "stop"]
ReplicationStart = Literal["latest", "earliest"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]


_ADDRESS = r"[-.:%\w]+"


class Settings(ProtectionSettings, frozen=True, kw_only=True):
    """All settings of one broker."""

    # Addresses
    clusterName: Annotated[
        str,
        Text(
            r"[-=:.\w]+",
            "letters, digits and the characters - = : . _",
            "Name of the cluster, as clients and other clusters see it.",
        ),
    ] = "standalone"
    bindAddress: Annotated[
        str,
        Text(
            _ADDRESS,
            "a host name or an IP address",
            "Address that all ports listen on; other than loopback needs authentication, or `withoutAuthentication`.",
        ),
    ] = "127.0.0.1"
    advertisedAddress: Annotated[
        str,
        Text(
            _ADDRESS + "|",
            "a host name or an IP address",
            "Host that lookups return to clients; empty returns the address that the client connected to.",
        ),
    ] = ""
    advertisedListeners: Annotated[
        str,
        Listeners(
            "Addresses that lookups return, by the listener that a client names; for ports that are mapped"
            " and for several networks. See [Networks](#networks)."
        ),
    ] = ""
    internalListenerName: Annotated[
        str,
        Text(
            r"[-\w]{0,100}",
            "letters, digits and the characters - _",
            "Listener of clients that name none; empty is the first one of `advertisedListeners`.",
        ),
    ] = ""
    brokerServicePort: Annotated[
        int | None, Port("Port of the binary protocol; 0 picks a free port, empty turns it off.")
    ] = 6650
    webServicePort: Annotated[
        int | None,
        Port("Port of HTTP: administration, lookup and metrics; 0 picks a free port, empty turns it off."),
    ] = 8080

    # Log
    logLevel: Annotated[LogLevel, Choice(LogLevel, "Least important lines that are logged; see [log.md](log.md).")] = (
        "info"
    )
    logFormat: Annotated[LogFormat, Choice(LogFormat, "Lines of text, or one JSON object per line.")] = "text"
    slowCommitMillis: Annotated[
        int, Whole(0, DAY_SECONDS * 1000, "Duration of a commit from which it is logged as slow; 0 logs none.")
    ] = 1000

    # Topics
    enablePersistentTopics: Annotated[bool, Flag("Allow persistent topics.")] = True
    enableNonPersistentTopics: Annotated[bool, Flag("Allow non-persistent topics.")] = True
    allowAutoTopicCreation: Annotated[
        bool, Flag("Create a missing topic when a producer or consumer connects to it.")
    ] = True
    allowAutoTopicCreationType: Annotated[
        TopicCreationType, Choice(TopicCreationType, "Type of topics that are auto-created.")
    ] = "non-partitioned"
    defaultNumPartitions: Annotated[
        int, Whole(1, 65536, "Number of partitions of an auto-created partitioned topic.")
    ] = 1
    maxNumPartitionsPerPartitionedTopic: Annotated[
        int, Whole(0, INT_MAX, "Maximum partitions of a topic; 0 is no limit.")
    ] = 0
    maxTopicsPerNamespace: Annotated[
        int, Whole(0, INT_MAX, "Maximum topics of a namespace, counting each partition; 0 is no limit.")
    ] = 100_000

    # Administration
    forceDeleteNamespaceAllowed: Annotated[bool, Flag("Allow deleting a namespace together with its topics.")] = False
    forceDeleteTenantAllowed: Annotated[
        bool, Flag("Allow deleting a tenant together with its namespaces and topics.")
    ] = False
    exposeTopicLevelMetricsInPrometheus: Annotated[
        bool, Flag("Expose metrics per topic in `/metrics`; false exposes them per namespace only.")
    ] = True
    exposeConsumerLevelMetricsInPrometheus: Annotated[
        bool, Flag("Expose metrics per consumer in `/metrics`, if topic level metrics are exposed.")
    ] = False
    exposeProducerLevelMetricsInPrometheus: Annotated[
        bool, Flag("Expose metrics per producer in `/metrics`, if topic level metrics are exposed.")
    ] = False

    # Producers and consumers
    maxProducersPerTopic: Annotated[
        int, Whole(0, INT_MAX, "Maximum connected producers of a topic; 0 is no limit.")
    ] = 0
    maxSameAddressProducersPerTopic: Annotated[
        int, Whole(0, INT_MAX, "Maximum connected producers of a topic from one client address; 0 is no limit.")
    ] = 0
    maxConsumersPerTopic: Annotated[
        int, Whole(0, INT_MAX, "Maximum connected consumers of a topic; 0 is no limit.")
    ] = 0
    maxSameAddressConsumersPerTopic: Annotated[
        int, Whole(0, INT_MAX, "Maximum connected consumers of a topic from one client address; 0 is no limit.")
    ] = 0
    maxConsumersPerSubscription: Annotated[
        int, Whole(0, INT_MAX, "Maximum connected consumers of a subscription; 0 is no limit.")
    ] = 10_000
    maxSubscriptionsPerTopic: Annotated[int, Whole(0, INT_MAX, "Maximum subscriptions of a topic; 0 is no limit.")] = (
        10_000
    )

    # Deduplication
    brokerDeduplicationEnabled: Annotated[
        bool, Flag("Drop messages whose sequence id was already stored for their producer; they still get a receipt.")
    ] = False
    brokerDeduplicationMaxNumberOfProducers: Annotated[
        int, Whole(1, INT_MAX, "Maximum producers that a topic remembers for deduplication.")
    ] = 10000
    brokerDeduplicationProducerInactivityTimeoutMinutes: Annotated[
        int, Whole(1, INT_MAX, "Time after which a disconnected producer is forgotten by deduplication.")
    ] = 360

    # Retention and expiry
    defaultRetentionTimeInMinutes: Annotated[
        int,
        Whole(-1, INT_MAX, "Time for which acknowledged messages are retained; 0 retains none, -1 is no time limit."),
    ] = 0
    defaultRetentionSizeInMB: Annotated[
        int,
        Whole(
            -1,
            INT_MAX,
            "Megabytes of acknowledged messages that a topic retains; 0 retains none, -1 is no size limit.",
        ),
    ] = 0
    retentionCheckIntervalInSeconds: Annotated[
        int, Whole(1, DAY_SECONDS, "Interval at which messages that retention does not keep are deleted.")
    ] = 120
    managedLedgerMinLedgerRolloverTimeMinutes: Annotated[
        int,
        Whole(
            0,
            INT_MAX,
            "Time for which the newest messages of a topic stay even if all are acknowledged, as in an open ledger.",
        ),
    ] = 10
    managedLedgerMaxSizePerLedgerMbytes: Annotated[
        int,
        Whole(
            1, 1_048_576, "Megabytes of newest messages that stay even if all are acknowledged, as in an open ledger."
        ),
    ] = 2048
    ttlDurationDefaultInSeconds: Annotated[
        int, Whole(0, INT_MAX, "Age at which an unacknowledged message expires; 0 is never.")
    ] = 0
    messageExpiryCheckIntervalInMinutes: Annotated[
        int, Whole(1, DAY_MINUTES, "Interval at which expired messages are acknowledged.")
    ] = 5

    # Backlog quota
    backlogQuotaCheckEnabled: Annotated[bool, Flag("Enforce backlog quotas.")] = True
    backlogQuotaCheckIntervalInSeconds: Annotated[
        int, Whole(1, DAY_SECONDS, "Interval at which backlogs are checked against their quota.")
    ] = 60
    backlogQuotaDefaultLimitBytes: Annotated[
        int, Whole(-1, LONG_MAX, "Default backlog quota of a topic in bytes; -1 is no limit.")
    ] = -1
    backlogQuotaDefaultLimitGB: Annotated[
        float,
        Number(-1, INT_MAX, "The same in gigabytes: an older setting, which takes precedence if it is above 0."),
    ] = -1.0
    backlogQuotaDefaultLimitSecond: Annotated[
        int,
        Whole(
            -1,
            INT_MAX,
            "Default backlog quota of a topic as the age of its oldest unacknowledged message; -1 is no limit.",
        ),
    ] = -1
    backlogQuotaDefaultRetentionPolicy: Annotated[
        BacklogPolicy,
        Choice(
            BacklogPolicy,
            "Action at the quota: hold producers, reject producers, or evict the oldest messages of the backlog.",
        ),
    ] = "producer_request_hold"

    # Schemas
    schemaCompatibilityStrategy: Annotated[
        SchemaStrategy,
        Choice(SchemaStrategy, "Default compatibility check of a new schema version against earlier ones."),
    ] = "FULL"
    isSchemaValidationEnforced: Annotated[bool, Flag("Reject producers without a schema on a topic that has one.")] = (
        False
    )
    isAllowAutoUpdateSchemaEnabled: Annotated[
        bool, Flag("Allow producers and consumers to register new schema versions.")
    ] = True

    # Subscriptions
    allowAutoSubscriptionCreation: Annotated[
        bool, Flag("Create a missing subscription when a consumer connects to it.")
    ] = True
    subscriptionBacklogScanMaxEntries: Annotated[
        int, Whole(1, INT_MAX, "Maximum entries that an analysis of a backlog reads.")
    ] = 10_000
    subscriptionBacklogScanMaxTimeMs: Annotated[int, Whole(1, INT_MAX, "Maximum time of an analysis of a backlog.")] = (
        120_000
    )
    subscriptionTypesEnabled: Annotated[
        frozenset[str], Choices(SubscriptionTypeName, "Subscription types that consumers may use.")
    ] = frozenset(get_args(SubscriptionTypeName))
    subscriptionKeySharedEnable: Annotated[
        bool, Flag("Allow Key_Shared subscriptions; false removes Key_Shared from `subscriptionTypesEnabled`.")
    ] = True
    subscriptionKeySharedUseConsistentHashing: Annotated[
        bool,
        Flag("Assign the keys of Key_Shared by a hash ring; false splits the widest range for each new consumer."),
    ] = True
    subscriptionKeySharedConsistentHashingReplicaPoints: Annotated[
        int, Whole(1, 10_000, "Points of each consumer on that ring.")
    ] = 100
    keySharedLookAheadMsgInReplayThresholdPerConsumer: Annotated[
        int,
        Whole(
            0,
            INT_MAX,
            "Maximum held-back messages per consumer that Key_Shared reads ahead of; 0 is no limit.",
        ),
    ] = 4000
    keySharedLookAheadMsgInReplayThresholdPerSubscription: Annotated[
        int,
        Whole(0, INT_MAX, "The same for the whole subscription; the lower of the two limits applies, 0 is no limit."),
    ] = 40000
    activeConsumerFailoverDelayTimeMillis: Annotated[
        int,
        Whole(
            0,
            DAY_SECONDS * 1000,
            "Delay before a new active consumer of a Failover subscription gets messages.",
        ),
    ] = 1000
    activeConsumerFailoverConsistentHashing: Annotated[
        bool,
        Flag("Choose the active consumers of partitions by a hash ring; false assigns partitions in turn."),
    ] = False
    acknowledgmentAtBatchIndexLevelEnabled: Annotated[
        bool,
        Flag("Acknowledge single messages of a batch; true by default, unlike in Apache Pulsar."),
    ] = True
    maxUnackedMessagesPerConsumer: Annotated[
        int,
        Whole(0, INT_MAX, "Maximum unacknowledged messages of a consumer; delivery to it pauses above, 0 is no limit."),
    ] = 50000
    maxUnackedMessagesPerSubscription: Annotated[
        int,
        Whole(
            0,
            INT_MAX,
            "Maximum unacknowledged messages of all consumers of a shared subscription; 0 is no limit.",
        ),
    ] = 200000

    # Dispatch
    delayedDeliveryEnabled: Annotated[
        bool, Flag("Deliver messages at their delivery time; false delivers them immediately.")
    ] = True
    delayedDeliveryMaxDelayInMillis: Annotated[
        int, Whole(0, LONG_MAX, "Maximum delay of a message; 0 is no limit.")
    ] = 0
    dispatcherMaxReadBatchSize: Annotated[
        int, Whole(1, 100_000, "Maximum entries that a subscription reads at a time.")
    ] = 100
    dispatcherMaxReadSizeBytes: Annotated[
        int, Whole(1, INT_MAX, "Maximum bytes that a subscription reads at a time.")
    ] = 5242880
    dispatcherMaxRoundRobinBatchSize: Annotated[
        int,
        Whole(1, 100_000, "Maximum entries that a consumer of a Shared subscription gets before the next consumer."),
    ] = 20
    managedLedgerCacheSizeMB: Annotated[
        int,
        Whole(
            0,
            1_048_576,
            "Megabytes of newest entries, of all topics together, that are cached in memory; 0 disables the cache.",
        ),
    ] = 64

    # Geo-replication
    createTopicToRemoteClusterForReplication: Annotated[
        bool,
        Flag("Create replicated topics in the remote cluster; false waits until they exist there."),
    ] = True
    partitionMismatch: Annotated[
        PartitionMismatch,
        Choice(
            PartitionMismatch,
            "Replication to a topic with another number of partitions: as PIP-370 defines it, or none.",
        ),
    ] = "pip370"
    replicationStartAt: Annotated[
        ReplicationStart,
        Choice(ReplicationStart, "Position from which replication of a topic with messages starts when it is enabled."),
    ] = "latest"
    replicationRetryMaxSeconds: Annotated[
        int,
        Whole(
            1, DAY_SECONDS, "Maximum back-off before a remote cluster that failed or has no such topic is tried again."
        ),
    ] = 10
    pipelinesEnabled: Annotated[
        bool, Flag("Start the pipelines process with the first replicated namespace or topic.")
    ] = True
    pipelinesMaster: Annotated[
        str,
        Text(r"\S+", "the address of a Spark master, such as local[2]", "Spark master of the pipelines process."),
    ] = "local[*,3]"
    pipelinesLingerSeconds: Annotated[
        int,
        Whole(
            0,
            DAY_SECONDS,
            "How long the pipelines process waits for a broker that was killed or stopped with SIGTERM to start again;"
            " with 0 it ends with the broker.",
        ),
    ] = 30
    brokerClientAuthenticationPlugin: Annotated[
        str,
        Text(
            r"[.\w]*",
            "the name of a plugin, such as org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "Authentication at remote clusters: AuthenticationToken, AuthenticationTls, AuthenticationBasic or"
            " AuthenticationOAuth2; empty for none.",
        ),
    ] = ""
    brokerClientAuthenticationParameters: Annotated[
        str,
        Text(
            r"[^\r\n]*",
            "one line of text",
            "Parameters of that plugin: `token:…`, `file:///path`, or `tlsCertFile:…,tlsKeyFile:…`.",
        ),
    ] = ""
    brokerClientTrustCertsFilePath: Annotated[
        str,
        Text(
            r"[^\r\n]*",
            "the path of a file",
            "PEM file of the authorities that sign certificates of remote clusters, and of this broker for its own"
            " pipelines process; empty trusts the system's.",
        ),
    ] = ""

    def __repr__(self) -> str:
        changed = {name: getattr(self, name) for name, default in DEFAULTS.items() if getattr(self, name) != default}
        words = (f"{name}={'(hidden)' if name in SECRET else repr(value)}" for name, value in changed.items())
        return f"Settings({', '.join(words)})"

    def __post_init__(self) -> None:
        for name, kind in KINDS.items():
            value = getattr(self, name)
            if not kind.permits(value):
                raise _refusal(name, str(value), kind)

    @staticmethod
    def from_mapping(pairs: Mapping[str, str]) -> tuple[Settings, list[str]]:
        """Settings from the texts of a file or command line, and the unknown keys.

        An empty text means the default, as in Pulsar's files, and no port for a port. Raises `InvalidSetting`.
        """
        values: dict[str, Any] = {}
        unknown: list[str] = []
        for name, text in pairs.items():
            kind = KINDS.get(name)
            if kind is None:
                unknown.append(name)
            elif text.strip() or isinstance(kind, Port):
                values[name] = _read(name, text.strip(), kind)
        return Settings(**values), unknown

    def with_texts(self, pairs: Mapping[str, str]) -> Settings:
        """These settings with some changed; raises `InvalidSetting`."""
        return msgspec.structs.replace(self, **{name: _read(name, text, KINDS[name]) for name, text in pairs.items()})

    def listener(self, name: str = "") -> Listener:
        """The advertised addresses for a client that names this listener, or none; raises NotAllowed if unknown."""
        return find_listener(self.advertisedListeners, self.internalListenerName, name)

    def all_listeners(self) -> Iterator[Listener]:
        """The advertised addresses of all networks."""
        yield from parse_listeners(self.advertisedListeners).values()

    @property
    def backlog_quota_bytes(self) -> int:
        """The default backlog quota in bytes from its two settings, -1 for none."""
        if self.backlogQuotaDefaultLimitGB > 0:
            return int(self.backlogQuotaDefaultLimitGB * (1 << 30))
        return self.backlogQuotaDefaultLimitBytes


def _read(name: str, text: str, kind: Kind) -> object:
    value = kind.read(text)
    if not kind.permits(value):
        raise _refusal(name, text, kind)
    return value


def _refusal(name: str, text: str, kind: Kind) -> InvalidSetting:
    shown = "(hidden)" if name in SECRET else text if len(text) <= 100 else text[:100] + "..."
    return InvalidSetting(f"{name}={shown} is not allowed: {kind.allowed}")


_FIELDS = msgspec.structs.fields(Settings)  # once: it evaluates every annotation, which is a good part of the import


def _kinds() -> Iterator[tuple[str, Kind]]:
    inherited = set(ProtectionSettings.__struct_fields__)
    for field in sorted(_FIELDS, key=lambda field: field.name in inherited):
        assert get_origin(field.type) is Annotated, field.name
        yield field.name, field.type.__metadata__[0]


KINDS: Mapping[str, Kind] = dict(_kinds())
"""Allowed values and meaning of each setting, in the order of the reference page."""


SECRET = frozenset({"brokerClientAuthenticationParameters", "tokenSecretKey", "basicAuthConf"})
"""Settings whose values are never shown."""

DEFAULTS: Mapping[str, object] = {field.name: field.default for field in _FIELDS}


def closest(name: str) -> str | None:
    """The setting with the most similar name, for error messages."""
    from difflib import get_close_matches  # only ever needed for a message

    by_lower = {known.lower(): known for known in KINDS}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None

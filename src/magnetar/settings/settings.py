"""The broker's settings: Pulsar's own names, a default, what is allowed and one sentence each.

Owns the one frozen `Settings` object that is passed to whoever needs it. It does not know files or the command line. A
`Settings` that exists is valid: making one checks every value. Every setting listed here is obeyed; what the broker
does not obey is not listed, so that it is reported as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from magnetar.errors import InvalidSetting
from magnetar.settings.kinds import Choice, Choices, Flag, Kind, Number, Text, Whole

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DAY_SECONDS = 86_400
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


_ADDRESS = r"[-.:%\w]+"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of one broker."""

    # Addresses
    clusterName: Annotated[
        str,
        Text(
            r"[-=:.\w]+",
            "letters, digits and the characters - = : . _",
            "The name of the cluster, as clients and other clusters see it.",
        ),
    ] = "standalone"
    bindAddress: Annotated[
        str,
        Text(
            _ADDRESS,
            "a host name or an IP address",
            "The address both ports listen on; anything but loopback also has to be asked for on the command line.",
        ),
    ] = "127.0.0.1"
    advertisedAddress: Annotated[
        str,
        Text(
            _ADDRESS + "|",
            "a host name or an IP address",
            "The host that lookups tell clients to connect to; empty means the address the broker listens on.",
        ),
    ] = ""
    brokerServicePort: Annotated[int, Whole(0, 65535, "The port of the binary protocol; 0 picks a free one.")] = 6650
    webServicePort: Annotated[
        int, Whole(0, 65535, "The port of HTTP: administration, lookup and metrics; 0 picks a free one.")
    ] = 8080

    # Connections
    maxMessageSize: Annotated[
        int,
        Whole(1024, 128 << 20, "The largest entry a producer may send, in bytes, batched and compressed as it comes."),
    ] = 5242880
    keepAliveIntervalSeconds: Annotated[
        int,
        Whole(
            0,
            DAY_SECONDS,
            "How long a silent connection is left alone before it is pinged, and then closed; 0 never asks.",
        ),
    ] = 30
    maxPendingPublishRequestsPerConnection: Annotated[
        int,
        Whole(1, 1_000_000, "How many messages of one connection may wait for the disk before reading from it pauses."),
    ] = 1000
    maxMessagePublishBufferSizeInMB: Annotated[
        int,
        Whole(1, 65536, "How many megabytes of all connections may wait for the disk before reading from them pauses."),
    ] = 256

    # Topics
    enablePersistentTopics: Annotated[bool, Flag("Whether persistent topics may be used.")] = True
    enableNonPersistentTopics: Annotated[bool, Flag("Whether non-persistent topics may be used.")] = True
    allowAutoTopicCreation: Annotated[
        bool, Flag("Whether a topic comes into being when a producer or consumer first asks for it.")
    ] = True
    allowAutoTopicCreationType: Annotated[
        TopicCreationType, Choice(TopicCreationType, "What such a topic becomes.")
    ] = "non-partitioned"
    defaultNumPartitions: Annotated[
        int, Whole(1, 65536, "The number of partitions of a partitioned topic that comes into being by itself.")
    ] = 1
    maxNumPartitionsPerPartitionedTopic: Annotated[
        int, Whole(0, INT_MAX, "The most partitions a topic may have; 0 is no limit.")
    ] = 0
    maxTopicsPerNamespace: Annotated[
        int, Whole(0, INT_MAX, "The most topics a namespace may have, each partition counted; 0 is no limit.")
    ] = 0

    # Administration
    forceDeleteNamespaceAllowed: Annotated[
        bool, Flag("Whether a namespace may be deleted together with its topics.")
    ] = False
    forceDeleteTenantAllowed: Annotated[
        bool, Flag("Whether a tenant may be deleted together with its namespaces and topics.")
    ] = False
    exposeTopicLevelMetricsInPrometheus: Annotated[
        bool, Flag("Whether `/metrics` has numbers of every topic, or of namespaces only.")
    ] = True
    exposeConsumerLevelMetricsInPrometheus: Annotated[
        bool, Flag("Whether `/metrics` has numbers of every consumer, where it has those of topics.")
    ] = False
    exposeProducerLevelMetricsInPrometheus: Annotated[
        bool, Flag("Whether `/metrics` has numbers of every producer, where it has those of topics.")
    ] = False

    # Producers and consumers
    maxProducersPerTopic: Annotated[
        int, Whole(0, INT_MAX, "The most producers a topic may have at a time; 0 is no limit.")
    ] = 0
    maxSameAddressProducersPerTopic: Annotated[
        int, Whole(0, INT_MAX, "The most producers of one client address a topic may have at a time; 0 is no limit.")
    ] = 0
    maxConsumersPerTopic: Annotated[
        int, Whole(0, INT_MAX, "The most consumers a topic may have at a time; 0 is no limit.")
    ] = 0
    maxSameAddressConsumersPerTopic: Annotated[
        int, Whole(0, INT_MAX, "The most consumers of one client address a topic may have at a time; 0 is no limit.")
    ] = 0
    maxConsumersPerSubscription: Annotated[
        int, Whole(0, INT_MAX, "The most consumers a subscription may have at a time; 0 is no limit.")
    ] = 0
    maxSubscriptionsPerTopic: Annotated[
        int, Whole(0, INT_MAX, "The most subscriptions a topic may have; 0 is no limit.")
    ] = 0

    # Deduplication
    brokerDeduplicationEnabled: Annotated[
        bool, Flag("Whether a message is refused when its producer's sequence id was stored before.")
    ] = False
    brokerDeduplicationMaxNumberOfProducers: Annotated[
        int, Whole(1, INT_MAX, "How many producer names a topic remembers for deduplication.")
    ] = 10000
    brokerDeduplicationProducerInactivityTimeoutMinutes: Annotated[
        int, Whole(1, INT_MAX, "How long a disconnected producer is remembered for deduplication.")
    ] = 360

    # Retention and expiry
    defaultRetentionTimeInMinutes: Annotated[
        int, Whole(-1, INT_MAX, "How long acknowledged messages are kept; 0 keeps none, -1 sets no limit of time.")
    ] = 0
    defaultRetentionSizeInMB: Annotated[
        int,
        Whole(
            -1,
            INT_MAX,
            "How many megabytes of acknowledged messages a topic keeps; 0 keeps none, -1 sets no limit of size.",
        ),
    ] = 0
    retentionCheckIntervalInSeconds: Annotated[
        int, Whole(1, DAY_SECONDS, "How often topics are searched for messages that need not be kept.")
    ] = 120
    managedLedgerMinLedgerRolloverTimeMinutes: Annotated[
        int, Whole(0, INT_MAX, "The least time between two ledgers of a topic.")
    ] = 10
    managedLedgerMaxSizePerLedgerMbytes: Annotated[
        int, Whole(1, 1_048_576, "The size at which a topic goes on to a new ledger.")
    ] = 2048
    ttlDurationDefaultInSeconds: Annotated[
        int, Whole(0, INT_MAX, "The age at which an unacknowledged message counts as acknowledged; 0 is never.")
    ] = 0
    messageExpiryCheckIntervalInMinutes: Annotated[
        int, Whole(1, DAY_MINUTES, "How often subscriptions are searched for messages past that age.")
    ] = 5

    # Backlog quota
    backlogQuotaCheckEnabled: Annotated[bool, Flag("Whether backlog quotas are enforced.")] = True
    backlogQuotaCheckIntervalInSeconds: Annotated[
        int, Whole(1, DAY_SECONDS, "How often backlogs are measured against their quota.")
    ] = 60
    backlogQuotaDefaultLimitBytes: Annotated[
        int, Whole(-1, LONG_MAX, "The largest backlog of a topic, in bytes; -1 is no limit.")
    ] = -1
    backlogQuotaDefaultLimitGB: Annotated[
        float,
        Number(
            -1, INT_MAX, "The same in gigabytes, an older setting that wins over the one in bytes when it is above 0."
        ),
    ] = -1.0
    backlogQuotaDefaultLimitSecond: Annotated[
        int, Whole(-1, INT_MAX, "The greatest age of the oldest unacknowledged message of a topic; -1 is no limit.")
    ] = -1
    backlogQuotaDefaultRetentionPolicy: Annotated[
        BacklogPolicy,
        Choice(
            BacklogPolicy,
            "What happens at the quota: producers wait, producers get an error, or the oldest messages are given up.",
        ),
    ] = "producer_request_hold"

    # Schemas
    schemaCompatibilityStrategy: Annotated[
        SchemaStrategy,
        Choice(SchemaStrategy, "How a new version of a schema has to fit the earlier ones, where nobody set it."),
    ] = "FULL"
    isSchemaValidationEnforced: Annotated[
        bool, Flag("Whether a topic that has a schema refuses producers that have none.")
    ] = False
    isAllowAutoUpdateSchemaEnabled: Annotated[
        bool, Flag("Whether a producer or a consumer may bring a new version of a schema.")
    ] = True

    # Subscriptions
    allowAutoSubscriptionCreation: Annotated[
        bool, Flag("Whether a subscription comes into being when a consumer first asks for it.")
    ] = True
    subscriptionBacklogScanMaxEntries: Annotated[
        int, Whole(1, INT_MAX, "How many entries the analysis of a backlog looks at before it stops.")
    ] = 10_000
    subscriptionBacklogScanMaxTimeMs: Annotated[
        int, Whole(1, INT_MAX, "How long the analysis of a backlog may take before it stops.")
    ] = 120_000
    subscriptionTypesEnabled: Annotated[
        frozenset[str], Choices(SubscriptionTypeName, "The types a subscription may have.")
    ] = frozenset(get_args(SubscriptionTypeName))
    subscriptionKeySharedEnable: Annotated[
        bool, Flag("Whether Key_Shared may be used; false takes it out of `subscriptionTypesEnabled`.")
    ] = True
    subscriptionKeySharedUseConsistentHashing: Annotated[
        bool,
        Flag("Whether Key_Shared spreads keys on a hash ring, or halves the widest range for each new consumer."),
    ] = True
    subscriptionKeySharedConsistentHashingReplicaPoints: Annotated[
        int, Whole(1, 10_000, "How many points each consumer has on that ring.")
    ] = 100
    keySharedLookAheadMsgInReplayThresholdPerConsumer: Annotated[
        int,
        Whole(
            0,
            INT_MAX,
            "How many held-back messages Key_Shared reads past, per consumer; 0 is no limit.",
        ),
    ] = 4000
    keySharedLookAheadMsgInReplayThresholdPerSubscription: Annotated[
        int, Whole(0, INT_MAX, "The same for the whole subscription; the smaller of the two counts, 0 is no limit.")
    ] = 40000
    activeConsumerFailoverDelayTimeMillis: Annotated[
        int,
        Whole(
            0,
            DAY_SECONDS * 1000,
            "How long a new active consumer of a Failover subscription waits for its first message.",
        ),
    ] = 1000
    activeConsumerFailoverConsistentHashing: Annotated[
        bool,
        Flag(
            "Whether the active consumers of a partitioned topic's partitions are picked by a hash ring, not in turn."
        ),
    ] = False
    acknowledgmentAtBatchIndexLevelEnabled: Annotated[
        bool,
        Flag("Whether single messages of a batch can be acknowledged; here it is on unless it is switched off."),
    ] = True
    maxUnackedMessagesPerConsumer: Annotated[
        int,
        Whole(
            0, INT_MAX, "How many unacknowledged messages a consumer may hold before it gets no more; 0 is no limit."
        ),
    ] = 50000
    maxUnackedMessagesPerSubscription: Annotated[
        int,
        Whole(
            0,
            INT_MAX,
            "How many unacknowledged messages the consumers of a shared subscription may hold together; 0 is no limit.",
        ),
    ] = 200000

    # Dispatch
    delayedDeliveryEnabled: Annotated[
        bool, Flag("Whether messages with a delivery time wait for it; false delivers them at once.")
    ] = True
    delayedDeliveryMaxDelayInMillis: Annotated[
        int, Whole(0, LONG_MAX, "The longest delay a producer may ask for; 0 is no limit.")
    ] = 0
    dispatcherMaxReadBatchSize: Annotated[
        int, Whole(1, 100_000, "How many entries a subscription reads at a time.")
    ] = 100
    dispatcherMaxReadSizeBytes: Annotated[int, Whole(1, INT_MAX, "How many bytes a subscription reads at a time.")] = (
        5242880
    )
    dispatcherMaxRoundRobinBatchSize: Annotated[
        int,
        Whole(
            1, 100_000, "How many entries one consumer of a Shared subscription gets before it is the next one's turn."
        ),
    ] = 20
    managedLedgerCacheSizeMB: Annotated[
        int,
        Whole(
            0,
            1_048_576,
            "The megabytes of newest entries, of all topics together, that are served from memory; 0 caches nothing.",
        ),
    ] = 64

    # Geo-replication
    createTopicToRemoteClusterForReplication: Annotated[
        bool,
        Flag("Whether a topic that is replicated is also made in the remote cluster, or has to be made there first."),
    ] = True
    partitionMismatch: Annotated[
        PartitionMismatch,
        Choice(
            PartitionMismatch,
            "What is replicated if the remote topic has another number of partitions: what PIP-370 says, or nothing.",
        ),
    ] = "pip370"
    replicationStartAt: Annotated[
        ReplicationStart,
        Choice(
            ReplicationStart, "From where on a topic that has messages already is replicated, once that is switched on."
        ),
    ] = "latest"
    replicationRetryMaxSeconds: Annotated[
        int,
        Whole(1, DAY_SECONDS, "The longest pause before a remote cluster that failed or lacks a topic is asked again."),
    ] = 10
    pipelinesEnabled: Annotated[
        bool, Flag("Whether the broker starts the process that replicates, as soon as there is something to replicate.")
    ] = True
    pipelinesMaster: Annotated[
        str,
        Text(r"\S+", "the address of a Spark master, such as local[2]", "The Spark master its jobs run on."),
    ] = "local[*,3]"
    brokerClientAuthenticationPlugin: Annotated[
        str,
        Text(
            r"[.\w]*",
            "the name of a plugin, such as org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "How remote clusters are told who this one is: AuthenticationToken or AuthenticationTls; empty if not.",
        ),
    ] = ""
    brokerClientAuthenticationParameters: Annotated[
        str,
        Text(
            r"[^\r\n]*",
            "one line of text",
            "The parameters of that plugin: `token:…`, `file:///path`, or `tlsCertFile:…,tlsKeyFile:…`.",
        ),
    ] = ""
    brokerClientTrustCertsFilePath: Annotated[
        str,
        Text(
            r"[^\r\n]*",
            "the path of a file",
            "The certificates of authorities that remote clusters are trusted by, in PEM; empty trusts the system's.",
        ),
    ] = ""

    def __post_init__(self) -> None:
        for name, kind in KINDS.items():
            value = getattr(self, name)
            if not kind.permits(value):
                raise _refusal(name, str(value), kind)

    @staticmethod
    def from_mapping(pairs: Mapping[str, str]) -> tuple[Settings, list[str]]:
        """Settings from texts, as a file or a command line has them, and the keys that are no settings.

        An empty text stands for the default, as in Pulsar's files. A wrong value raises `InvalidSetting`.
        """
        values: dict[str, Any] = {}
        unknown: list[str] = []
        for name, text in pairs.items():
            kind = KINDS.get(name)
            if kind is None:
                unknown.append(name)
            elif text.strip():
                values[name] = _read(name, text.strip(), kind)
        return Settings(**values), unknown

    def with_texts(self, pairs: Mapping[str, str]) -> Settings:
        """These settings with some changed; raises `InvalidSetting`."""
        return msgspec.structs.replace(self, **{name: _read(name, text, KINDS[name]) for name, text in pairs.items()})

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
    shown = text if len(text) <= 100 else text[:100] + "..."
    return InvalidSetting(f"{name}={shown} is not allowed: {kind.allowed}")


def _kinds() -> Iterator[tuple[str, Kind]]:
    for field in msgspec.structs.fields(Settings):
        assert get_origin(field.type) is Annotated, field.name
        yield field.name, field.type.__metadata__[0]


KINDS: Mapping[str, Kind] = dict(_kinds())
"""What each setting allows and means, in the order of the reference page."""


SECRET = frozenset({"brokerClientAuthenticationParameters"})
"""Settings whose values are shown to nobody."""


DYNAMIC = frozenset(
    {
        "allowAutoTopicCreation",
        "allowAutoTopicCreationType",
        "allowAutoSubscriptionCreation",
        "defaultNumPartitions",
        "maxNumPartitionsPerPartitionedTopic",
        "maxTopicsPerNamespace",
        "forceDeleteNamespaceAllowed",
        "forceDeleteTenantAllowed",
        "maxProducersPerTopic",
        "maxSameAddressProducersPerTopic",
        "maxConsumersPerTopic",
        "maxSameAddressConsumersPerTopic",
        "maxConsumersPerSubscription",
        "maxSubscriptionsPerTopic",
        "maxUnackedMessagesPerConsumer",
        "maxUnackedMessagesPerSubscription",
        "brokerDeduplicationEnabled",
        "defaultRetentionTimeInMinutes",
        "defaultRetentionSizeInMB",
        "ttlDurationDefaultInSeconds",
        "backlogQuotaDefaultLimitBytes",
        "backlogQuotaDefaultLimitGB",
        "backlogQuotaDefaultLimitSecond",
        "backlogQuotaDefaultRetentionPolicy",
        "subscriptionTypesEnabled",
        "subscriptionKeySharedEnable",
        "delayedDeliveryEnabled",
        "delayedDeliveryMaxDelayInMillis",
        "schemaCompatibilityStrategy",
        "isSchemaValidationEnforced",
        "isAllowAutoUpdateSchemaEnabled",
    }
)
"""Settings that may change while the broker runs: they are asked for whenever they matter, and not before."""


def closest(name: str) -> str | None:
    """The setting that was probably meant by an unknown name."""
    from difflib import get_close_matches  # only ever needed for a message

    by_lower = {known.lower(): known for known in KINDS}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None

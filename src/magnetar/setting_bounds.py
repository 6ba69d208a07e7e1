"""Bounds that a setting decides, and the table of all bounds. The code that enforces one reads its setting."""

from __future__ import annotations

from magnetar.access_bounds import ACCESS_BOUNDS
from magnetar.bounds import BOUNDS, Bound, _by_setting
from magnetar.pipeline_bounds import PIPELINE_BOUNDS

# -- limits that settings decide

MESSAGE_SIZE = _by_setting(
    "message-size", "an entry that a producer sends", "maxMessageSize", "refused with SEND_ERROR; the connection stays"
)
PENDING_PUBLISHES = _by_setting(
    "pending-publishes",
    "messages of a connection that wait for the disk",
    "maxPendingPublishRequestsPerConnection",
    "the connection is not read",
)
PUBLISH_BUFFER = _by_setting(
    "publish-buffer",
    "megabytes of all connections that wait for the disk",
    "maxMessagePublishBufferSizeInMB",
    "no connection is read",
)
IDLE_CONNECTION = _by_setting(
    "idle-connection", "seconds of silence, twice", "keepAliveIntervalSeconds", "a ping, then the connection is closed"
)
CONNECTIONS = _by_setting(
    "connections",
    "connections of clients; also by the limit of file descriptors",
    "brokerMaxConnections",
    "a new one gets the reason and is closed",
)
CONNECTIONS_PER_ADDRESS = _by_setting(
    "connections-per-address",
    "connections of clients from one address",
    "brokerMaxConnectionsPerIp",
    "a new one gets the reason and is closed",
)
HTTP_CONNECTIONS = _by_setting(
    "http-connections",
    "connections of HTTP; also a quarter of the file descriptors for connections",
    "maxHttpServerConnections",
    "a new one gets 503 and is closed",
)
HTTP_REQUESTS = _by_setting(
    "http-requests", "requests of HTTP that run at the same time", "maxConcurrentHttpRequests", "refused with 503"
)
PRODUCERS_PER_TOPIC = _by_setting(
    "producers-per-topic", "producers of a topic", "maxProducersPerTopic", "refused with ProducerBusy"
)
PRODUCERS_PER_ADDRESS = _by_setting(
    "producers-per-address",
    "producers of a topic from one address",
    "maxSameAddressProducersPerTopic",
    "refused with ProducerBusy",
)
CONSUMERS_PER_TOPIC = _by_setting(
    "consumers-per-topic", "consumers of a topic", "maxConsumersPerTopic", "refused with ConsumerBusy"
)
CONSUMERS_PER_ADDRESS = _by_setting(
    "consumers-per-address",
    "consumers of a topic from one address",
    "maxSameAddressConsumersPerTopic",
    "refused with ConsumerBusy",
)
CONSUMERS_PER_SUBSCRIPTION = _by_setting(
    "consumers-per-subscription",
    "consumers of a subscription",
    "maxConsumersPerSubscription",
    "refused with ConsumerBusy",
)
PARTITIONS_BY_SETTING = _by_setting(
    "partitions-by-setting",
    "partitions of a topic, where the setting is above 0",
    "maxNumPartitionsPerPartitionedTopic",
    "refused with 406",
)
UNACKED_PER_CONSUMER = _by_setting(
    "unacked-per-consumer",
    "unacknowledged messages of a consumer of Shared and Key_Shared",
    "maxUnackedMessagesPerConsumer",
    "it gets none until it acknowledges",
)
UNACKED_PER_SUBSCRIPTION = _by_setting(
    "unacked-per-subscription",
    "unacknowledged messages of such a subscription",
    "maxUnackedMessagesPerSubscription",
    "none are delivered until half are acknowledged",
)
LOOK_AHEAD = _by_setting(
    "look-ahead-per-consumer",
    "held-back messages per consumer that Key_Shared reads ahead",
    "keySharedLookAheadMsgInReplayThresholdPerConsumer",
    "no new ones are read",
)
LOOK_AHEAD_TOTAL = _by_setting(
    "look-ahead-per-subscription",
    "the same for the whole subscription",
    "keySharedLookAheadMsgInReplayThresholdPerSubscription",
    "no new ones are read",
)
READ_ENTRIES = _by_setting(
    "read-entries",
    "entries that a subscription reads at a time",
    "dispatcherMaxReadBatchSize",
    "the rest waits for the next turn",
)
READ_BYTES = _by_setting(
    "read-bytes",
    "bytes that a subscription reads at a time",
    "dispatcherMaxReadSizeBytes",
    "the rest waits for the next turn",
)
ROUND_ROBIN = _by_setting(
    "round-robin",
    "entries that a consumer gets before the next one",
    "dispatcherMaxRoundRobinBatchSize",
    "the next consumer gets the rest",
)
ENTRY_CACHE = _by_setting(
    "entry-cache",
    "megabytes of newest entries in memory, of all topics",
    "managedLedgerCacheSizeMB",
    "the oldest is read from the disk",
)
DELAY = _by_setting("delay", "the delay of a message", "delayedDeliveryMaxDelayInMillis", "refused with SEND_ERROR")
DISK_SPACE = _by_setting(
    "disk-space",
    "Use of the disk of the data folder",
    "diskUsageThreshold",
    "producers are held; consumers, acks and deletions go on",
)
BACKLOG_SCAN_ENTRIES = _by_setting(
    "backlog-scan-entries",
    "entries that an analysis of a backlog reads",
    "subscriptionBacklogScanMaxEntries",
    "the answer says `aborted`",
)
BACKLOG_SCAN_TIME = _by_setting(
    "backlog-scan-time",
    "milliseconds that such an analysis takes",
    "subscriptionBacklogScanMaxTimeMs",
    "the answer says `aborted`",
)

ALL_BOUNDS: tuple[Bound, ...] = (
    *(value for value in list(globals().values()) if isinstance(value, Bound)),
    *BOUNDS,
    *ACCESS_BOUNDS,
    *PIPELINE_BOUNDS,
)
"""Every bound, in the order of the reference page."""

"""Settings that protect the broker from its clients and its machine: sizes, connections, rates and disk.

They are a part of `Settings`, which inherits them.
"""

from __future__ import annotations

from typing import Annotated

from magnetar.settings.access import AccessSettings
from magnetar.settings.kinds import Flag, Number, Whole

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DAY_SECONDS = 86_400


class ProtectionSettings(AccessSettings, frozen=True, kw_only=True):
    """Listed after the other settings on the reference page."""

    # Connections
    maxMessageSize: Annotated[
        int,
        Whole(1024, 128 << 20, "Maximum size in bytes of an entry that a producer sends, batched and compressed."),
    ] = 5242880
    keepAliveIntervalSeconds: Annotated[
        int,
        Whole(
            0,
            DAY_SECONDS,
            "Idle time before a connection is pinged, and then closed; 0 disables keep-alive.",
        ),
    ] = 30
    brokerMaxConnections: Annotated[
        int,
        Whole(0, INT_MAX, "Maximum connections of clients; 0 is as many as there are file descriptors for."),
    ] = 0
    brokerMaxConnectionsPerIp: Annotated[
        int,
        Whole(0, INT_MAX, "Maximum connections of clients from one address; 0 is no limit."),
    ] = 0
    maxHttpServerConnections: Annotated[
        int,
        Whole(0, INT_MAX, "Maximum connections to the HTTP port; 0 is as many as there are file descriptors for."),
    ] = 2048
    maxConcurrentHttpRequests: Annotated[
        int,
        Whole(0, INT_MAX, "Maximum HTTP requests that run at the same time; 0 is no limit."),
    ] = 1024
    maxPendingPublishRequestsPerConnection: Annotated[
        int,
        Whole(1, 1_000_000, "Maximum messages of one connection that wait for the disk; reading from it pauses above."),
    ] = 1000
    maxMessagePublishBufferSizeInMB: Annotated[
        int,
        Whole(1, 65536, "Maximum megabytes of all connections that wait for the disk; reading from them pauses above."),
    ] = 256

    # Rate limits
    maxPublishRatePerTopicInMessages: Annotated[
        int,
        Whole(0, INT_MAX, "Maximum messages per second that are published to a topic; 0 is no limit."),
    ] = 0
    maxPublishRatePerTopicInBytes: Annotated[
        int,
        Whole(0, LONG_MAX, "Maximum bytes per second that are published to a topic; 0 is no limit."),
    ] = 0
    brokerPublisherThrottlingMaxMessageRate: Annotated[
        int,
        Whole(0, INT_MAX, "Maximum messages per second that are published to all topics together; 0 is no limit."),
    ] = 0
    brokerPublisherThrottlingMaxByteRate: Annotated[
        int,
        Whole(0, LONG_MAX, "Maximum bytes per second that are published to all topics together; 0 is no limit."),
    ] = 0
    dispatchThrottlingRateInMsg: Annotated[
        int,
        Whole(0, INT_MAX, "Maximum messages per second that all topics together deliver; 0 is no limit."),
    ] = 0
    dispatchThrottlingRateInByte: Annotated[
        int,
        Whole(0, LONG_MAX, "Maximum bytes per second that all topics together deliver; 0 is no limit."),
    ] = 0
    dispatchThrottlingRatePerTopicInMsg: Annotated[
        int,
        Whole(0, INT_MAX, "Maximum messages per second that all subscriptions of a topic deliver; 0 is no limit."),
    ] = 0
    dispatchThrottlingRatePerTopicInByte: Annotated[
        int,
        Whole(0, LONG_MAX, "Maximum bytes per second that all subscriptions of a topic deliver; 0 is no limit."),
    ] = 0
    dispatchThrottlingRatePerSubscriptionInMsg: Annotated[
        int,
        Whole(0, INT_MAX, "Maximum messages per second that a subscription delivers; 0 is no limit."),
    ] = 0
    dispatchThrottlingRatePerSubscriptionInByte: Annotated[
        int,
        Whole(0, LONG_MAX, "Maximum bytes per second that a subscription delivers; 0 is no limit."),
    ] = 0
    dispatchThrottlingRatePerReplicatorInMsg: Annotated[
        int,
        Whole(0, INT_MAX, "Maximum messages per second that a topic replicates to each cluster; 0 is no limit."),
    ] = 0
    dispatchThrottlingRatePerReplicatorInByte: Annotated[
        int,
        Whole(0, LONG_MAX, "Maximum bytes per second that a topic replicates to each cluster; 0 is no limit."),
    ] = 0
    dispatchThrottlingRateRelativeToPublishRate: Annotated[
        bool, Flag("Deliver so many more messages than are published, instead of so many in all.")
    ] = False
    dispatchThrottlingOnNonBacklogConsumerEnabled: Annotated[
        bool,
        Flag("Limit the delivery of every subscription; if false, only of those over 1000 messages behind."),
    ] = True
    subscribeThrottlingRatePerConsumer: Annotated[
        int,
        Whole(0, INT_MAX, "How often a consumer may subscribe to a topic per period; 0 is no limit."),
    ] = 0
    subscribeRatePeriodPerConsumerInSecond: Annotated[
        int,
        Whole(1, INT_MAX, "Period of subscribeThrottlingRatePerConsumer, in seconds."),
    ] = 30

    # Disk
    diskCheckInterval: Annotated[
        int,
        Whole(0, DAY_SECONDS * 1000, "Milliseconds between checks of the free space of the disk; 0 disables them."),
    ] = 2000
    diskUsageThreshold: Annotated[
        float,
        Number(0, 1, "Share of the disk in use from which producers are held, as by a backlog quota."),
    ] = 0.95
    diskUsageLwmThreshold: Annotated[
        float,
        Number(0, 1, "Share of the disk in use below which held producers are released."),
    ] = 0.90
    diskUsageWarnThreshold: Annotated[
        float,
        Number(0, 1, "Share of the disk in use from which the log and the health have a warning."),
    ] = 0.90
    enoughUsableDiskSizeInMB: Annotated[
        int,
        Whole(0, INT_MAX, "Free megabytes with which producers are not held, whatever the share; released with twice."),
    ] = 2048
    minUsableDiskSizeInMB: Annotated[
        int,
        Whole(0, INT_MAX, "Free megabytes below which producers are held, whatever the share, or a tenth of the disk."),
    ] = 256
    ballastSizeInMB: Annotated[
        int,
        Whole(0, 65536, "Megabytes of a file that a start on a full disk deletes, to have room; 0 means none."),
    ] = 64

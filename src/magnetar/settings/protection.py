"""Settings that protect the broker from its clients and its machine: sizes, connections, rates and disk.

They are a part of `Settings`, which inherits them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from magnetar.settings.kinds import Whole

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DAY_SECONDS = 86_400


class ProtectionSettings(msgspec.Struct, frozen=True, kw_only=True):
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
    maxPendingPublishRequestsPerConnection: Annotated[
        int,
        Whole(1, 1_000_000, "Maximum messages of one connection that wait for the disk; reading from it pauses above."),
    ] = 1000
    maxMessagePublishBufferSizeInMB: Annotated[
        int,
        Whole(1, 65536, "Maximum megabytes of all connections that wait for the disk; reading from them pauses above."),
    ] = 256

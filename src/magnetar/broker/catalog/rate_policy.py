"""Rates that an administrator sets: of publishing, of dispatch and of subscribing.

They are kept as they were set; a number that is not above 0 is no limit. A rate without any limit is as good as none:
the level above applies, as in Apache Pulsar.
"""

from __future__ import annotations

import msgspec

NO_LIMIT = -1


class PublishRate(msgspec.Struct, frozen=True, omit_defaults=True):
    """Messages and bytes per second that producers of a topic may send."""

    messages: int = NO_LIMIT
    bytes: int = NO_LIMIT

    @property
    def is_limited(self) -> bool:
        return self.messages > 0 or self.bytes > 0


class DispatchRate(msgspec.Struct, frozen=True, omit_defaults=True):
    """Messages and bytes per period that are delivered. `relative`: so many more than are published."""

    messages: int = NO_LIMIT
    bytes: int = NO_LIMIT
    relative: bool = False
    period_s: int = 1

    @property
    def is_limited(self) -> bool:
        return self.messages > 0 or self.bytes > 0


class SubscribeRate(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often one consumer may subscribe per period."""

    per_consumer: int = NO_LIMIT
    period_s: int = 30

    @property
    def is_limited(self) -> bool:
        return self.per_consumer > 0 and self.period_s > 0


Rate = PublishRate | DispatchRate | SubscribeRate

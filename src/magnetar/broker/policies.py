"""The limits a topic lives under. Today they come from the broker's settings alone."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from magnetar.config import Settings

_MINUTE_MS = 60_000
_MB = 1 << 20


class QuotaPolicy(enum.StrEnum):
    producer_request_hold = "producer_request_hold"
    producer_exception = "producer_exception"
    consumer_backlog_eviction = "consumer_backlog_eviction"


@dataclass(frozen=True, slots=True)
class Policies:
    """Negative retention means for ever, zero means none; a zero time to live or quota means unlimited."""

    retention_ms: int
    retention_bytes: int
    open_ms: int  # how long, and how many bytes, the youngest data stays even when everybody has read it
    open_bytes: int
    ttl_ms: int
    quota_bytes: int
    quota_ms: int
    quota_policy: QuotaPolicy

    @classmethod
    def of(cls, settings: Settings) -> Policies:
        return cls(
            retention_ms=settings.defaultRetentionTimeInMinutes * _MINUTE_MS,
            retention_bytes=settings.defaultRetentionSizeInMB * _MB,
            open_ms=settings.managedLedgerMinLedgerRolloverTimeMinutes * _MINUTE_MS,
            open_bytes=settings.managedLedgerMaxSizePerLedgerMbytes * _MB,
            ttl_ms=settings.ttlDurationDefaultInSeconds * 1000,
            quota_bytes=max(0, settings.backlog_quota_bytes),
            quota_ms=max(0, settings.backlogQuotaDefaultLimitSecond) * 1000,
            quota_policy=QuotaPolicy(settings.backlogQuotaDefaultRetentionPolicy),
        )

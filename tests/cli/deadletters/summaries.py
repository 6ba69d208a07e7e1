"""A summary for the views of the report, with what an attacker would put into dead letters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from magnetar.spark.dead_letters.summary import Summary, TimeBin, cause_of

NOW = datetime(2026, 11, 16, 12, 30, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script>\"'&\u202e<img src=x onerror=alert(2)>"


def cause(
    reason: str, exception: str | None, fingerprint: str, letters: int, today: int, example: str
) -> dict[str, Any]:
    return {
        "reason": reason,
        "exception": exception,
        "fingerprint": fingerprint,
        "letters": letters,
        "today": today,
        "yesterday": letters // 4,
        "origins": 2,
        "first": NOW - timedelta(days=3),
        "last": NOW - timedelta(minutes=4),
        "example": example,
        "is_new": today == letters,
    }


def sample(row: dict[str, Any], number: int, payload: str | None, key: str | None = "customer-7") -> dict[str, Any]:
    return {
        **row,
        "letter_topic": "persistent://shop/eu/orders-billing-DLQ",
        "message_id": f"12:{number}:-1",
        "key": key,
        "error": row["example"],
        "description": "nacked 4 times",
        "published": NOW - timedelta(hours=number),
        "size": len(payload or ""),
        "payload": payload,
        "payload_error": None if payload else "it has no schema, and the payload is no text",
    }


def hostile_summary(bins: int = 60) -> Summary:
    causes = [
        cause("ProcessingFailed", "app.errors.NoPrice", "aaaabbbbcccc", 31_204, 31_204, "no price for item 4711"),
        cause("MaxRedeliveries", "ValueError", "01e32eb70616", 8_211, 12, "ValueError: amount -3 is negative"),
        cause("Expired", None, "17de3270fb33", 412, 100, "its time to live of 3600 s is over"),
        cause("Client", "java.lang.IllegalStateException", "a81f716c27b9", 57, 9, "no connection to " + "x" * 300),
        cause(HOSTILE, HOSTILE, HOSTILE, 1, 1, HOSTILE),
    ]
    origins = [
        {
            "topic": topic,
            "subscription": subscription,
            "letters": letters,
            "causes": 3,
            "mostly": "Expired",
            "last": NOW,
        }
        for topic, subscription, letters in (
            ("persistent://shop/eu/orders", "billing", 31_204),
            ("persistent://shop/eu/payments-of-the-european-customers", "ledger", 8_211),
            (HOSTILE, HOSTILE, 412),
            (None, None, 58),
        )
    ]
    start = NOW.replace(minute=0) - timedelta(hours=bins)
    over_time = [
        TimeBin(
            start + timedelta(hours=number),
            {
                "ProcessingFailed": 4000 * max(0, 8 - abs(number - bins + 12)),
                "MaxRedeliveries": 130 + 40 * (number % 5),
                "Expired": 3 * number,
                HOSTILE: number % 2,
            },
        )
        for number in range(bins)
    ]
    samples = {
        cause_of(row): [
            sample(row, 1, '{"id": "o-17", "amount": null, "customer": "<b>7</b>"}'),
            sample(
                row, 2, HOSTILE if row["reason"] == HOSTILE else None, HOSTILE if row["reason"] == HOSTILE else None
            ),
        ]
        for row in causes
    }
    totals = {
        "letters": 39_885,
        "bytes": 48_000_000,
        "causes": 5,
        "origins": 4,
        "dead_letter_topics": 3,
        "today": 31_326,
        "yesterday": 2_200,
        "quarantined": 12,
        "unknown": 0,
        "first": NOW - timedelta(days=3),
        "last": NOW - timedelta(minutes=4),
    }
    return Summary(
        source=f"shop/eu {HOSTILE}",
        now=NOW,
        since=None,
        handled=False,
        totals=totals,
        causes=causes,
        changes=causes[:2] + causes[4:],
        origins=origins,
        bins=over_time,
        is_hourly=True,
        bins_left_out=0,
        samples=samples,
    )

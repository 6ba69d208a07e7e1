"""Views of topic statistics: the most useful numbers; `--json` has all of them."""

from __future__ import annotations

from typing import Any

from magnetar.cli.output import Done, Page, Record, Table, shown_bytes
from magnetar.cli.views.messages import printable


def stats_page(name: str, value: dict[str, Any]) -> Page:
    parts: list[Done | Record | Table] = [Record(value, title=name, fields=_summary(value))]
    if value.get("subscriptions"):
        parts.append(subscriptions_table(value))
        parts.extend(problems_of(value["subscriptions"]))
    if value.get("replication"):
        parts.append(_replication(value["replication"]))
    if value.get("publishers"):
        parts.append(_publishers(value["publishers"]))
    if value.get("partitions"):
        parts.append(_partitions(value["partitions"]))
    return Page(value, parts)


def subscriptions_table(value: dict[str, Any]) -> Table:
    """The subscriptions in the statistics of a topic or a partitioned topic."""
    rows = [
        (
            name,
            _state(one),
            one.get("type") or "-",
            one.get("msgBacklog", 0),
            one.get("unackedMessages", 0),
            one.get("msgDelayed", 0),
            len(one.get("consumers") or ()),
            float(one.get("msgRateOut", 0)),
            one.get("isDurable", True),
            one.get("isReplicated", False),
        )
        for name, one in sorted(value["subscriptions"].items())
    ]
    return Table(value["subscriptions"], _SUBSCRIPTION_COLUMNS, rows)


_SUBSCRIPTION_COLUMNS = (
    "SUBSCRIPTION",
    "STATE",
    "TYPE",
    "BACKLOG",
    "UNACKED",
    "DELAYED",
    "CONSUMERS",
    "MSG/S",
    "DURABLE",
    "REPLICATED",
)


def _state(subscription: dict[str, Any]) -> str:
    if subscription.get("pausedReason"):
        return "PAUSED"
    if subscription.get("blockedSubscriptionOnUnackedMsgs"):
        return "BLOCKED"
    return "active" if subscription.get("consumers") else "idle"


def problems_of(subscriptions: dict[str, dict[str, Any]]) -> list[Done]:
    """Problems that need attention."""
    problems = {"pausedReason": "is paused", "deadLetterProblem": "cannot write a dead letter"}
    warnings = [
        Done(f"{printable(name)} {_batch_warning(one)}")
        for name, one in sorted(subscriptions.items())
        if one.get("nackedBatches") and one.get("deadLetterPolicy")
    ]
    return warnings + [
        Done(f"{printable(name)} {what}: {printable(str(one[field]))}")
        for name, one in sorted(subscriptions.items())
        for field, what in problems.items()
        if one.get(field)
    ]


def _batch_warning(one: dict[str, Any]) -> str:
    if one.get("type") in ("Exclusive", "Failover"):
        effect = "all of its messages die together"
    else:
        effect = "all of its messages are delivered again, one by one"
    return (
        f"had batches nacked as a whole ({one['nackedBatches']}): when one message of a batch fails, {effect},"
        " unless the client acknowledges batch indexes"
    )


def _summary(value: dict[str, Any]) -> dict[str, object]:
    metadata = value.get("metadata") or {}
    summary: dict[str, object] = {
        "partitions": metadata.get("partitions") or None,
        "in": _rate(value.get("msgRateIn"), value.get("msgThroughputIn")),
        "out": _rate(value.get("msgRateOut"), value.get("msgThroughputOut")),
        "published": _count(value.get("msgInCounter"), value.get("bytesInCounter")),
        "delivered": _count(value.get("msgOutCounter"), value.get("bytesOutCounter")),
        "stored": shown_bytes(value.get("storageSize", -1)),
        "backlog": shown_bytes(value.get("backlogSize", -1)),
        "producers": len(value.get("publishers") or ()),
        "subscriptions": len(value.get("subscriptions") or ()),
    }
    return {name: item for name, item in summary.items() if item is not None}


def _rate(messages: object, size: object) -> str:
    return f"{_number(messages):,.1f} msg/s, {shown_bytes(_number(size))}/s"


def _count(messages: object, size: object) -> str:
    return f"{_number(messages):,.0f} messages, {shown_bytes(_number(size))}"


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _replication(clusters: dict[str, dict[str, Any]]) -> Table:
    """Apache Pulsar has no state: there it is whether the replicator is connected."""
    rows = [
        (
            name,
            one.get("state") or ("connected" if one.get("connected") else "not connected"),
            int(_number(one.get("replicationBacklog"))),
            int(_number(one.get("replicationDelayInSeconds"))),
            printable(str(one.get("reason") or "-")),
        )
        for name, one in sorted(clusters.items())
    ]
    return Table(clusters, ("CLUSTER", "STATE", "BACKLOG", "DELAY S", "REASON"), rows)


def _publishers(publishers: list[dict[str, Any]]) -> Table:
    rows = [
        (
            one.get("producerName") or one.get("producerId") or "-",
            one.get("address") or "-",
            float(_number(one.get("msgRateIn"))),
            one.get("clientVersion") or "-",
        )
        for one in publishers
    ]
    return Table(publishers, ("PRODUCER", "ADDRESS", "MSG/S", "CLIENT"), rows)


def _partitions(partitions: dict[str, dict[str, Any]]) -> Table:
    rows = [
        (
            name,
            int(_number(one.get("msgInCounter"))),
            shown_bytes(one.get("storageSize", -1)),
            sum(int(_number(sub.get("msgBacklog"))) for sub in (one.get("subscriptions") or {}).values()),
        )
        for name, one in sorted(partitions.items(), key=lambda item: (len(item[0]), item[0]))
    ]
    return Table(partitions, ("PARTITION", "PUBLISHED", "STORED", "BACKLOG"), rows)

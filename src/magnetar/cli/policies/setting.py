"""Policy settings: the options of `set-NAME` and the request body made from them.

Owns the spelling of bodies, which is Apache Pulsar's, and the checks that need no broker.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from magnetar.cli.argument import (
    INT_MAX,
    names_in,
    parse_delays,
    parse_duration,
    parse_duration_or_infinite,
    parse_duration_with_unit,
    parse_size,
    parse_size_or_infinite,
    parse_topic,
    whole,
    words_of,
)
from magnetar.cli.rest import Query
from magnetar.names import TopicName

SECONDS_PER_MINUTE = 60
BYTES_PER_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Setting:
    """The body and the parameters that a `set-NAME` command sends."""

    body: object
    query: Query | None = None


# -- options


Enable = Annotated[bool, typer.Option("--enable/--disable", "-e/-d", help="Turn it on or off.")]


class QuotaAction(StrEnum):
    producer_request_hold = "producer_request_hold"
    producer_exception = "producer_exception"
    consumer_backlog_eviction = "consumer_backlog_eviction"


class QuotaType(StrEnum):
    destination_storage = "destination_storage"
    message_age = "message_age"


class TopicType(StrEnum):
    partitioned = "partitioned"
    non_partitioned = "non-partitioned"


class DeleteMode(StrEnum):
    delete_when_no_subscriptions = "delete_when_no_subscriptions"
    delete_when_subscriptions_caught_up = "delete_when_subscriptions_caught_up"


class Compatibility(StrEnum):
    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    BACKWARD = "BACKWARD"
    FORWARD = "FORWARD"
    FULL = "FULL"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class SubscriptionAuthMode(StrEnum):
    none = "None"
    prefix = "Prefix"


class SubscriptionKind(StrEnum):
    Exclusive = "Exclusive"
    Shared = "Shared"
    Failover = "Failover"
    Key_Shared = "Key_Shared"


QuotaTypeOption = Annotated[
    QuotaType, typer.Option("--type", "-t", help="The limit is on the size of the backlog, or on its age.")
]


MaxRedeliverCount = Annotated[
    int,
    typer.Option(
        "--max-redeliver-count",
        "-m",
        metavar="N",
        parser=whole(1, INT_MAX),
        help="Redeliveries before a message becomes a dead letter.",
    ),
]
DeadLetterTopic = Annotated[
    TopicName | None,
    typer.Option(
        "--dead-letter-topic",
        "-t",
        metavar="TOPIC",
        parser=parse_topic,
        help="The topic for dead letters.",
        show_default="TOPIC-SUBSCRIPTION-DLQ",
    ),
]
InitialSubscription = Annotated[
    str | None,
    typer.Option(
        "--initial-subscription-name", "-i", metavar="NAME", help="A subscription to create on the dead letter topic."
    ),
]
Delays = Annotated[
    Any,  # a list: Typer would otherwise take its items one by one
    typer.Option(
        "--delays",
        "-d",
        metavar="DURATION,…",
        parser=parse_delays,
        help="Delays after the first failure, the second, ...: 500ms,1s,10s,1m; the last one repeats.",
    ),
]
Percent = Annotated[
    int,
    typer.Option(
        "--percent", "-p", metavar="N", parser=whole(0, 99), help="Pause above this percentage of dead letters."
    ),
]
Window = Annotated[
    int | None,
    typer.Option(
        "--window",
        "-w",
        metavar="DURATION",
        parser=parse_duration,
        help="The window in which messages are counted.",
        show_default="1m",
    ),
]
Minimum = Annotated[
    int,
    typer.Option(
        "--minimum", "-n", metavar="N", parser=whole(1), help="Messages needed in the window before it can pause."
    ),
]


# -- bodies


def retention(
    time: Annotated[
        int,
        typer.Option(
            "--time",
            "-t",
            metavar="DURATION",
            parser=parse_duration_or_infinite,
            help="The time to keep: 90m, 3h, 2d, 1w; 0 for none, -1 for no limit.",
        ),
    ],
    size: Annotated[
        int,
        typer.Option(
            "--size",
            "-s",
            metavar="SIZE",
            parser=parse_size_or_infinite,
            help="The size to keep: 10M, 16G; -1 for no limit.",
        ),
    ],
) -> Setting:
    return Setting(
        {
            "retentionTimeInMinutes": _whole("--time", "minutes", time, SECONDS_PER_MINUTE),
            "retentionSizeInMB": _whole("--size", "MB", size, BYTES_PER_MB),
        }
    )


def _whole(option: str, unit: str, value: int, size: int) -> int:
    """Pulsar keeps minutes and megabytes; a fraction would silently become 0."""
    if value == -1:
        return -1
    if value % size:
        small = "seconds" if size == SECONDS_PER_MINUTE else "bytes"
        raise typer.BadParameter(
            f"{option} must be a whole number of {unit}: {value} {small} are {value / size:g} {unit}"
        )
    return int32(option, value // size)


def int32(option: str, value: int) -> int:
    if value > INT_MAX:
        raise typer.BadParameter(f"{option} {value} exceeds the limit of {INT_MAX}")
    return value


def message_ttl(
    ttl: Annotated[
        int,
        typer.Option(
            "--ttl",
            "-t",
            "--messageTTL",
            "-ttl",
            metavar="DURATION",
            parser=parse_duration,
            help="The time to live: 90s, 5m, 3h, 2d; 0 for no limit.",
        ),
    ],
) -> Setting:
    return Setting(int32("--ttl", ttl))


def backlog_quota(
    policy: Annotated[QuotaAction, typer.Option("--policy", "-p", help="The action when the limit is reached.")],
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-l", metavar="SIZE", parser=parse_size_or_infinite, help="The maximum size: 10M, 16G."
        ),
    ] = None,
    limit_time: Annotated[
        int | None,
        typer.Option(
            "--limitTime", "-lt", metavar="DURATION", parser=parse_duration_or_infinite, help="The maximum age: 3h, 2d."
        ),
    ] = None,
    type: QuotaTypeOption = QuotaType.destination_storage,
) -> Setting:
    wanted, other = ("--limit", "--limitTime") if type is QuotaType.destination_storage else ("--limitTime", "--limit")
    given = {"--limit": limit, "--limitTime": limit_time}
    if given[wanted] is None:
        raise typer.BadParameter(f"a quota of type {type.value} needs {wanted}")
    if given[other] is not None:
        raise typer.BadParameter(f"a quota of type {type.value} has no {other}")
    body: dict[str, object] = {"policy": policy.value}
    if limit is not None:
        body["limitSize"] = limit
    if limit_time is not None:
        body["limitTime"] = int32("--limitTime", limit_time)
    return Setting(body, {"backlogQuotaType": type.value})


def auto_topic_creation(
    enable: Enable,
    type: Annotated[
        TopicType, typer.Option("--type", "-t", help="The type of topic to create.")
    ] = TopicType.non_partitioned,
    num_partitions: Annotated[
        int | None,
        typer.Option(
            "--num-partitions",
            "-n",
            metavar="N",
            parser=whole(1),
            help="The number of partitions, for a partitioned topic.",
        ),
    ] = None,
) -> Setting:
    if not enable:
        return Setting({"allowAutoTopicCreation": False})
    if (type is TopicType.partitioned) != (num_partitions is not None):
        raise typer.BadParameter("--num-partitions and --type partitioned must be given together")
    body: dict[str, object] = {"allowAutoTopicCreation": True, "topicType": type.value}
    if num_partitions is not None:
        body["defaultNumPartitions"] = num_partitions
    return Setting(body)


def auto_subscription_creation(enable: Enable) -> Setting:
    return Setting({"allowAutoSubscriptionCreation": enable})


def flag(enable: Enable) -> Setting:
    return Setting(enable)


def schema_compatibility(
    compatibility: Annotated[
        Compatibility,
        typer.Option("--compatibility", "-c", case_sensitive=False, help="The compatibility required of a new schema."),
    ],
) -> Setting:
    return Setting(compatibility.value)


def inactive_topics(
    enable: Annotated[
        bool,
        typer.Option(
            "--enable-delete-while-inactive/--disable-delete-while-inactive",
            "-e/-d",
            help="Delete inactive topics, or keep them.",
        ),
    ],
    max_inactive_duration: Annotated[
        int,
        typer.Option(
            "--max-inactive-duration",
            "-t",
            metavar="DURATION",
            parser=parse_duration,
            help="Time without use before a topic is deleted.",
        ),
    ],
    delete_mode: Annotated[DeleteMode, typer.Option("--delete-mode", "-m", help="When a topic is inactive.")],
) -> Setting:
    return Setting(
        {
            "inactiveTopicDeleteMode": delete_mode.value,
            "maxInactiveDurationSeconds": int32("--max-inactive-duration", max_inactive_duration),
            "deleteWhileInactive": enable,
        }
    )


def delayed_delivery(
    enable: Enable,
    time: Annotated[
        int | None,
        typer.Option(
            "--time", "-t", metavar="DURATION", parser=parse_duration, help="The tick time.", show_default="1s"
        ),
    ] = None,
    max_delay: Annotated[
        int | None,
        typer.Option(
            "--maxDelay",
            "-md",
            metavar="DURATION",
            parser=parse_duration,
            help="The longest delay.",
            show_default="any",
        ),
    ] = None,
) -> Setting:
    return Setting(
        {
            "active": enable,
            "tickTime": or_default(time, 1) * 1000,
            "maxDeliveryDelayInMillis": or_default(max_delay, 0) * 1000,
        }
    )


def subscription_types(
    types: Annotated[
        Any,  # a list: Typer would otherwise take its items one by one
        typer.Option(
            "--types",
            "-t",
            metavar="TYPE,…",
            parser=words_of(SubscriptionKind),
            help=f"Some of {', '.join(SubscriptionKind)}.",
        ),
    ],
) -> Setting:
    return Setting(types)


def subscription_auth_mode(
    mode: Annotated[
        SubscriptionAuthMode,
        typer.Option(
            "--subscription-auth-mode",
            "-m",
            case_sensitive=False,
            help="Prefix: names of subscriptions begin with the role of their consumers.",
        ),
    ],
) -> Setting:
    return Setting(mode.value)


def clusters(
    clusters: Annotated[str, typer.Option("--clusters", "-c", metavar="CLUSTER,…", help="The clusters, by name.")],
) -> Setting:
    return Setting(names_in(clusters))


def dead_letter_policy(
    max_redeliver_count: MaxRedeliverCount,
    dead_letter_topic: DeadLetterTopic = None,
    initial_subscription_name: InitialSubscription = None,
) -> Setting:
    body: dict[str, object] = {"maxRedeliverCount": max_redeliver_count}
    if dead_letter_topic is not None:
        body["deadLetterTopic"] = dead_letter_topic.full
    if initial_subscription_name:
        body["initialSubscriptionName"] = initial_subscription_name
    return Setting(body)


def redelivery_backoff(delays: Delays) -> Setting:
    return Setting(delays)


def circuit_breaker(percent: Percent, window: Window = None, minimum: Minimum = 10) -> Setting:
    return Setting({"percent": percent, "windowSeconds": or_default(window, 60), "minimum": minimum})


def or_default(value: int | None, default: int) -> int:
    return default if value is None else value


def minutes(option: str, help: str) -> Callable[..., Setting]:
    def setting(value: int) -> Setting:
        return Setting(_whole(option, "minutes", value, SECONDS_PER_MINUTE))

    annotation = Annotated[
        int, typer.Option(option, "-t", metavar="DURATION", parser=parse_duration_with_unit, help=help)
    ]
    return _with_option(setting, annotation)


def size(option: str, short: str) -> Callable[..., Setting]:
    def setting(value: int) -> Setting:
        return Setting(value)

    help = "The size in bytes: 4096, 100K, 10M; 0 for no limit."
    annotation = Annotated[int, typer.Option(option, short, metavar="SIZE", parser=parse_size, help=help)]
    return _with_option(setting, annotation)


def number(option: str, short: str) -> Callable[..., Setting]:
    def setting(value: int) -> Setting:
        return Setting(value)

    annotation = Annotated[
        int, typer.Option(option, short, metavar="N", parser=whole(0), help="The limit; 0 for none.")
    ]
    return _with_option(setting, annotation)


def _with_option(setting: Callable[..., Setting], annotation: object) -> Callable[..., Setting]:
    parameter = inspect.Parameter("value", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    setting.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    return setting

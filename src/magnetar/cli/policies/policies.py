"""The policies of namespaces and topics, as a table: each row makes `set-NAME`, `get-NAME` and `remove-NAME`.

A row says where a policy is in the REST API and which options make its body. Owns the spelling of bodies, which is
Apache Pulsar's. What a policy means is the broker's affair.
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
    Namespace,
    Topic,
    names_in,
    parse_duration,
    parse_duration_or_infinite,
    parse_duration_with_unit,
    parse_size,
    parse_size_or_infinite,
    whole,
    words_of,
)
from magnetar.cli.command import CommandGroup
from magnetar.cli.nouns.failure_policy import DeadLetterTopic, InitialSubscription, MaxRedeliverCount, policy_body
from magnetar.cli.output import Done, Record
from magnetar.cli.path import namespace_path, topic_path
from magnetar.cli.rest import Query, Rest
from magnetar.names import TopicName

SECONDS_PER_MINUTE = 60
BYTES_PER_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Setting:
    """What a set command sends."""

    body: object
    query: Query | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """`namespace` and `topic` are the last part of its path, None where there is no such policy.

    `name` is the noun of the command; where that of a topic has another one, it is `topic_name`. `topic_query` is the
    parameter that carries the value of a topic where the REST API wants it there and not in the body.
    """

    name: str
    meaning: str
    setting: Callable[..., Setting]
    namespace: str | None = None
    topic: str | None = None
    topic_name: str | None = None
    topic_query: str | None = None
    get_name: str | None = None
    get_path: str | None = None
    method: str = "POST"
    removable: bool = True


# -- options


Enable = Annotated[bool, typer.Option("--enable/--disable", "-e/-d", help="On or off.")]
MessageRate = Annotated[
    int, typer.Option("--msg-rate", "-m", metavar="N", parser=whole(-1), help="Messages per period; -1 is no limit.")
]
ByteRate = Annotated[
    int | None,
    typer.Option(
        "--byte-rate",
        "-b",
        metavar="SIZE",
        parser=parse_size_or_infinite,
        help="Bytes per period.",
        show_default="no limit",
    ),
]
RatePeriod = Annotated[
    int | None, typer.Option("--period", metavar="TIME", parser=parse_duration, help="The period.", show_default="1s")
]


class QuotaPolicy(StrEnum):
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


class SubscriptionKind(StrEnum):
    Exclusive = "Exclusive"
    Shared = "Shared"
    Failover = "Failover"
    Key_Shared = "Key_Shared"


QuotaTypeOption = Annotated[
    QuotaType, typer.Option("--type", "-t", help="What is limited: the size of the backlog, or its age.")
]


# -- bodies


def _retention(
    time: Annotated[
        int,
        typer.Option(
            "--time",
            "-t",
            metavar="TIME",
            parser=parse_duration_or_infinite,
            help="How long: 90m, 3h, 2d, 1w; 0 is not at all, -1 for ever.",
        ),
    ],
    size: Annotated[
        int,
        typer.Option(
            "--size", "-s", metavar="SIZE", parser=parse_size_or_infinite, help="How much: 10M, 16G; -1 is no limit."
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
    """Retention is kept in minutes and megabytes; a part of one would silently become nothing."""
    if value == -1:
        return -1
    if value % size:
        small = "seconds" if size == SECONDS_PER_MINUTE else "bytes"
        raise typer.BadParameter(f"{option} has to be whole {unit}, and {value} {small} are {value / size:g} {unit}")
    return _int32(option, value // size)


def _int32(option: str, value: int) -> int:
    if value > INT_MAX:
        raise typer.BadParameter(f"{option}: {value} is more than {INT_MAX}")
    return value


def _message_ttl(
    ttl: Annotated[
        int,
        typer.Option(
            "--ttl",
            "-t",
            "--messageTTL",
            "-ttl",
            metavar="TIME",
            parser=parse_duration,
            help="How long: 90s, 5m, 3h, 2d; 0 is for ever.",
        ),
    ],
) -> Setting:
    return Setting(_int32("--ttl", ttl))


def _backlog_quota(
    policy: Annotated[QuotaPolicy, typer.Option("--policy", "-p", help="What happens when it is used up.")],
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-l", metavar="SIZE", parser=parse_size_or_infinite, help="The size: 10M, 16G."),
    ] = None,
    limit_time: Annotated[
        int | None,
        typer.Option("--limitTime", "-lt", metavar="TIME", parser=parse_duration_or_infinite, help="The age: 3h, 2d."),
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
        body["limitTime"] = _int32("--limitTime", limit_time)
    return Setting(body, {"backlogQuotaType": type.value})


def _auto_topic_creation(
    enable: Enable,
    type: Annotated[TopicType, typer.Option("--type", "-t", help="What is created.")] = TopicType.non_partitioned,
    num_partitions: Annotated[
        int | None,
        typer.Option("--num-partitions", "-n", metavar="N", parser=whole(1), help="How many, of a partitioned topic."),
    ] = None,
) -> Setting:
    if not enable:
        return Setting({"allowAutoTopicCreation": False})
    if (type is TopicType.partitioned) != (num_partitions is not None):
        raise typer.BadParameter("--num-partitions goes with --type partitioned, and only with it")
    body: dict[str, object] = {"allowAutoTopicCreation": True, "topicType": type.value}
    if num_partitions is not None:
        body["defaultNumPartitions"] = num_partitions
    return Setting(body)


def _auto_subscription_creation(enable: Enable) -> Setting:
    return Setting({"allowAutoSubscriptionCreation": enable})


def _flag(enable: Enable) -> Setting:
    return Setting(enable)


def _schema_compatibility(
    compatibility: Annotated[
        Compatibility, typer.Option("--compatibility", "-c", case_sensitive=False, help="What a new schema must be.")
    ],
) -> Setting:
    return Setting(compatibility.value)


def _inactive_topics(
    enable: Annotated[
        bool,
        typer.Option(
            "--enable-delete-while-inactive/--disable-delete-while-inactive", "-e/-d", help="Whether they are deleted."
        ),
    ],
    max_inactive_duration: Annotated[
        int,
        typer.Option("--max-inactive-duration", "-t", metavar="TIME", parser=parse_duration, help="After how long."),
    ],
    delete_mode: Annotated[DeleteMode, typer.Option("--delete-mode", "-m", help="Which topics are inactive.")],
) -> Setting:
    return Setting(
        {
            "inactiveTopicDeleteMode": delete_mode.value,
            "maxInactiveDurationSeconds": _int32("--max-inactive-duration", max_inactive_duration),
            "deleteWhileInactive": enable,
        }
    )


def _delayed_delivery(
    enable: Enable,
    time: Annotated[
        int | None,
        typer.Option("--time", "-t", metavar="TIME", parser=parse_duration, help="The tick.", show_default="1s"),
    ] = None,
    max_delay: Annotated[
        int | None,
        typer.Option(
            "--maxDelay", "-md", metavar="TIME", parser=parse_duration, help="The longest delay.", show_default="any"
        ),
    ] = None,
) -> Setting:
    return Setting(
        {"active": enable, "tickTime": _or(time, 1) * 1000, "maxDeliveryDelayInMillis": _or(max_delay, 0) * 1000}
    )


def _subscription_types(
    types: Annotated[
        Any,  # a list of types; Typer would ask for them one by one
        typer.Option(
            "--types",
            "-t",
            metavar="TYPE,…",
            parser=words_of(SubscriptionKind),
            help=f"Of {', '.join(SubscriptionKind)}.",
        ),
    ],
) -> Setting:
    return Setting(types)


def _clusters(
    clusters: Annotated[str, typer.Option("--clusters", "-c", metavar="CLUSTER,…", help="Names of clusters.")],
) -> Setting:
    return Setting(names_in(clusters))


def _dead_letters(
    max_redeliver_count: MaxRedeliverCount,
    dead_letter_topic: DeadLetterTopic = None,
    initial_subscription_name: InitialSubscription = None,
) -> Setting:
    return Setting(policy_body(max_redeliver_count, dead_letter_topic, initial_subscription_name))


def _publish_rate(message_rate: MessageRate = -1, byte_rate: ByteRate = None) -> Setting:
    return Setting({"publishThrottlingRateInMsg": message_rate, "publishThrottlingRateInByte": _or(byte_rate, -1)})


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _dispatch_rate(message_rate: MessageRate = -1, byte_rate: ByteRate = None, period: RatePeriod = None) -> Setting:
    return Setting(
        {
            "dispatchThrottlingRateInMsg": message_rate,
            "dispatchThrottlingRateInByte": _or(byte_rate, -1),
            "ratePeriodInSecond": _int32("--period", _or(period, 1)),
        }
    )


def _subscribe_rate(
    rate: Annotated[
        int,
        typer.Option("--rate", "-r", metavar="N", parser=whole(-1), help="Subscribes per consumer; -1 is no limit."),
    ] = -1,
    period: Annotated[
        int | None,
        typer.Option("--period", metavar="TIME", parser=parse_duration, help="The period.", show_default="30s"),
    ] = None,
) -> Setting:
    seconds = _int32("--period", _or(period, 30))
    return Setting({"subscribeThrottlingRatePerConsumer": rate, "ratePeriodInSecond": seconds})


def _minutes(option: str, help: str) -> Callable[..., Setting]:
    def setting(value: int) -> Setting:
        return Setting(_whole(option, "minutes", value, SECONDS_PER_MINUTE))

    annotation = Annotated[int, typer.Option(option, "-t", metavar="TIME", parser=parse_duration_with_unit, help=help)]
    return _with_option(setting, annotation)


def _size(option: str, short: str) -> Callable[..., Setting]:
    def setting(value: int) -> Setting:
        return Setting(value)

    help = "Bytes: 4096, 100K, 10M; 0 switches it off."
    annotation = Annotated[int, typer.Option(option, short, metavar="SIZE", parser=parse_size, help=help)]
    return _with_option(setting, annotation)


def _number(option: str, short: str) -> Callable[..., Setting]:
    def setting(value: int) -> Setting:
        return Setting(value)

    annotation = Annotated[int, typer.Option(option, short, metavar="N", parser=whole(0), help="The limit; 0 is none.")]
    return _with_option(setting, annotation)


def _with_option(setting: Callable[..., Setting], annotation: object) -> Callable[..., Setting]:
    parameter = inspect.Parameter("value", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
    setting.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
    return setting


# -- the table


POLICIES: tuple[Policy, ...] = (
    Policy(
        "retention", "how long and how much is kept after it was acknowledged", _retention, "retention", "retention"
    ),
    Policy(
        "message-ttl",
        "after how long messages count as acknowledged",
        _message_ttl,
        "messageTTL",
        "messageTTL",
        topic_query="messageTTL",
    ),
    Policy(
        "backlog-quota",
        "how large or old a backlog may be",
        _backlog_quota,
        "backlogQuota",
        "backlogQuota",
        get_name="backlog-quotas",
        get_path="backlogQuotaMap",
    ),
    Policy(
        "auto-topic-creation", "whether clients create topics by using them", _auto_topic_creation, "autoTopicCreation"
    ),
    Policy(
        "auto-subscription-creation",
        "whether clients create subscriptions by using them",
        _auto_subscription_creation,
        "autoSubscriptionCreation",
        "autoSubscriptionCreation",
    ),
    Policy(
        "deduplication",
        "whether a message that is sent twice is stored once",
        _flag,
        "deduplication",
        "deduplicationEnabled",
    ),
    Policy(
        "schema-compatibility-strategy",
        "what a new schema must be to the ones before",
        _schema_compatibility,
        "schemaCompatibilityStrategy",
        "schemaCompatibilityStrategy",
        method="PUT",
        removable=False,
    ),
    Policy(
        "schema-validation-enforce",
        "whether producers need a schema where the topic has one",
        _flag,
        "schemaValidationEnforced",
        "schemaValidationEnforced",
        removable=False,
    ),
    Policy(
        "is-allow-auto-update-schema",
        "whether producers may bring new schemas",
        _flag,
        "isAllowAutoUpdateSchema",
        removable=False,
    ),
    Policy(
        "delayed-delivery", "whether messages can be delayed", _delayed_delivery, "delayedDelivery", "delayedDelivery"
    ),
    Policy(
        "inactive-topic-policies",
        "when topics that nobody uses are deleted",
        _inactive_topics,
        "inactiveTopicPolicies",
        "inactiveTopicPolicies",
    ),
    Policy(
        "subscription-expiration-time",
        "after how long a subscription that nobody uses is deleted",
        _minutes("--time", "How long: 90m, 3h, 2d; 0 is never."),
        "subscriptionExpirationTime",
        "subscriptionExpirationTime",
        topic_query="subscriptionExpirationTime",
    ),
    Policy(
        "subscription-types-enabled",
        "which types of subscriptions are allowed",
        _subscription_types,
        "subscriptionTypesEnabled",
        "subscriptionTypesEnabled",
    ),
    Policy("clusters", "which clusters messages are replicated to", _clusters, "replication", removable=False),
    Policy("allowed-clusters", "which clusters it may be replicated to", _clusters, "allowedClusters", removable=False),
    Policy("replication-clusters", "which clusters messages are replicated to", _clusters, topic="replication"),
    Policy(
        "max-producers-per-topic",
        "how many producers a topic may have",
        _number("--max-producers-per-topic", "-p"),
        "maxProducersPerTopic",
    ),
    Policy(
        "max-producers",
        "how many producers it may have",
        _number("--max-producers", "-p"),
        topic="maxProducers",
    ),
    Policy(
        "max-consumers-per-topic",
        "how many consumers a topic may have",
        _number("--max-consumers-per-topic", "-c"),
        "maxConsumersPerTopic",
    ),
    Policy(
        "max-consumers",
        "how many consumers it may have",
        _number("--max-consumers", "-c"),
        topic="maxConsumers",
    ),
    Policy(
        "max-consumers-per-subscription",
        "how many consumers a subscription may have",
        _number("--max-consumers-per-subscription", "-c"),
        "maxConsumersPerSubscription",
        "maxConsumersPerSubscription",
    ),
    Policy(
        "max-subscriptions-per-topic",
        "how many subscriptions a topic may have",
        _number("--max-subscriptions-per-topic", "-m"),
        "maxSubscriptionsPerTopic",
        "maxSubscriptionsPerTopic",
        topic_name="max-subscriptions",
    ),
    Policy(
        "max-unacked-messages-per-consumer",
        "how many messages a consumer may leave unacknowledged",
        _number("--max-unacked-messages-per-consumer", "-c"),
        "maxUnackedMessagesPerConsumer",
        "maxUnackedMessagesOnConsumer",
    ),
    Policy(
        "max-unacked-messages-per-subscription",
        "how many messages a subscription may leave unacknowledged",
        _number("--max-unacked-messages-per-subscription", "-c"),
        "maxUnackedMessagesPerSubscription",
        "maxUnackedMessagesOnSubscription",
    ),
    Policy(
        "max-topics-per-namespace",
        "how many topics a namespace may have",
        _number("--max-topics-per-namespace", "-t"),
        "maxTopicsPerNamespace",
    ),
    Policy(
        "max-message-size",
        "how large a message may be",
        _size("--max-message-size", "-m"),
        topic="maxMessageSize",
    ),
    Policy("publish-rate", "how fast a topic may be published to", _publish_rate, "publishRate", "publishRate"),
    Policy("dispatch-rate", "how fast a topic hands out messages", _dispatch_rate, "dispatchRate", "dispatchRate"),
    Policy(
        "subscription-dispatch-rate",
        "how fast a subscription hands out messages",
        _dispatch_rate,
        "subscriptionDispatchRate",
        "subscriptionDispatchRate",
    ),
    Policy("subscribe-rate", "how often a consumer may subscribe", _subscribe_rate, "subscribeRate", "subscribeRate"),
    Policy(
        "dead-letter-policy",
        "when messages of subscriptions without a policy of their own become dead letters",
        _dead_letters,
        "deadLetterPolicy",
    ),
    Policy(
        "dead-letter-expired",
        "whether a message whose time to live is over becomes a dead letter",
        _flag,
        "deadLetterExpired",
    ),
    Policy(
        "dead-letter-evicted",
        "whether a message that a backlog quota evicts becomes a dead letter",
        _flag,
        "deadLetterEvicted",
    ),
)


# -- the commands


def add_namespace_policies(group: CommandGroup) -> None:
    parameter = _target("namespace", Namespace)
    for policy in POLICIES:
        if policy.namespace is not None:
            _add(group, policy, policy.name, policy.namespace, parameter, namespace_path, getter_options=())


def add_topic_policies(group: CommandGroup) -> None:
    parameter = _target("topic", Topic)
    applied = inspect.Parameter("applied", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Applied)
    for policy in POLICIES:
        if policy.topic is not None:
            name = policy.topic_name or policy.name
            _add(group, policy, name, policy.topic, parameter, topic_path, getter_options=(applied,))


_Applied = Annotated[
    bool, typer.Option("--applied", "-ap", help="What is in force, also where it comes from the namespace or broker.")
]


def _target(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


def _add(
    group: CommandGroup,
    policy: Policy,
    name: str,
    path: str,
    target: inspect.Parameter,
    path_of: Callable[..., tuple[str, ...]],
    getter_options: tuple[inspect.Parameter, ...],
) -> None:
    options = list(inspect.signature(policy.setting, eval_str=True).parameters.values())
    of = f"of a {target.name}: {policy.meaning}"

    def set_it(rest: Rest, **given: object) -> Done:
        owner = given.pop(target.name)
        setting = policy.setting(**given)
        if policy.topic_query is not None and isinstance(owner, TopicName):
            setting = Setting(None, {policy.topic_query: setting.body})
        rest.request(policy.method, (*path_of(owner), path), body=setting.body, query=setting.query)
        return Done(f"set {name} of {owner}")

    def get_it(rest: Rest, applied: bool = False, **given: object) -> Record:
        owner = given[target.name]
        value = rest.get(*path_of(owner), policy.get_path or path, query={"applied": True} if applied else None)
        return Record(value, none=f"{owner} has no {name} of its own")

    def remove_it(rest: Rest, **given: object) -> Done:
        owner = given.pop(target.name)
        query = {"backlogQuotaType": kind.value} if isinstance(kind := given.get("type"), QuotaType) else None
        rest.delete(*path_of(owner), path, query=query)
        return Done(f"removed {name} of {owner}")

    group.add(f"set-{name}", f"Set {name} {of}.", [target, *options], set_it)
    group.add(f"get-{policy.get_name or name}", f"Show {name} {of}.", [target, *getter_options], get_it)
    if policy.removable:
        # Only a quota has more than one value, and its type says which is meant.
        types = [option for option in options if option.annotation is QuotaTypeOption]
        group.add(f"remove-{name}", f"Remove {name} {of}.", [target, *types], remove_it)

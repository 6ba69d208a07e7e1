"""Options of the client: their legal values, the numbers of the protocol for them, and checks of arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict, TypeVar

from magnetar import errors as server_errors
from magnetar.client.errors import InvalidArgument, InvalidName
from magnetar.names import TopicName
from magnetar.security.credentials import Security
from magnetar.wire import schema_pb2 as pb

Compression = Literal["none", "lz4", "zlib", "zstd", "snappy"]
AccessMode = Literal["Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"]
SubscriptionType = Literal["Exclusive", "Shared", "Failover", "Key_Shared"]

COMPRESSIONS: dict[str, pb.CompressionType.ValueType] = {
    "none": pb.NONE,
    "lz4": pb.LZ4,
    "zlib": pb.ZLIB,
    "zstd": pb.ZSTD,
    "snappy": pb.SNAPPY,
}
ACCESS_MODES: dict[str, pb.ProducerAccessMode.ValueType] = {
    "Shared": pb.Shared,
    "Exclusive": pb.Exclusive,
    "WaitForExclusive": pb.WaitForExclusive,
    "ExclusiveWithFencing": pb.ExclusiveWithFencing,
}
SUBSCRIPTION_TYPES: dict[str, pb.CommandSubscribe.SubType.ValueType] = {
    "Exclusive": pb.CommandSubscribe.Exclusive,
    "Shared": pb.CommandSubscribe.Shared,
    "Failover": pb.CommandSubscribe.Failover,
    "Key_Shared": pb.CommandSubscribe.Key_Shared,
}

_T = TypeVar("_T")


class ClientOptions(TypedDict, total=False):
    """The options of a client besides its address, the same for all clients."""

    security: Security | None
    admin_url: str | None
    operation_timeout_s: float
    connect_timeout_s: float
    reconnect_timeout_s: float
    keepalive_s: float
    subscription_role_prefix: str


class SendOptions(TypedDict, total=False):
    """The options of a message besides its value. Times are milliseconds since the epoch."""

    key: str | bytes | None
    properties: Mapping[str, str] | None
    event_time_ms: int | None
    deliver_at_ms: int | None
    ordering_key: bytes | None
    sequence_id: int | None
    replicate_to: Sequence[str] | None


def choose(name: str, value: str, choices: Mapping[str, _T]) -> _T:
    if value not in choices:
        raise InvalidArgument(f"{name} {value!r} is not one of {', '.join(choices)}")
    return choices[value]


def check_positive(**values: float) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
            raise InvalidArgument(f"{name} must be a number above 0, not {value!r}")


def own_subscription(name: str, role_prefix: str) -> str:
    """The name of a subscription that a client creates for itself, composed as by Pulsar's clients."""
    return f"{role_prefix}-{name}" if role_prefix else name


def parse_topic(topic: str) -> TopicName:
    """Raises the client's `InvalidName`."""
    try:
        return TopicName.parse(topic)
    except server_errors.InvalidName as error:
        raise InvalidName(str(error)) from None

"""Names of topics and namespaces: their grammar, and short and full spellings.

Knows neither whether a topic exists nor how many partitions it has.

    topic                                   short for  persistent://public/default/topic
    tenant/namespace/topic                  short for  persistent://tenant/namespace/topic
    domain://tenant/namespace/topic         the full name
    domain://tenant/namespace/topic-partition-3        one partition of a partitioned topic
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from magnetar.bounds import PARSED_NAMES, SUBSCRIPTION_NAME, TOPIC_NAME
from magnetar.errors import InvalidName

PERSISTENT = "persistent"
NON_PERSISTENT = "non-persistent"
DOMAINS = (PERSISTENT, NON_PERSISTENT)

DEFAULT_TENANT = "public"
DEFAULT_NAMESPACE = "default"

SYSTEM_TOPICS = frozenset(
    {
        "__change_events",
        "__transaction_buffer_snapshot",
        "__transaction_buffer_snapshot_indexes",
        "__transaction_buffer_snapshot_segments",
    }
)
"""Topics in which Apache Pulsar stores its own data, in any namespace."""

SUBSCRIPTION_NAME_BYTES_MAX = SUBSCRIPTION_NAME.limit

ANONYMOUS_PREFIX = "magnetar-"
"""Non-durable subscriptions with which our client waits for messages: the prefix, and a random number. The role may
stand before it, which namespaces can demand."""

_ANONYMOUS = re.compile(rf"(.+-)?{ANONYMOUS_PREFIX}[0-9a-f]{{16}}", re.DOTALL)

PARTITION_SUFFIX = "-partition-"
PARTITION_MAX = 2**31 - 1
"""Clients keep a partition index in a signed 32-bit integer."""

TOPIC_NAME_BYTES_MAX = TOPIC_NAME.limit
"""Limit of a full topic name in UTF-8: names are part of storage keys and of every lookup."""

PARSED_NAMES_MAX = PARSED_NAMES.limit
"""Size of the cache of parsed names: clients repeat a name in every lookup, metadata and producer command."""

# The alphabet of tenants and namespaces is Pulsar's, ASCII only: they become path segments of the REST API.
_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
# "-partition-01" is an ordinary name: only the canonical spelling of a number makes a partition.
_PARTITION = re.compile(r"(?P<base>.+)-partition-(?P<index>0|[1-9][0-9]{0,9})", re.DOTALL)
# HTTP clients remove these two from a path, so nothing with such a name could be administered.
_PATH_FOLDED = frozenset({".", ".."})


class TopicName(msgspec.Struct, frozen=True, cache_hash=True, kw_only=True):
    """A valid topic name and its parts. Created by `TopicName.parse`, so that `full` always agrees with the parts.

    `local` is the last part, including a partition suffix.
    """

    full: str
    domain: str
    tenant: str
    namespace: str
    local: str
    partition: int = -1

    @staticmethod
    def parse(text: str) -> TopicName:
        """Parses any spelling of a topic name; raises `InvalidName`."""
        return _parse_topic(text)

    @property
    def namespace_full(self) -> str:
        return f"{self.tenant}/{self.namespace}"

    @property
    def is_persistent(self) -> bool:
        return self.domain == PERSISTENT

    @property
    def is_partition(self) -> bool:
        return self.partition >= 0

    @property
    def base(self) -> TopicName:
        """The partitioned topic this is a partition of, or the name itself."""
        if self.partition < 0:
            return self
        return _parse_topic(self.full[: self.full.rindex(PARTITION_SUFFIX)])

    def with_partition(self, index: int) -> TopicName:
        """Partition `index` of this topic; of a partition's name, a partition of that partition, not its sibling."""
        if not 0 <= index <= PARTITION_MAX:
            raise InvalidName(f"partition {index} of topic {self.full} is not between 0 and {PARTITION_MAX}")
        return _parse_topic(f"{self.full}{PARTITION_SUFFIX}{index}")

    def __str__(self) -> str:
        return self.full


def is_anonymous(subscription: str) -> bool:
    """Whether our client gave the name, to wait for messages."""
    return _ANONYMOUS.fullmatch(subscription) is not None


def is_system_topic(name: TopicName) -> bool:
    """Judged by the name alone: clients may create such topics, and Apache Pulsar replicates its own here."""
    return name.base.local in SYSTEM_TOPICS


def parse_namespace(text: str) -> tuple[str, str]:
    """Parses `tenant/namespace`; raises `InvalidName`."""
    parts = text.split("/")
    if len(parts) != 2:
        raise InvalidName(f"namespace name {_quote(text)} is not of the form tenant/namespace")
    tenant, namespace = parts
    check_entity("tenant", tenant)
    check_entity("namespace", namespace)
    return tenant, namespace


def check_entity(kind: str, name: str) -> str:
    """Returns `name` if it is a valid name of a tenant, a namespace or a cluster; `kind` is for the message."""
    if not _ENTITY.fullmatch(name) or name in _PATH_FOLDED:
        raise InvalidName(f"{kind} name {_quote(name)} may only contain letters, digits and the characters - = : . _")
    if len(name) > TOPIC_NAME_BYTES_MAX:
        raise InvalidName(f"{kind} name of {len(name)} bytes exceeds the limit of {TOPIC_NAME_BYTES_MAX}")
    return name


@lru_cache(maxsize=PARSED_NAMES_MAX)
def _parse_topic(text: str) -> TopicName:
    domain, tenant, namespace, local = _split(text)
    if domain not in DOMAINS:
        raise InvalidName(f"domain {_quote(domain)} of topic {_quote(text)} is not one of {', '.join(DOMAINS)}")
    check_entity("tenant", tenant)
    check_entity("namespace", namespace)
    _check_local(local, text)
    full = f"{domain}://{tenant}/{namespace}/{local}"
    _check_size(full)
    return TopicName(
        full=full, domain=domain, tenant=tenant, namespace=namespace, local=local, partition=_partition_of(local)
    )


def _split(text: str) -> tuple[str, str, str, str]:
    """Domain, tenant, namespace and local name, with the defaults for a short name."""
    domain, separator, rest = text.partition("://")
    if not separator:
        domain, rest = PERSISTENT, text
    parts = rest.split("/")
    if len(parts) == 1 and not separator:
        return domain, DEFAULT_TENANT, DEFAULT_NAMESPACE, rest
    if len(parts) == 4 and all(parts):
        raise InvalidName(
            f"topic name {_quote(text)} has four parts: names with a cluster (tenant/cluster/namespace/topic) "
            "are not supported, and a topic's own name has no slash"
        )
    if len(parts) != 3:
        raise InvalidName(
            f"topic name {_quote(text)} is not of the form topic, tenant/namespace/topic "
            "or domain://tenant/namespace/topic"
        )
    return domain, parts[0], parts[1], parts[2]


def _check_local(local: str, text: str) -> None:
    if not local or local.isspace():
        raise InvalidName(f"topic name {_quote(text)} has an empty last part")
    if local in _PATH_FOLDED:
        raise InvalidName(f"topic name {_quote(text)} ends in {local}, which a URL cannot contain")
    if control := _CONTROL.search(local):
        raise InvalidName(
            f"topic name {_quote(text)} has the control character U+{ord(control[0]):04X} at {control.start()}"
        )


def _check_size(full: str) -> None:
    try:
        size = len(full.encode())
    except UnicodeEncodeError as error:
        raise InvalidName(f"topic name {_quote(full)} is not valid unicode") from error
    if size > TOPIC_NAME_BYTES_MAX:
        raise InvalidName(f"topic name of {size} bytes exceeds the limit of {TOPIC_NAME_BYTES_MAX}")


def _partition_of(local: str) -> int:
    match = _PARTITION.fullmatch(local)
    if match is None or int(match["index"]) > PARTITION_MAX:
        return -1
    return int(match["index"])


def _quote(text: str) -> str:
    """The name for an error message: printable and short."""
    return ascii(text if len(text) <= 100 else text[:100] + "...")

"""Rename templates: the name of a topic in a remote cluster, where its route policy gives it another one.

Owns the template, which is checked when it is set: `{tenant}`, `{namespace}` and `{topic}` stand for the parts of the
topic's name. Without a slash it is a name in the topic's own namespace. A partition keeps its index. Knows nothing of
clusters, and not which topics exist.

    {topic}-eu                              persistent://public/default/orders -> persistent://public/default/orders-eu
    copies/{tenant}/{namespace}.{topic}     persistent://public/default/orders -> persistent://copies/public/default.orders

A name that matches the template is kept. So copies that come back from a cluster which does not know that they are
copies, such as Apache Pulsar, are not renamed again and again: orders-eu does not become orders-eu-eu.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from magnetar.bounds import TEMPLATE_SIZE
from magnetar.errors import InvalidName
from magnetar.names import PARTITION_SUFFIX, PERSISTENT, TopicName
from magnetar.replication.model import DeclaredRoute
from magnetar.replication.partitions import WantedTopic

FIELDS = ("tenant", "namespace", "topic")

# More than any name of a topic needs.
TEMPLATE_SIZE_MAX = TEMPLATE_SIZE.limit

_PERSISTENT = f"{PERSISTENT}://"
_PIECES = re.compile(r"\{(?P<field>[^{}]*)\}|(?P<brace>[{}])")
# A name that ends like this would be a partition of another topic.
_PARTITION_END = re.compile(r"-partition-\d*\Z")


def check_template(template: str) -> None:
    """Raises `InvalidName`."""
    if not template.strip():
        raise _wrong(template, "is empty")
    if len(template) > TEMPLATE_SIZE_MAX:
        raise _wrong(template, f"has {len(template)} characters, more than {TEMPLATE_SIZE_MAX}")
    for piece in _PIECES.finditer(template):
        if piece["brace"]:
            raise _wrong(template, f"has an unmatched {piece['brace']} at {piece.start()}")
        if piece["field"] not in FIELDS:
            raise _wrong(template, f"has an unknown field {{{piece['field']}}}: the fields are {_fields()}")
    if "://" in template.removeprefix(_PERSISTENT):
        raise _wrong(template, "has another domain than persistent://: only persistent topics are replicated")
    # Any topic will do as an example: the parts of a name have no slash.
    example = _filled(template, TopicName.parse("persistent://tenant/namespace/topic"))
    if _PARTITION_END.search(example):
        raise _wrong(template, f"ends like a partition, in {PARTITION_SUFFIX}: partitions keep their index anyway")
    try:
        TopicName.parse(example)
    except InvalidName as error:
        raise _wrong(template, f"does not give a topic name: {error}") from None


def remote_topic(topic: str, template: str) -> str:
    """The full name in the remote cluster; the same where the template is empty. Raises `InvalidName`."""
    name = TopicName.parse(topic)
    base = name.base
    if not template or _fitting(template).fullmatch(base.full):
        return name.full
    try:
        renamed = TopicName.parse(_filled(template, base))
    except InvalidName as error:
        raise _wrong(template, f"does not give a name for topic {base.full}: {error}") from None
    if renamed.is_partition:
        raise _wrong(template, f"gives topic {base.full} the name of a partition, {renamed.full}")
    return renamed.with_partition(name.partition).full if name.is_partition else renamed.full


def wanted_topic(route: DeclaredRoute, cluster: str) -> WantedTopic | None:
    """None where nothing is copied: the name is not valid in the remote cluster, or another topic has it too."""
    if route.clash:
        return None
    try:
        target = remote_topic(route.topic, route.policy.rename)
    except InvalidName:
        return None
    copy_of = "" if target == route.topic else f"{cluster}/{route.topic}"
    return WantedTopic(route.topic, target, route.partitions, route.grown_from, copy_of)


def clashes(routes: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The topics that have the same remote name as another one, each with the reason why it is not copied.

    Each of `routes` is a topic and its template, all to one cluster. Topics without a valid name are left out.
    """
    by_target: dict[str, list[str]] = {}
    for topic, template in routes:
        try:
            by_target.setdefault(remote_topic(topic, template), []).append(TopicName.parse(topic).full)
        except InvalidName:
            continue
    return {
        topic: _clash(topic, topics[1] if topic == topics[0] else topics[0], target)
        for target, topics in by_target.items()
        if len(topics) > 1
        for topic in topics
    }


def _clash(topic: str, other: str, target: str) -> str:
    return (
        f"topics {topic} and {other} would both be {target} in the remote cluster: neither is copied until a rename"
        f" template gives one of them another name, for example with {_fields()}"
    )


def with_clashes(routes: Sequence[DeclaredRoute]) -> list[DeclaredRoute]:
    """The routes of a cluster, to any remote clusters, each with its clash."""
    found: dict[tuple[str, str], str] = {}
    for remote in {route.remote for route in routes if route.policy.rename}:
        here = clashes((route.topic, route.policy.rename) for route in routes if route.remote == remote)
        found.update({(topic, remote): reason for topic, reason in here.items()})
    if not found:
        return list(routes)
    return [msgspec.structs.replace(route, clash=found.get((route.topic, route.remote), "")) for route in routes]


def check_covers(template: str, *, of_namespace: bool) -> None:
    """Raises `InvalidName` if a template gives all topics of a namespace the same name."""
    if of_namespace and "{topic}" not in template:
        raise _wrong(template, "has no {topic}: all topics of the namespace would have the same name")


def _filled(template: str, name: TopicName) -> str:
    parts = {"tenant": name.tenant, "namespace": name.namespace, "topic": name.local}
    return _PIECES.sub(lambda piece: parts[piece["field"]], _whole(template))


def tenant_in(template: str) -> str:
    """The tenant that a template gives to topics, or the part of it that does; empty if they keep their own."""
    tenant = _whole(template).removeprefix(_PERSISTENT).partition("/")[0]
    return "" if tenant == "{tenant}" else tenant


def _whole(template: str) -> str:
    """With tenant and namespace, like a full name."""
    rest = template.removeprefix(_PERSISTENT)
    return _PERSISTENT + (rest if "/" in rest else "{tenant}/{namespace}/" + rest)


@lru_cache(maxsize=1024)
def _fitting(template: str) -> re.Pattern[str]:
    """The names that the template gives."""
    pattern = ""
    seen: set[str] = set()
    end = 0
    whole = _whole(template)
    for piece in _PIECES.finditer(whole):
        field = piece["field"]
        pattern += re.escape(whole[end : piece.start()])
        pattern += f"(?P={field})" if field in seen else f"(?P<{field}>[^/]+)"
        seen.add(field)
        end = piece.end()
    return re.compile(pattern + re.escape(whole[end:]), re.DOTALL)


def _fields() -> str:
    return ", ".join(f"{{{field}}}" for field in FIELDS)


def _wrong(template: str, what: str) -> InvalidName:
    shown = template if len(template) <= 100 else template[:100] + "..."
    return InvalidName(f"rename template {shown!r} {what}")

"""Topics as an administrator makes them: how many partitions one has, creating it in one shape, giving it more.

What geo-replication asks of the other cluster. Counting never creates. Whoever creates or grows is told when the topic
has another shape than the one asked for; which shape it ought to have is not decided here.
"""

from __future__ import annotations

from typing import Protocol as Interface
from urllib.parse import quote

from magnetar.client.errors import Conflict, InvalidArgument, NamespaceNotFound, NotFound, NotSupported
from magnetar.names import PARTITION_MAX, TopicName

# A remote that replicates by itself would otherwise make the same topic in all of its own remotes.
_CREATE_HERE_ONLY = {"createLocalTopicOnly": "true"}
_NO_REASON = ": TopicNotFound"  # the name of the code alone
_GROW_HERE_ONLY = {"updateLocalTopicOnly": "true"}


class PartitionLookup(Interface):
    """Both finders are one."""

    async def partitions(self, topic: TopicName, *, create: bool) -> int: ...


class AdminRequests(Interface):
    async def change(self, method: str, path: str, query: dict[str, str], body: object, what: str) -> None:
        """By REST, `path` below /admin/v2/; `body` becomes JSON, None is no body."""
        ...


async def partition_count(cluster: PartitionLookup, topic: TopicName, *, by_rest: PartitionLookup | None) -> int | None:
    """0 for a topic that is not partitioned, None where there is no topic. Creates nothing.

    `cluster` may be asked by the binary protocol, which is quicker; `by_rest`, if there is that, tells what it cannot:
    how many partitions a topic of an old broker has, and what is missing where Apache Pulsar gives no reason.
    """
    try:
        return await cluster.partitions(topic, create=False)
    except NotSupported:
        if by_rest is None:
            raise
    except NotFound as error:
        if _names_the_namespace(error, topic):
            raise _namespace_not_found(error, topic) from error
        if by_rest is None or not error.text.endswith(_NO_REASON):
            return None
    return await partition_count(by_rest, topic, by_rest=None)


async def create_topic(cluster: AdminRequests, topic: TopicName, partitions: int) -> None:
    """`partitions` 0: not partitioned. `Conflict` if there is a topic of the name; of a partitioned one, perhaps: see
    `check_shape`.
    """
    _check_partitions(partitions, least=0)
    if topic.is_partition:
        raise InvalidArgument(f"{topic.full} is a partition: create {topic.base.full}")
    try:
        if partitions:
            what = f"creating {topic.full} with {partitions} partitions"
            await cluster.change("PUT", f"{topic_path(topic)}/partitions", _CREATE_HERE_ONLY, partitions, what)
        else:
            await cluster.change("PUT", topic_path(topic), {}, None, f"creating {topic.full}")
    except NotFound as error:
        if _names_the_namespace(error, topic):
            raise _namespace_not_found(error, topic) from error
        raise


def check_shape(topic: TopicName, wanted: int, found: int | None) -> None:
    """Of a topic that was just created, apparently. Raises `Conflict`.

    Asked to create for itself only, Apache Pulsar calls any partitioned topic that is there already a success. None is
    no contradiction: in a cluster, another broker may not have heard of the topic yet.
    """
    if found not in (wanted, None):
        raise Conflict(f"creating {topic.full} with {wanted} partitions: it exists already, with {found} partitions")


async def grow_topic(cluster: AdminRequests, topic: TopicName, partitions: int) -> None:
    """Gives a partitioned topic more partitions. Having as many already is fine; fewer is `NotAllowed`.

    A topic that is not partitioned, or not there, is `Conflict`.
    """
    _check_partitions(partitions, least=1)
    what = f"growing {topic.full} to {partitions} partitions"
    await cluster.change("POST", f"{topic_path(topic)}/partitions", _GROW_HERE_ONLY, partitions, what)


def topic_path(topic: TopicName) -> str:
    """Where REST has a topic, below its version."""
    return "/".join(quote(part, safe="") for part in (topic.domain, topic.tenant, topic.namespace, topic.local))


def _check_partitions(partitions: int, *, least: int) -> None:
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not least <= partitions <= PARTITION_MAX:
        raise InvalidArgument(f"partitions {partitions!r} is not a number between {least} and {PARTITION_MAX}")


def _names_the_namespace(error: NotFound, topic: TopicName) -> bool:
    """A missing topic, namespace and tenant have one code and one status; only the reason tells them apart."""
    reason = error.text.replace(topic.full.partition("://")[2], "").lower()
    return "namespace" in reason or "tenant" in reason


def _namespace_not_found(error: NotFound, topic: TopicName) -> NamespaceNotFound:
    text = f"namespace {topic.namespace_full} does not exist: {error.text}"
    return NamespaceNotFound(text, code=error.code, status=error.status)

"""Topic administration: counting partitions, creating a topic, adding partitions.

Used by geo-replication on the remote cluster. Counting never creates a topic; creating and growing raise an error when
the topic has another shape than requested. Does not decide the shape.
"""

from __future__ import annotations

from typing import Protocol as Interface

from magnetar.client.connection.rest_path import topic_path
from magnetar.client.errors import Conflict, InvalidArgument, NamespaceNotFound, NotFound, NotSupported
from magnetar.names import PARTITION_MAX, TopicName

# A remote cluster that replicates would otherwise create the topic in its own remote clusters too.
_CREATE_HERE_ONLY = {"createLocalTopicOnly": "true"}
_NO_REASON = ": TopicNotFound"  # the name of the code and no text
_GROW_HERE_ONLY = {"updateLocalTopicOnly": "true"}


class PartitionLookup(Interface):
    """Both topic lookups are one."""

    async def partitions(self, topic: TopicName, *, create: bool) -> int: ...


class AdminRequests(Interface):
    async def change(self, method: str, path: str, query: dict[str, str], body: object, what: str) -> None:
        """By REST, `path` below /admin/v2/; `body` is sent as JSON, None is no body."""
        ...


async def partition_count(cluster: PartitionLookup, topic: TopicName, *, by_rest: PartitionLookup | None) -> int | None:
    """0 for a topic that is not partitioned, None for no topic. Creates nothing.

    `cluster` may use the binary protocol, which is faster; `by_rest`, where given, answers what that cannot: the
    partitions on an old broker, and whether topic or namespace is missing where Apache Pulsar gives no reason.
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


async def create_topic(cluster: AdminRequests, topic: TopicName, partitions: int, copy_of: str = "") -> None:
    """`partitions` 0: not partitioned. `Conflict` if the topic exists; an existing partitioned topic may go unnoticed,
    see `check_shape`. `copy_of`: see `TopicAdmin.create_topic`.
    """
    _check_partitions(partitions, least=0)
    if topic.is_partition:
        raise InvalidArgument(f"{topic.full} is a partition: create {topic.base.full}")
    mark = {"copyOf": copy_of} if copy_of else {}  # Apache Pulsar ignores it
    try:
        if partitions:
            what = f"creating {topic.full} with {partitions} partitions"
            query = {**_CREATE_HERE_ONLY, **mark}
            await cluster.change("PUT", f"{topic_path(topic)}/partitions", query, partitions, what)
        else:
            await cluster.change("PUT", topic_path(topic), mark, None, f"creating {topic.full}")
    except NotFound as error:
        if _names_the_namespace(error, topic):
            raise _namespace_not_found(error, topic) from error
        raise


def check_shape(topic: TopicName, wanted: int, found: int | None) -> None:
    """Raises `Conflict` for a topic that was reported as created but has another number of partitions.

    With createLocalTopicOnly, Apache Pulsar reports success for any partitioned topic that exists. `found` None is no
    conflict: another broker of the cluster may not know the topic yet.
    """
    if found not in (wanted, None):
        raise Conflict(f"creating {topic.full} with {wanted} partitions: it already exists with {found} partitions")


async def grow_topic(cluster: AdminRequests, topic: TopicName, partitions: int) -> None:
    """Adds partitions to a partitioned topic. The same number is fine; a smaller one is `NotAllowed`.

    A topic that is not partitioned, or does not exist, is `Conflict`.
    """
    _check_partitions(partitions, least=1)
    what = f"growing {topic.full} to {partitions} partitions"
    await cluster.change("POST", f"{topic_path(topic)}/partitions", _GROW_HERE_ONLY, partitions, what)


def _check_partitions(partitions: int, *, least: int) -> None:
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not least <= partitions <= PARTITION_MAX:
        raise InvalidArgument(f"partitions {partitions!r} is not a number between {least} and {PARTITION_MAX}")


def _names_the_namespace(error: NotFound, topic: TopicName) -> bool:
    """A missing topic, namespace and tenant have the same code and status; only the reason differs."""
    reason = error.text.replace(topic.full.partition("://")[2], "").lower()
    return "namespace" in reason or "tenant" in reason


def _namespace_not_found(error: NotFound, topic: TopicName) -> NamespaceNotFound:
    text = f"namespace {topic.namespace_full} does not exist: {error.text}"
    return NamespaceNotFound(text, code=error.code, status=error.status)

"""Which topics come to be by themselves: the rules of auto-creation, for every way in (PIP-263, PIP-344).

    AC1  Where auto-creation is on, of the broker or the namespace, a missing topic is made as its type says.
    AC2  The name of a retry or dead letter topic becomes a plain topic, whatever the type says.
    AC3  What was made by itself carries the property wasAutoCreated; what an administrator made does not.
    AC4  A retry or dead letter topic gets no retry or dead letter topic, unless an administrator made the first.
    AC6  X-partition-N belongs to X: it is made whenever X has more than N partitions, and never otherwise.
    PM1  Who asks for the number of partitions may ask without creating anything.

A producer or a consumer comes in by `require`; PARTITIONED_METADATA and REST by `partitions`. What an administrator
creates on purpose goes to the catalog directly.
"""

from __future__ import annotations

from magnetar.broker.catalog.catalog import Catalog
from magnetar.deadletter.topics import SUFFIXES, is_dead_letter_or_retry_topic, possible_primaries
from magnetar.errors import NotAllowed, TopicNotFound
from magnetar.names import TopicName

WAS_AUTO_CREATED = "wasAutoCreated"


def require(catalog: Catalog, name: TopicName, *, create: bool) -> None:
    """Makes sure that the topic exists for a producer or a consumer, creating it where the rules allow."""
    catalog.check_namespace(name)
    if catalog.exists(name):
        return
    if name.full in catalog.partitioned:
        raise _is_partitioned(name)
    if name.is_partition:
        _require_partition(catalog, name)
        return
    partitions = _auto_partitions(catalog, name, create=create)
    if partitions:
        catalog.create_partitioned(name, partitions, _auto_created())
        raise _is_partitioned(name)
    catalog.create(name, _auto_created())


def partitions(catalog: Catalog, name: TopicName, *, create: bool) -> int:
    """How many partitions a topic has, 0 for a plain one; a missing one becomes partitioned where the rules say so.

    A plain topic is not made here: the producer or consumer that comes next does that.
    """
    catalog.check_namespace(name)
    partitioned = catalog.partitioned.get(name.full)
    if partitioned is not None:
        return partitioned.partitions
    if catalog.exists(name):
        return 0
    if name.is_partition:
        base = catalog.partitioned.get(name.base.full)
        if base is None or name.partition >= base.partitions:
            raise TopicNotFound(f"Topic {name.full} not found")
        return 0
    count = _auto_partitions(catalog, name, create=create)
    if count:
        catalog.create_partitioned(name, count, _auto_created())
    return count


def require_dead_letter_topic(catalog: Catalog, name: TopicName) -> None:
    """Makes sure that a dead letter topic exists for a policy: whoever set the policy wanted it, whatever AC1 says."""
    catalog.check_namespace(name)
    if catalog.exists(name) or name.full in catalog.partitioned:
        return
    if name.is_partition:
        _require_partition(catalog, name)
        return
    _refuse_nested_dead_letters(catalog, name)
    catalog.create(name, _auto_created())


def check_dead_letter_topic(catalog: Catalog, name: TopicName, source: TopicName) -> None:
    """Raises NotAllowed for what would keep every dead letter of `source` from this topic. Creates nothing.

    So it is said when a policy is set, and not when the first message fails.
    """
    if name.base.full == source.base.full:
        raise NotAllowed(f"deadLetterTopic {name.full} is the topic of the subscription itself")
    if not name.is_persistent:
        raise NotAllowed(f"deadLetterTopic {name.full} is not persistent")
    try:
        catalog.check_namespace(name)
        if name.is_partition:
            partitions(catalog, name, create=False)
    except TopicNotFound as error:
        raise NotAllowed(f"deadLetterTopic {name.full}: {error}") from error
    if not name.is_partition and name.full not in catalog.partitioned and not catalog.exists(name):
        _refuse_nested_dead_letters(catalog, name)


def was_auto_created(catalog: Catalog, name: TopicName) -> bool:
    """Of an existing topic; a partition is what its partitioned topic is."""
    return WAS_AUTO_CREATED in catalog.properties_of(name.base if name.base.full in catalog.partitioned else name)


def _require_partition(catalog: Catalog, name: TopicName) -> None:
    """AC6."""
    base = catalog.partitioned.get(name.base.full)
    if base is None:
        raise NotAllowed(f"Partition metadata not found for the partitioned topic: {name.base.full}")
    if name.partition >= base.partitions:
        raise TopicNotFound(f"Topic {name.full} not found: {name.base.full} has {base.partitions} partitions")
    catalog.create(name, dict(base.properties))


def _auto_partitions(catalog: Catalog, name: TopicName, *, create: bool) -> int:
    """What a missing topic would become: its number of partitions, 0 for a plain one. Raises where it may not be."""
    switch = catalog.policies_of(name.namespace_full).auto_topic_creation
    if not create or not switch.allowed:  # AC1, PM1
        raise TopicNotFound(f"Topic {name.full} not found")
    if not name.local.endswith(SUFFIXES):
        return switch.partitions
    _refuse_nested_dead_letters(catalog, name)
    return 0  # AC2


def _refuse_nested_dead_letters(catalog: Catalog, name: TopicName) -> None:
    """AC4. Several existing topics may be the primary: one that was auto-created with such a name is enough."""
    for full in possible_primaries(name):
        if full not in catalog.partitioned and not catalog.exists_full(name.namespace_full, full):
            continue
        primary = TopicName.parse(full)
        if is_dead_letter_or_retry_topic(primary) and was_auto_created(catalog, primary):
            raise NotAllowed(
                f"Topic {name.full} is not auto-created: {primary.full} is a retry or dead letter topic that was"
                " auto-created itself, and gets none of its own. An administrator may create it."
            )


def _auto_created() -> dict[str, str]:
    return {WAS_AUTO_CREATED: "true"}


def _is_partitioned(name: TopicName) -> NotAllowed:
    return NotAllowed(f"topic {name.full} is partitioned: produce to or consume from its partitions")

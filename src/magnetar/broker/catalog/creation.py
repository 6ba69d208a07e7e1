"""Topic auto-creation rules, for every entry point (PIP-263, PIP-344).

    AC1  With auto-creation on, for the broker or the namespace, a missing topic is created with the configured type.
    AC2  A retry or dead letter topic is created without partitions, whatever the type.
    AC3  Auto-created topics have the property wasAutoCreated; those of an administrator do not.
    AC4  An auto-created retry or dead letter topic gets no retry or dead letter topic; one of an administrator may.
    AC6  X-partition-N is created if and only if X has more than N partitions.
    PM1  The number of partitions can be requested without creating anything.

Producers and consumers use `require`; PARTITIONED_METADATA and REST use `partitions`. Explicit creation by an
administrator uses the catalog directly.
"""

from __future__ import annotations

from magnetar.broker.catalog.catalog import Catalog
from magnetar.broker.catalog.record import WAS_AUTO_CREATED
from magnetar.deadletter.topics import SUFFIXES, is_dead_letter_or_retry_topic, possible_primaries
from magnetar.errors import NotAllowed, TopicNotFound
from magnetar.names import TopicName


def require(catalog: Catalog, name: TopicName, *, create: bool) -> None:
    """Ensures that the topic of a producer or consumer exists, and creates it if the rules allow."""
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
    """The number of partitions, 0 for a plain topic; a missing partitioned topic is created if the rules allow.

    A plain topic is not created here but by the producer or consumer that connects next.
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
    """Ensures that the dead letter topic of a policy exists. Setting the policy implies it, whatever AC1 says."""
    catalog.check_namespace(name)
    if catalog.exists(name) or name.full in catalog.partitioned:
        return
    if name.is_partition:
        _require_partition(catalog, name)
        return
    _refuse_nested_dead_letters(catalog, name)
    catalog.create(name, _auto_created())


def check_dead_letter_topic(catalog: Catalog, name: TopicName, source: TopicName) -> None:
    """Raises NotAllowed if no dead letter of `source` could go to this topic. Creates nothing.

    Called when a policy is set, so that the error does not come with the first failed message.
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
    """Of an existing topic; for a partition, of its partitioned topic."""
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
    """The partitions that a missing topic would get, 0 for a plain one. Raises if it may not be created."""
    switch = catalog.policies_of(name.namespace_full).auto_topic_creation
    if not create or not switch.allowed:  # AC1, PM1
        raise TopicNotFound(f"Topic {name.full} not found")
    if not name.local.endswith(SUFFIXES):
        return switch.partitions
    _refuse_nested_dead_letters(catalog, name)
    return 0  # AC2


def _refuse_nested_dead_letters(catalog: Catalog, name: TopicName) -> None:
    """AC4. Several existing topics may be the primary one; one auto-created retry or dead letter topic is enough."""
    for full in possible_primaries(name):
        if full not in catalog.partitioned and not catalog.exists_full(name.namespace_full, full):
            continue
        primary = TopicName.parse(full)
        if is_dead_letter_or_retry_topic(primary) and was_auto_created(catalog, primary):
            raise NotAllowed(
                f"Topic {name.full} is not auto-created: {primary.full} is an auto-created retry or dead letter topic."
                " An administrator may create it."
            )


def _auto_created() -> dict[str, str]:
    return {WAS_AUTO_CREATED: "true"}


def _is_partitioned(name: TopicName) -> NotAllowed:
    return NotAllowed(f"topic {name.full} is partitioned: produce to or consume from its partitions")

"""The spec of a declared redrive: which dead letters go back, where, changed how, and how fast.

Owns what can be checked without Spark. What a redrive does is in `pipelines.redrive`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from magnetar.declared.function_name import check_function
from magnetar.declared.topic_set import TopicSet, parse_topic, parse_topic_set
from magnetar.errors import InvalidSetting
from magnetar.pipeline_bounds import REDRIVE_PATTERNS, REDRIVE_SOURCES

Rate = Annotated[float, msgspec.Meta(gt=0, le=1e9)]


class RedriveSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """`sources` are dead letter topics, patterns or namespaces, see `topic_set`; without `to`, each message goes back
    to its own origin. `set` has Spark SQL expressions by column."""

    sources: list[str]
    to: str | None = None
    where: str = ""  # Spark SQL condition for the dead letters; empty: all
    set: dict[str, str] = {}
    function: str = ""  # module:name of a Python function on the way
    rate: Rate | None = None  # messages a second
    generations_max: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    only_origin_subscription: bool = True


def check(spec: RedriveSpec, namespace: str) -> None:
    """Raises `InvalidSetting` or `InvalidName`."""
    if not spec.sources:
        raise InvalidSetting("sources is empty: name dead letter topics, patterns or namespaces")
    if len(spec.sources) > REDRIVE_SOURCES.limit:
        raise InvalidSetting(f"sources has {len(spec.sources)} entries, the limit is {REDRIVE_SOURCES.limit}")
    sets = claims(spec, namespace)
    patterns = sum(not one.is_topic for one in sets)
    if patterns > REDRIVE_PATTERNS.limit:
        raise InvalidSetting(f"sources has {patterns} patterns and namespaces, the limit is {REDRIVE_PATTERNS.limit}")
    if spec.to is not None:
        parse_topic(spec.to, namespace)
    if spec.where or spec.set:
        from magnetar.replication.where import check_where  # with its lists of functions: few brokers need it

        for expression in filter(None, (spec.where, *spec.set.values())):
            check_where(expression)
    if spec.function:
        check_function(spec.function)


def claims(spec: RedriveSpec, namespace: str) -> tuple[TopicSet, ...]:
    """The dead letter topics that no other redrive may work on meanwhile."""
    return tuple(parse_topic_set(text, namespace) for text in spec.sources)


def tenants(spec: RedriveSpec, namespace: str) -> set[str]:
    """The tenants whose topics are read or written; origins are in the tenant of their dead letters, or refused."""
    found = {one.tenant for one in claims(spec, namespace)}
    return found if spec.to is None else found | {parse_topic(spec.to, namespace).tenant}


def runs_code(spec: RedriveSpec) -> bool:
    """Whether it runs what an administrator of a tenant may not: expressions are checked against an allow-list."""
    return bool(spec.function)

"""The verbs of declared pipelines: the spec of each, and what a broker without Spark knows of it. A table.

A new verb needs a module with its spec and a line here, and one in the table of the pipelines process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from magnetar.declared import archive, process, redrive
from magnetar.declared.topic_set import TopicSet, parse_topic, parse_topic_set
from magnetar.errors import InvalidName, InvalidSetting
from magnetar.pipeline_bounds import PIPELINE_SPEC

SPEC_SIZE_MAX = PIPELINE_SPEC.limit


def _nothing(spec: Any, namespace: str) -> tuple[TopicSet, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class VerbSpec:
    """`check` raises for a spec that cannot work; `claims` are topics that no other pipeline of the verb may have while
    a run lasts; `tenants` those whose topics it reads or writes; `runs_code` whether only super users may declare it.

    A namespace is that of the record, for short names: a spec is stored, and run, with full ones. `topics` are the
    fields with a topic, `topic_maps` those with topics by any name, `topic_sets` those with a list of topics, patterns
    and namespaces.
    """

    spec: type[msgspec.Struct]
    check: Callable[[Any, str], None]
    tenants: Callable[[Any, str], set[str]]
    runs_code: Callable[[Any], bool]
    claims: Callable[[Any, str], tuple[TopicSet, ...]] = _nothing
    topics: tuple[str, ...] = ()
    topic_maps: tuple[str, ...] = ()
    topic_sets: tuple[str, ...] = ()

    def with_full_names(self, spec: msgspec.Struct, namespace: str) -> msgspec.Struct:
        """Raises `InvalidName`."""
        changed: dict[str, Any] = {}
        for field in self.topics:
            text = getattr(spec, field)
            changed[field] = text if text is None else parse_topic(text, namespace).full
        for field in self.topic_maps:
            named = getattr(spec, field).items()
            changed[field] = {name: parse_topic(text, namespace).full for name, text in named}
        for field in self.topic_sets:
            changed[field] = [str(parse_topic_set(text, namespace)) for text in getattr(spec, field)]
        return msgspec.structs.replace(spec, **changed)


VERBS: dict[str, VerbSpec] = {
    "redrive": VerbSpec(
        redrive.RedriveSpec,
        redrive.check,
        redrive.tenants,
        redrive.runs_code,
        claims=redrive.claims,
        topics=("to",),
        topic_sets=("sources",),
    ),
    "process": VerbSpec(
        process.ProcessSpec,
        process.check,
        process.tenants,
        process.runs_code,
        topics=("topic", "into", "retry_topic", "dead_letter_topic"),
        topic_maps=("dead_letter_topics",),
    ),
    "archive": VerbSpec(archive.ArchiveSpec, archive.check, archive.tenants, archive.runs_code, topic_sets=("topics",)),
}


def verb_named(name: str) -> VerbSpec:
    """Raises `InvalidSetting`."""
    found = VERBS.get(name)
    if found is None:
        raise InvalidSetting(f"verb {name[:100]!r} is not one of {', '.join(VERBS)}")
    return found


def spec_of(verb: str, fields: dict[str, Any]) -> Any:
    """The spec of a record. Raises `InvalidSetting`."""
    try:
        return msgspec.convert(fields, verb_named(verb).spec)
    except msgspec.ValidationError as error:
        raise InvalidSetting(f"spec of {verb}: {str(error)[:500]}") from error


def checked_fields(verb: str, fields: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The fields of a spec that is found valid, without those that have their defaults, and with full names. Raises
    `InvalidSetting`."""
    spec = spec_of(verb, fields)
    _sized_fields(verb, spec)
    try:
        verb_named(verb).check(spec, namespace)
        spec = verb_named(verb).with_full_names(spec, namespace)
    except (InvalidName, InvalidSetting) as error:
        raise InvalidSetting(f"spec of {verb}: {error}") from error
    return _sized_fields(verb, spec)


def _sized_fields(verb: str, spec: msgspec.Struct) -> dict[str, Any]:
    """The fields. Raises `InvalidSetting`."""
    try:
        found: dict[str, Any] = msgspec.to_builtins(spec)
        size = len(msgspec.json.encode(found))
    except (OverflowError, UnicodeEncodeError) as error:
        raise InvalidSetting(f"spec of {verb}: {error}") from error
    if size > SPEC_SIZE_MAX:
        raise InvalidSetting(f"spec of {verb} of {size} bytes exceeds {SPEC_SIZE_MAX}")
    return found

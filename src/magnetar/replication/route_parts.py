"""Parts of route policies: what is set for a namespace and for a topic, how it is changed, and what is in force.

Owns the one resolution of a route policy. A topic inherits each part that it does not set: its masks are added to those
of its namespace, and both conditions must hold. So nothing that is set for a topic takes a mask or a filter of its
namespace away, except the words for it: `unmasked` and `unfiltered`. They last as long as the namespace has what they
lift: a mask that is set again applies to every topic. The same holds for a topic that was resumed in a paused
namespace. Knows neither topics nor clusters.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET, UnsetType

from magnetar.errors import InvalidSetting
from magnetar.replication.model import Mask, Refusal, RoutePolicy


class RouteParts(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """The parts of a route policy that are set for a namespace, or for a topic."""

    where: str = ""
    masks: tuple[Mask, ...] = ()
    rename: str = ""
    refused: Refusal | None = None
    dead_letters: bool | None = None
    paused: bool | None = None  # False: the topic was resumed, and its namespace is paused
    unmasked: tuple[str, ...] = ()  # of a topic: fields that its namespace masks, and it does not
    unfiltered: bool = False  # of a topic: the condition of its namespace does not apply

    @property
    def hidden(self) -> str:
        """What would be copied without these parts: for the question whether to remove them."""
        found = [f"masks {', '.join(mask.field for mask in self.masks)}"] if self.masks else []
        return " and ".join([*found, *(["has a filter"] if self.where else [])])


NOTHING = RouteParts()


class RouteChange(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A change of some parts; the others are kept. None unsets a part, so that the one of the namespace applies.

    `masks` are added, or replace those of the same field. Only `remove_masks` and `remove_where` take any away: those
    of the scope itself, and for a topic also those of its namespace. `force`: also masks of fields that the schema of
    the topic does not have.
    """

    where: str | UnsetType = UNSET
    masks: tuple[Mask, ...] = ()
    rename: str | UnsetType | None = UNSET
    refused: Refusal | UnsetType | None = UNSET
    dead_letters: bool | UnsetType | None = UNSET
    paused: bool | UnsetType | None = UNSET
    remove_masks: tuple[str, ...] = ()
    remove_where: bool = False
    force: bool = False


def in_force(namespace: RouteParts, topic: RouteParts = NOTHING) -> RoutePolicy:
    """The policy of a topic, or of a namespace."""
    inherited = [mask for mask in namespace.masks if mask.field not in topic.unmasked]
    conditions = [topic.where] if topic.unfiltered else [namespace.where, topic.where]
    return RoutePolicy(
        where=_conjunction(conditions),
        masks=_union(inherited, topic.masks),
        rename=topic.rename or namespace.rename,
        refused=topic.refused or namespace.refused or Refusal.STOP,
        dead_letters=_first(topic.dead_letters, namespace.dead_letters),
        paused=_first(topic.paused, namespace.paused),
    )


def changed(own: RouteParts, change: RouteChange, namespace: RouteParts = NOTHING) -> RouteParts:
    """`namespace` is the one of a topic. Raises `InvalidSetting` if a mask to remove does not exist."""
    removed = set(change.remove_masks)
    inherited = {mask.field for mask in namespace.masks}
    masked = {mask.field for mask in own.masks} | inherited
    if unknown := sorted(removed - masked):
        known = f"masked are {', '.join(sorted(masked))}" if masked else "nothing is masked"
        raise InvalidSetting(f"mask of field {unknown[0]!r} cannot be removed: {known}")
    masks = {mask.field: mask for mask in own.masks if mask.field not in removed}
    masks |= {mask.field: mask for mask in change.masks}
    where = "" if change.remove_where else own.where
    return kept_by(
        namespace,
        RouteParts(
            where=where if change.where is UNSET else change.where,
            masks=tuple(masks.values()),
            rename=own.rename if change.rename is UNSET else change.rename or "",
            refused=own.refused if change.refused is UNSET else change.refused,
            dead_letters=own.dead_letters if change.dead_letters is UNSET else change.dead_letters,
            paused=own.paused if change.paused is UNSET else change.paused,
            unmasked=tuple(sorted({*own.unmasked, *removed})),
            unfiltered=own.unfiltered or change.remove_where,
        ),
    )


def kept_by(namespace: RouteParts, topic: RouteParts) -> RouteParts:
    """Without what lifts nothing of the namespace."""
    inherited = {mask.field for mask in namespace.masks} - {mask.field for mask in topic.masks}
    return msgspec.structs.replace(
        topic,
        unmasked=tuple(field for field in topic.unmasked if field in inherited),
        unfiltered=topic.unfiltered and bool(namespace.where),
        paused=None if not topic.paused and not namespace.paused else topic.paused,
    )


def _conjunction(conditions: Iterable[str]) -> str:
    """A condition may end in a comment, which a line break ends: `where_calls` refuses those that it does not end."""
    found = list(dict.fromkeys(text for text in conditions if text))
    return found[0] if len(found) == 1 else " AND ".join(f"({text}\n)" for text in found)


def _union(inherited: Iterable[Mask], own: Iterable[Mask]) -> tuple[Mask, ...]:
    """One mask per field, the topic's own where both have one; a mask within a masked field is left out."""
    by_field = {mask.field: mask for mask in (*inherited, *own)}
    return tuple(mask for mask in by_field.values() if not any(_is_within(mask.field, other) for other in by_field))


def _is_within(field: str, other: str) -> bool:
    return field.startswith(other + ".")


def _first(*values: bool | None) -> bool:
    return next((value for value in values if value is not None), False)

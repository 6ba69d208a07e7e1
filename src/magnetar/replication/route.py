"""Checks of a route policy when it is set, so that a mistake does not stop topics later.

Owns the checks of masks and names that need no topic, and the text of the property of changed messages. `where` checks
conditions. Whether a mask fits the schema of a topic is known when messages are copied.
"""

from __future__ import annotations

from magnetar.bounds import MASKS
from magnetar.errors import InvalidSetting
from magnetar.replication.model import Mask, MaskKind, RoutePolicy
from magnetar.replication.topic_template import check_covers, check_template

MASKS_MAX = MASKS.limit
FIELD_SIZE_MAX = 1_000


def check_policy(policy: RoutePolicy) -> None:
    """Raises `InvalidSetting` or `InvalidName`."""
    if policy.where:
        from magnetar.replication.where import check_where  # with its lists of functions: few brokers need it

        check_where(policy.where)
    check_masks(policy.masks)
    if policy.rename:
        check_rename(policy.rename)


def check_rename(template: str, *, of_namespace: bool = False) -> None:
    """Raises `InvalidName`. `of_namespace`: the template is for all topics of a namespace."""
    check_template(template)
    check_covers(template, of_namespace=of_namespace)


def check_masks(masks: tuple[Mask, ...]) -> None:
    """Raises `InvalidSetting`."""
    if len(masks) > MASKS_MAX:
        raise InvalidSetting(f"{len(masks)} masks exceed the limit of {MASKS_MAX}")
    fields = [mask.field for mask in masks]
    for mask in masks:
        if not mask.field or not all(mask.field.split(".")):
            raise InvalidSetting(f"mask of field {mask.field!r}: empty name in the path")
        if len(mask.field) > FIELD_SIZE_MAX:
            raise InvalidSetting(
                f"mask of field {mask.field[:100]!r}...: {len(mask.field)} characters, more than {FIELD_SIZE_MAX}"
            )
        if "," in mask.field:
            raise InvalidSetting(f"mask of field {mask.field!r}: comma in the path: one mask hides one field")
        if mask.text and mask.kind is not MaskKind.FIXED:
            raise InvalidSetting(f"mask of field {mask.field!r}: text is only for kind fixed, not {mask.kind.value}")
        for other in fields:
            if other.startswith(mask.field + "."):
                raise InvalidSetting(
                    f"masks of fields {mask.field!r} and {other!r}: the first already hides the second"
                )
    if twice := {field for field in fields if fields.count(field) > 1}:
        raise InvalidSetting(f"two masks of field {min(twice)!r}")


def applied_changes(policy: RoutePolicy) -> str:
    """The property of a changed message: `where,mask:email,rename`."""
    parts = ["where"] if policy.where else []
    parts += [f"mask:{mask.field}" for mask in policy.masks]
    parts += ["rename"] if policy.rename else []
    return ",".join(parts)

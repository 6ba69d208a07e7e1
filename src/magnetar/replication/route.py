"""Checks of a route policy when it is set, so that a mistake does not stop topics later.

Owns the checks that need neither Spark nor a topic, and the text of the property of changed messages. Whether a
condition fits the columns of a topic, and a mask its schema, is known when messages are copied.

The broker has no Spark, so a small tokenizer of Spark SQL finds the mistakes that must not wait: brackets and quotes
that are not closed, a second statement, and a subquery, which could read files of the machine that Spark runs on.
"""

from __future__ import annotations

import re

from magnetar.errors import InvalidSetting
from magnetar.replication.model import Mask, MaskKind, RoutePolicy
from magnetar.replication.topic_template import check_covers, check_template

WHERE_SIZE_MAX = 10_000
MASKS_MAX = 100
FIELD_SIZE_MAX = 1_000

# The content of Spark SQL's strings, quoted names and comments is skipped.
_TOKENS = re.compile(
    r"""
    (?P<quoted> [rR]?'(?:[^'\\]|\\.|'')*' | [rR]?"(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*`)
  | (?P<comment> --[^\n]* | /\*.*?\*/)
  | (?P<word> [^\W\d]\w*)
  | (?P<sign> .)
    """,
    re.VERBOSE | re.DOTALL,
)
_OPEN, _CLOSE = {"(": ")", "[": "]"}, {")": "(", "]": "["}


def check_policy(policy: RoutePolicy) -> None:
    """Raises `InvalidSetting` or `InvalidName`."""
    if policy.where:
        check_where(policy.where)
    check_masks(policy.masks)
    if policy.rename:
        check_rename(policy.rename)


def check_rename(template: str, *, of_namespace: bool = False) -> None:
    """Raises `InvalidName`. `of_namespace`: the template is for all topics of a namespace."""
    check_template(template)
    check_covers(template, of_namespace=of_namespace)


def check_where(expression: str) -> None:
    """Raises `InvalidSetting` for a text that cannot be one condition of Spark SQL."""
    if not expression.strip():
        raise _wrong_where(expression, "is empty")
    if len(expression) > WHERE_SIZE_MAX:
        raise _wrong_where(expression, f"has {len(expression)} characters, more than {WHERE_SIZE_MAX}")
    open_at: list[tuple[str, int]] = []
    has_tokens = False
    for token in _TOKENS.finditer(expression):
        text = token[0]
        if token["comment"] or text.isspace():
            continue
        has_tokens = True
        _check_token(expression, token)
        if text in _OPEN:
            open_at.append((text, token.start()))
        elif text in _CLOSE and (not open_at or open_at.pop()[0] != _CLOSE[text]):
            raise _wrong_where(expression, f"has an unmatched {text} at {token.start()}")
    if open_at:
        raise _wrong_where(expression, f"has an unclosed {open_at[-1][0]} at {open_at[-1][1]}")
    if not has_tokens:
        raise _wrong_where(expression, "is only a comment")


def _check_token(expression: str, token: re.Match[str]) -> None:
    text = token[0]
    if text == ";":
        raise _wrong_where(expression, f"has a ; at {token.start()}: only one condition is allowed")
    if text in ("'", '"', "`"):
        raise _wrong_where(expression, f"has an unclosed {text} at {token.start()}")
    if text.upper() == "SELECT":
        raise _wrong_where(expression, f"has a subquery at {token.start()}: only columns of the message are allowed")


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


def _wrong_where(expression: str, what: str) -> InvalidSetting:
    shown = expression if len(expression) <= 100 else expression[:100] + "..."
    return InvalidSetting(f"where {shown!r} {what}")

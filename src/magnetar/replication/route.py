"""What a way may say: checked when it is declared, so that no topic stops for a mistake that could be seen before.

Owns the checks that need neither Spark nor a topic, and how a way is named in the property of what it changed. Whether
an SQL expression fits the columns of a topic, and a mask its schema, is seen when messages are copied.
"""

from __future__ import annotations

import re

from magnetar.errors import InvalidSetting
from magnetar.replication.model import Mask, MaskKind, RoutePolicy
from magnetar.replication.topic_template import check_covers, check_template

WHERE_SIZE_MAX = 10_000
MASKS_MAX = 100
FIELD_SIZE_MAX = 1_000

# Texts, quoted names and comments of Spark SQL: what is in them is not looked at.
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


def check_policy(policy: RoutePolicy, *, of_namespace: bool = False) -> None:
    """Raises `InvalidSetting` or `InvalidName`, which say what is wrong. `of_namespace`: of all its topics."""
    if policy.where:
        check_where(policy.where)
    check_masks(policy.masks)
    if policy.rename:
        check_template(policy.rename)
        check_covers(policy.rename, of_namespace=of_namespace)


def check_where(expression: str) -> None:
    """Raises `InvalidSetting` for what cannot be one condition of Spark SQL, as far as that is seen without Spark."""
    if not expression.strip():
        raise _wrong_where(expression, "is empty")
    if len(expression) > WHERE_SIZE_MAX:
        raise _wrong_where(expression, f"has {len(expression)} characters, more than {WHERE_SIZE_MAX}")
    open_at: list[tuple[str, int]] = []
    is_anything = False
    for token in _TOKENS.finditer(expression):
        text = token[0]
        if token["comment"] or text.isspace():
            continue
        is_anything = True
        _check_token(expression, token)
        if text in _OPEN:
            open_at.append((text, token.start()))
        elif text in _CLOSE and (not open_at or open_at.pop()[0] != _CLOSE[text]):
            raise _wrong_where(expression, f"has a {text} at {token.start()} that closes nothing")
    if open_at:
        raise _wrong_where(expression, f"has a {open_at[-1][0]} at {open_at[-1][1]} that is not closed")
    if not is_anything:
        raise _wrong_where(expression, "is nothing but a comment")


def _check_token(expression: str, token: re.Match[str]) -> None:
    text = token[0]
    if text == ";":
        raise _wrong_where(expression, f"has a ; at {token.start()}: it is one condition, not a statement")
    if text in ("'", '"', "`"):
        raise _wrong_where(expression, f"has a {text} at {token.start()} that is not closed")
    if text.upper() == "SELECT":
        raise _wrong_where(expression, f"has a query at {token.start()}: only columns of the message can be asked for")


def check_masks(masks: tuple[Mask, ...]) -> None:
    """Raises `InvalidSetting`."""
    if len(masks) > MASKS_MAX:
        raise InvalidSetting(f"{len(masks)} masks exceed the limit of {MASKS_MAX}")
    fields = [mask.field for mask in masks]
    for mask in masks:
        if not mask.field or not all(mask.field.split(".")):
            raise InvalidSetting(f"mask of field {mask.field!r}: an empty name in the path")
        if len(mask.field) > FIELD_SIZE_MAX:
            raise InvalidSetting(
                f"mask of field {mask.field[:100]!r}...: {len(mask.field)} characters, more than {FIELD_SIZE_MAX}"
            )
        if "," in mask.field:
            raise InvalidSetting(f"mask of field {mask.field!r}: a comma in the path; one mask hides one field")
        if mask.text and mask.kind is not MaskKind.FIXED:
            raise InvalidSetting(f"mask of field {mask.field!r}: a text is only for kind fixed, not {mask.kind.value}")
        for other in fields:
            if other.startswith(mask.field + "."):
                raise InvalidSetting(
                    f"masks of fields {mask.field!r} and {other!r}: the first hides the second already"
                )
    if twice := {field for field in fields if fields.count(field) > 1}:
        raise InvalidSetting(f"two masks of field {min(twice)!r}")


def applied_changes(policy: RoutePolicy) -> str:
    """What was done to a message, as its property says it: `where,mask:email,rename`."""
    parts = ["where"] if policy.where else []
    parts += [f"mask:{mask.field}" for mask in policy.masks]
    parts += ["rename"] if policy.rename else []
    return ",".join(parts)


def _wrong_where(expression: str, what: str) -> InvalidSetting:
    shown = expression if len(expression) <= 100 else expression[:100] + "..."
    return InvalidSetting(f"where {shown!r} {what}")

"""Limits on what a condition may make of a message, by its tree: sizes, types, options, and how far values grow.

Both checks ask here, with a tree of the broker's tokens and one of Spark's parser. A value may be as large as all that
it is made of, and functions multiply that: the product of those around each other counts, so that neither `repeat`
within `repeat` nor a variable of a lambda that is doubled and doubled again gets past. Owns these rules. Knows neither
parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from magnetar.bounds import CONDITION_NUMBER
from magnetar.replication.spark_functions import (
    GROWTH,
    INSERTED,
    OPTION_NAMES,
    OPTIONS,
    PATTERNS,
    SAMPLES,
    SCALES,
    SIZES,
    STARTS,
    TYPES,
)

GROWTH_MAX = 20
"""How many times as large as the message a value may be: a heap of 1 GB takes that for a message of 5 MB, of which a
function may make several copies."""

MESSAGE_SIZE_MIN = 1000
"""A smaller message counts as one of this size, in bytes, so that literals are small too."""

DEPTH_MAX = 200

_LIST = "docs/replication.md lists those that are allowed"
_PLAIN_TYPES = re.compile(r"(?:[\w\s<>(),:]|`[^`]*`)+")
_NUMBER_TYPES = re.compile(
    r"(?:(?:big|small|tiny)?int|integer|long|short|byte|double|float|real|dec(?:imal)?|numeric|bd|[dflsy])"
    r"(?: ?\([\d, ]*\))?",
    re.IGNORECASE | re.ASCII,
)
_COLLECTIONS = re.compile(r"\b(?:array|map)\b", re.IGNORECASE)
_CASTS = frozenset({"cast", "try_cast"})
_CAST_NAMES = frozenset({"bigint", "decimal", "double", "float", "int", "smallint", "tinyint"})
_SIZED = frozenset({"lpad", "rpad", "space"})  # whatever their other arguments are
_CHARACTER_SIZE_MAX = 4
_OF_ELEMENTS = frozenset(
    {"array_compact", "array_distinct", "array_remove", "array_sort", "filter", "slice", "sort_array", "split"}
)
_PER_ELEMENT = 10
_TYPE_SIZE = 40
"""An element of a few characters may become a decimal of 38 digits, or a row of all fields that its type has."""


class NodeKind(Enum):
    CALL = auto()
    COLUMN = auto()  # also a variable of a lambda
    TEXT = auto()  # a literal; NULL is an empty one
    NUMBER = auto()  # a literal
    LAMBDA = auto()  # its part is the body
    PATTERN = auto()  # of LIKE and its like, which `text` names
    SCALAR = auto()  # an operator with a small result, as a comparison
    LOGICAL = auto()  # AND and OR, which take one part after another
    SEVERAL = auto()  # a value made of its parts


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """A part of a condition. `text` is the name of a function in lower case, or a literal."""

    kind: NodeKind
    text: str = ""
    parts: tuple[SyntaxNode, ...] = ()


def limit_problems(tree: SyntaxNode) -> Iterator[str]:
    todo = [tree]
    while todo:
        part = todo.pop()
        todo += reversed(part.parts)
        if part.kind is NodeKind.CALL:
            yield from _argument_problems(part.text, part.parts)
        elif part.kind is NodeKind.PATTERN and not all(_is_text(pattern) for pattern in part.parts or [part]):
            yield f"has {part.text.upper()} with another pattern than a text in quotes"
    try:
        _weight(tree)
    except _TooLarge as error:
        yield str(error)


# -- arguments


def _argument_problems(name: str, arguments: Sequence[SyntaxNode]) -> Iterator[str]:
    at = SIZES.get(name, SCALES.get(name))
    if at is not None and not _is_small(arguments, at, is_optional=name in SCALES):
        yield (
            f"calls {name} with another size than a number up to {CONDITION_NUMBER.limit},"
            f" which must be argument {at + 1}"
        )
    at = STARTS.get(name)
    if at is not None and not (len(arguments) > at and _is_number(arguments[at])):
        yield f"calls {name} with another start than a number, which must be argument {at + 1}"
    for at in (*INSERTED.get(name, ()), *PATTERNS.get(name, ()), *SAMPLES.get(name, ())):
        if len(arguments) > at and arguments[at].kind is not NodeKind.TEXT:
            yield f"calls {name} with another argument {at + 1} than a text in quotes"
    if name == "regexp_replace" and len(arguments) > 2 and "$" in arguments[2].text:
        yield "calls regexp_replace with a $ in the replacement: parts of a match may be longer than the value"
    if name in TYPES and len(arguments) > TYPES[name] and not _is_plain_type(arguments[TYPES[name]]):
        yield f"calls {name} with another schema than a text of plain types, as in 'a INT, b ARRAY<STRING>'"
    if name in OPTIONS and len(arguments) > OPTIONS[name]:
        yield from _option_problems(name, arguments[OPTIONS[name]])


def _is_small(arguments: Sequence[SyntaxNode], at: int, *, is_optional: bool) -> bool:
    if len(arguments) <= at:
        return is_optional
    digits = arguments[at].text.removeprefix("-")
    is_number = arguments[at].kind is NodeKind.NUMBER and digits.isascii() and digits.isdigit()
    return is_number and len(digits) < 10 and int(digits) <= CONDITION_NUMBER.limit


def _is_text(part: SyntaxNode) -> bool:
    """Whether it is one text, or several as for LIKE ANY."""
    is_list = part.kind is NodeKind.SEVERAL and bool(part.parts)
    return part.kind is NodeKind.TEXT or (is_list and all(_is_text(inner) for inner in part.parts))


def _is_number(part: SyntaxNode) -> bool:
    if part.kind is NodeKind.CALL and part.text in _CASTS and len(part.parts) == 2:
        return _is_number(part.parts[0]) and _NUMBER_TYPES.fullmatch(part.parts[1].text) is not None
    if part.kind is NodeKind.CALL and part.text in _CAST_NAMES and len(part.parts) == 1:
        return _is_number(part.parts[0])
    return part.kind is NodeKind.NUMBER


def _is_plain_type(part: SyntaxNode) -> bool:
    return part.kind is NodeKind.TEXT and _PLAIN_TYPES.fullmatch(part.text) is not None


def _option_problems(name: str, options: SyntaxNode) -> Iterator[str]:
    words = options.parts
    is_map = options.kind is NodeKind.CALL and options.text == "map" and len(words) % 2 == 0
    if not is_map or any(word.kind is not NodeKind.TEXT for word in words):
        yield f"calls {name} with options that are not written as map('name', 'value')"
        return
    known = {option.lower() for option in OPTION_NAMES}
    for word in words[::2]:
        if word.text.lower() not in known:
            yield f"calls {name} with the option {word.text[:100]}, which a condition may not set: {_LIST}"


# -- growth


class _TooLarge(Exception):
    """A value would be too large, or the tree is too deep to say."""


class _Weight(NamedTuple):
    """How many times as large as the message a value may be, and one element of it if it is a list."""

    whole: float = 0.0
    element: float = 0.0

    def times(self, factor: float) -> _Weight:
        return _Weight(self.whole * factor, self.element * factor)


def _weight(part: SyntaxNode, scale: float = 1.0, depth: int = 0) -> _Weight:
    """`scale` is the weight of the variables of lambdas around it."""
    if depth > DEPTH_MAX:
        raise _TooLarge(f"is nested more than {DEPTH_MAX} levels deep")
    match part.kind:
        case NodeKind.COLUMN:
            weight = _Weight(1.0, 1.0)
        case NodeKind.TEXT:
            weight = _Weight(1.0, 1.0).times(_bytes([part]) / MESSAGE_SIZE_MIN)
        case NodeKind.NUMBER:
            weight = _Weight()
        case NodeKind.CALL:
            weight = _weight_of_call(part, scale, depth)
        case _:
            weight = _sum([_weight(inner, scale, depth + 1) for inner in part.parts])
    if int(weight.whole * scale) > GROWTH_MAX and part.kind is not NodeKind.LOGICAL:
        what = f"calls {part.text} for a value that" if part.kind is NodeKind.CALL else "has values that together"
        times = f"{int(weight.whole * scale):,} times as large as the message"
        raise _TooLarge(f"{what} may be {times}, more than {GROWTH_MAX} times")
    return _Weight() if part.kind in (NodeKind.SCALAR, NodeKind.LOGICAL) else weight


def _sum(weights: Sequence[_Weight]) -> _Weight:
    return _Weight(sum(weight.whole for weight in weights), sum(weight.element for weight in weights))


def _weight_of_call(call: SyntaxNode, scale: float, depth: int) -> _Weight:
    bodies = [part for part in call.parts if part.kind is NodeKind.LAMBDA]
    given = _sum([_weight(part, scale, depth + 1) for part in call.parts if part.kind is not NodeKind.LAMBDA])
    if bodies:
        element = max(1.0, given.element)
        made = element * max(_weight(body, scale * element, depth + 1).whole for body in bodies)
        return _Weight(max(given.whole, made), max(element, made))
    if call.text in _SIZED:
        return _Weight(1.0, 1.0).times(_number(call) * _CHARACTER_SIZE_MAX / MESSAGE_SIZE_MIN)
    if call.text == "array_insert":
        return _Weight(given.whole + _number(call) / MESSAGE_SIZE_MIN, given.element)
    made = given.whole * _factor(call)
    return _Weight(made, given.element if _is_of_elements(call) else made)


def _is_of_elements(call: SyntaxNode) -> bool:
    """Whether an element of the result is one of an argument, or a piece of its text."""
    types = call.parts[TYPES[call.text] :] if call.text in TYPES else ()
    return call.text in _OF_ELEMENTS or (bool(types) and len(_COLLECTIONS.findall(types[0].text)) == 1)


def _factor(call: SyntaxNode) -> float:
    """How many times as large as its arguments a result may be."""
    name, arguments = call.text, call.parts
    factor: float = GROWTH.get(name, 1)
    if name == "repeat":
        factor = max(1, _number(call))
    elif name == "arrays_zip":
        factor = max(1, len(arguments))
    elif name == "replace":
        factor = max(1, _bytes(arguments[2:3]))
    elif name in INSERTED:  # between all that there is
        factor = 1 + _bytes([arguments[at] for at in INSERTED[name] if at < len(arguments)])
    elif name in _CASTS:
        factor = _factor_of_type(arguments[1:2])
    if name in TYPES:
        factor *= _factor_of_type(arguments[TYPES[name] : TYPES[name] + 1])
    if name in OPTIONS:  # as a format of times that are short in the message
        factor = max(factor, *(_bytes(options.parts[1::2]) / 2 for options in arguments[OPTIONS[name] :]), 0)
    return factor


def _factor_of_type(types: Sequence[SyntaxNode]) -> float:
    for found in (_COLLECTIONS.search(part.text) for part in types):
        if found is not None:
            return _PER_ELEMENT + len("".join(found.string[found.start() :].split())) / _TYPE_SIZE
    return 1


def _number(call: SyntaxNode) -> int:
    at = SIZES[call.text]
    return abs(int(call.parts[at].text)) if _is_small(call.parts, at, is_optional=False) else 0


def _bytes(parts: Sequence[SyntaxNode]) -> int:
    return sum(len(part.text.encode()) for part in parts)

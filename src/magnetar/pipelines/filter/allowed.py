"""Conditions, checked by Spark itself before it evaluates them: its parser may read one differently than the broker.

Two allow-lists by class. The first is for the tree of Spark's parser, before the analysis: analysing some functions
already loads classes or evaluates arguments, so their names must be known first. The second is for the analysed tree: a
function of the list must be the one that Spark has built in, and not another one of that name. Owns both lists. Knows
nothing of topics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from magnetar.bounds import CONDITION_NUMBER, CONDITION_SIZE
from magnetar.replication.spark_functions import FUNCTIONS, SIZES
from magnetar.replication.where import NO_VARIABLES, VARIABLE
from magnetar.replication.where_calls import MAY_CALL, NOT_ALLOWED

_CATALYST = "org.apache.spark.sql.catalyst."
_EXPRESSIONS = f"{_CATALYST}expressions."
_CALL = f"{_CATALYST}analysis.UnresolvedFunction"
_LITERAL = f"{_EXPRESSIONS}Literal"
_REPLACED = f"{_EXPRESSIONS}InheritAnalysisRules"

_SIZE_MAX = 2 * CONDITION_SIZE.limit + 100  # of a namespace and its topic, joined

_OPERATORS = """
    Add Alias And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Concat CreateNamedStruct Divide EqualNullSafe
    EqualTo GreaterThan GreaterThanOrEqual ILike In IntegralDivide IsNotNull IsNull LambdaFunction LessThan
    LessThanOrEqual Like LikeAll LikeAny Literal Multiply Not NotLikeAll NotLikeAny Or Overlay RLike Remainder ShiftLeft
    ShiftRight ShiftRightUnsigned StringLocate StringTrim StringTrimLeft StringTrimRight Substring Subtract TimestampAdd
    TimestampDiff UnaryMinus UnaryPositive
"""
_PARSED = frozenset(
    [
        f"{_CATALYST}analysis.UnresolvedAttribute",
        f"{_CATALYST}analysis.UnresolvedExtractValue",
        f"{_EXPRESSIONS}UnresolvedNamedLambdaVariable",
        *(_EXPRESSIONS + name for name in _OPERATORS.split()),
    ]
)
_ANALYSED = frozenset(
    _EXPRESSIONS + name
    for name in f"""
    {_OPERATORS} AttributeReference CreateArray CreateMap CurrentDate CurrentTimestamp DateAdd DateAddInterval
    DateAddYMInterval DateSub DatetimeSub DivideDTInterval DivideInterval DivideYMInterval GetArrayItem
    GetArrayStructFields GetMapValue GetStructField If LocalTimestamp MultiplyDTInterval MultiplyInterval
    MultiplyYMInterval NamedLambdaVariable SubtractDates SubtractTimestamps TimestampAddInterval TimestampAddYMInterval
    TryEval
    """.split()
)
"""What Spark makes of operators, columns, and functions that are called without parentheses."""

_BUILT = {
    "date_part": "Extract",
    "datepart": "Extract",
    "contains": "Contains BinaryPredicate",
    "endswith": "EndsWith BinaryPredicate",
    "startswith": "StartsWith BinaryPredicate",
    "ceil": "Ceil RoundCeil",
    "ceiling": "Ceil RoundCeil",
    "floor": "Floor RoundFloor",
    "instr": "StringInstr StringInstrWithOccurrence",
    "lpad": "StringLPad BinaryPad",
    "rpad": "StringRPad BinaryPad",
    "now": "Now",
    "mask": "Mask",
    "hour": "Hour",
    "minute": "Minute",
    "second": "Second",
    "make_timestamp": "MakeTimestamp MakeTimestampFromDateTime",
    "make_timestamp_ltz": "MakeTimestamp MakeTimestampFromDateTime",
    "make_timestamp_ntz": "MakeTimestamp MakeTimestampNTZ",
    "try_make_timestamp": "TryMakeTimestamp TryMakeTimestampFromDateTime MakeTimestamp",
    "try_make_timestamp_ltz": "TryMakeTimestamp TryMakeTimestampFromDateTime MakeTimestamp",
    "try_make_timestamp_ntz": "MakeTimestamp MakeTimestampNTZ",
    "to_char": "ToCharacter DateFormatClass ToBinary Base64 Hex Decode",
    "to_varchar": "ToCharacter DateFormatClass ToBinary Base64 Hex Decode",
    "to_timestamp_ltz": "ParseToTimestamp",
    "to_timestamp_ntz": "ParseToTimestamp",
    "try_to_timestamp": "ParseToTimestamp",
    "try_to_date": "ParseToDate",
    "parse_json": "variant.ParseJson",
    "try_parse_json": "variant.ParseJson",
    "variant_get": "variant.VariantGet",
    "try_variant_get": "variant.VariantGet",
}
"""The classes of functions that Spark builds by their arguments; those of the others have one, which it names."""


class NotAllowed(Exception):
    """A condition has something that is not on the list."""


def check_parsed(spark: SparkSession, where: str) -> frozenset[str]:
    """The names of the functions that the condition calls. Raises `NotAllowed`, or what Spark's parser raises."""
    if len(where) > _SIZE_MAX:
        raise NotAllowed(f"it has {len(where)} characters, more than {_SIZE_MAX}")
    if VARIABLE in where:
        raise NotAllowed(f"it has {VARIABLE}, {NO_VARIABLES}")
    session: Any = spark._jsparkSession
    called = set()
    for node in _nodes(session.sessionState().sqlParser().parseExpression(where)):
        name = node.getClass().getName()
        if name == _CALL:
            called.add(_called(node))
        elif name not in _PARSED:
            raise _refused(name)
    return frozenset(called)


def check_analysed(spark: SparkSession, condition: Any, called: frozenset[str]) -> None:
    """`condition` is the expression in the plan, `called` the names in its text. Raises `NotAllowed`."""
    allowed = _ANALYSED.union(*(_classes(spark, name) for name in called))
    gateway = spark.sparkContext._gateway

    def inside(node: Any) -> Any:
        # The children of these are what Spark evaluates instead of them.
        return node.parameters() if is_instance_of(gateway, node, _REPLACED) else node.children()

    for node in _nodes(condition, inside):
        name = node.getClass().getName()
        if name not in allowed:
            raise _refused(name)


def _called(node: Any) -> str:
    parts = list(_each(node.nameParts()))
    name = ".".join(parts)
    if len(parts) != 1 or name.lower() not in FUNCTIONS or node.isDistinct() or node.filter().isDefined():
        raise NotAllowed(f"it calls {name[:100]}, which is not a function that {MAY_CALL}")
    name = name.lower()
    if name in SIZES:
        arguments = list(_each(node.arguments()))
        if len(arguments) <= SIZES[name] or not _is_small(arguments[SIZES[name]]):
            raise NotAllowed(f"it calls {name} with another size than a number up to {CONDITION_NUMBER.limit}")
    return name


def _is_small(node: Any) -> bool:
    value = node.value() if node.getClass().getName() == _LITERAL else None
    return isinstance(value, int) and abs(value) <= CONDITION_NUMBER.limit


def _classes(spark: SparkSession, name: str) -> Iterator[str]:
    """Of what Spark has built in under this name, whatever was registered in the session."""
    jvm: Any = spark._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    found = catalyst.analysis.FunctionRegistry.builtin().lookupFunction(catalyst.FunctionIdentifier(name))
    if found.isDefined():
        yield found.get().getClassName()
    yield from (_EXPRESSIONS + built for built in _BUILT.get(name, "").split())


def _nodes(root: Any, inside: Any = lambda node: node.children()) -> Iterator[Any]:
    todo = [root]
    while todo:
        node = todo.pop()
        yield node
        todo += _each(inside(node))


def _each(sequence: Any) -> Iterator[Any]:
    items = sequence.iterator()
    while items.hasNext():
        yield items.next()


def _refused(name: str) -> NotAllowed:
    return NotAllowed(f"it has {name.removeprefix(_EXPRESSIONS).removeprefix(_CATALYST)}, which {NOT_ALLOWED}")

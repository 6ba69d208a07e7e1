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

from magnetar.bounds import CONDITION_SIZE
from magnetar.replication.spark_functions import FUNCTIONS
from magnetar.replication.where import NO_VARIABLES, VARIABLE
from magnetar.replication.where_calls import CONTINUED_LINE, MAY_CALL, NOT_ALLOWED, continues_line
from magnetar.replication.where_limits import DEPTH_MAX, NodeKind, SyntaxNode, limit_problems

_CATALYST = "org.apache.spark.sql.catalyst."
_EXPRESSIONS = f"{_CATALYST}expressions."
_CALL = f"{_CATALYST}analysis.UnresolvedFunction"
_COLUMN = f"{_CATALYST}analysis.UnresolvedAttribute"
_FIELD = f"{_CATALYST}analysis.UnresolvedExtractValue"
_VARIABLE = f"{_EXPRESSIONS}UnresolvedNamedLambdaVariable"
_CAST = f"{_EXPRESSIONS}Cast"
_LITERAL = f"{_EXPRESSIONS}Literal"
_LITERALS = {"string": NodeKind.TEXT} | dict.fromkeys(
    ("byte", "short", "integer", "long", "float", "double", "decimal"), NodeKind.NUMBER
)
_REPLACED = f"{_EXPRESSIONS}InheritAnalysisRules"

_SIZE_MAX = 2 * CONDITION_SIZE.limit + 100  # of a namespace and its topic, joined

_SMALL = """
    Add BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Divide EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual ILike In
    IntegralDivide IsNotNull IsNull LessThan LessThanOrEqual Like LikeAll LikeAny Multiply NotLikeAll NotLikeAny RLike
    Remainder ShiftLeft ShiftRight ShiftRightUnsigned StringLocate Subtract TimestampAdd TimestampDiff UnaryMinus
    UnaryPositive
"""
_LOGICAL = "And Not Or"
_OPERATORS = f"""
    {_SMALL} {_LOGICAL} Alias CaseWhen Cast Concat CreateNamedStruct LambdaFunction Literal Overlay StringTrim
    StringTrimLeft StringTrimRight Substring
"""
_PARSED = frozenset([_COLUMN, _FIELD, _VARIABLE, *(_EXPRESSIONS + name for name in _OPERATORS.split())])
_KINDS = {
    _CALL: NodeKind.CALL,
    _COLUMN: NodeKind.COLUMN,
    _VARIABLE: NodeKind.COLUMN,
    f"{_EXPRESSIONS}LambdaFunction": NodeKind.LAMBDA,
    _CAST: NodeKind.CALL,
    **{_EXPRESSIONS + name: NodeKind.SCALAR for name in _SMALL.split()},
    **{_EXPRESSIONS + name: NodeKind.LOGICAL for name in _LOGICAL.split()},
}
_MATCHES = {_EXPRESSIONS + name: name.lower() for name in ("Like", "ILike", "RLike")}
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
    if continues_line(where):
        raise NotAllowed(f"it {CONTINUED_LINE}")
    session: Any = spark._jsparkSession
    tree = _Tree()
    root = tree.part(session.sessionState().sqlParser().parseExpression(where))
    for problem in limit_problems(root):
        raise NotAllowed(f"it {problem}")
    return frozenset(tree.called)


class _Tree:
    """The tree of Spark's parser, as parts, and the names of the functions that it calls."""

    def __init__(self) -> None:
        self.called: set[str] = set()

    def part(self, node: Any, depth: int = 0) -> SyntaxNode:
        """Raises `NotAllowed`."""
        name = node.getClass().getName()
        if depth > DEPTH_MAX:
            raise NotAllowed(f"it is nested more than {DEPTH_MAX} levels deep")
        if name == _LITERAL:
            return _literal(node)
        text = ""
        if name == _CALL:
            text = _called(node)
            self.called.add(text)
        elif name not in _PARSED:
            raise _refused(name)
        parts = tuple(self.part(child, depth + 1) for child in _each(node.children()))
        if name == _CAST:
            text, parts = "cast", (*parts, SyntaxNode(NodeKind.TEXT, node.dataType().sql()))
        if name in _MATCHES:
            parts = (parts[0], SyntaxNode(NodeKind.PATTERN, _MATCHES[name], parts[1:]))
        return SyntaxNode(_KINDS.get(name, NodeKind.SEVERAL), text, parts)


def _literal(node: Any) -> SyntaxNode:
    kind = _LITERALS.get(node.dataType().typeName().partition("(")[0], NodeKind.SEVERAL)
    is_null = node.value() is None
    return (
        SyntaxNode(NodeKind.TEXT)
        if is_null
        else SyntaxNode(kind, "" if kind is NodeKind.SEVERAL else str(node.value()))
    )


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
    return name.lower()


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

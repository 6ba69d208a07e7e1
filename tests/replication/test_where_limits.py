"""How large a condition may make a value, what its arguments may be, and the tree of tokens that says so."""

from __future__ import annotations

import re

import pytest
from sqlglot.dialects.dialect import Dialect

from magnetar.errors import InvalidSetting
from magnetar.replication.spark_functions import OPTIONS, PATTERNS
from magnetar.replication.where import check_where
from magnetar.replication.where_limits import NodeKind, SyntaxNode, limit_problems
from magnetar.replication.where_tree import tree_of

COLUMN = SyntaxNode(NodeKind.COLUMN)
ONE = SyntaxNode(NodeKind.NUMBER, "1")


def text(value: str) -> SyntaxNode:
    return SyntaxNode(NodeKind.TEXT, value)


def call(name: str, *parts: SyntaxNode) -> SyntaxNode:
    return SyntaxNode(NodeKind.CALL, name, parts)


def several(*parts: SyntaxNode) -> SyntaxNode:
    return SyntaxNode(NodeKind.SEVERAL, "", parts)


def scalar(*parts: SyntaxNode) -> SyntaxNode:
    return SyntaxNode(NodeKind.SCALAR, "", parts)


@pytest.mark.parametrize(
    ("where", "tree"),
    [
        ("a.b.c", COLUMN),
        ("`a b` || 'x'", several(COLUMN, text("x"))),
        ("upper(a || b) = 'X'", scalar(call("upper", several(COLUMN, COLUMN)), text("X"))),
        ("lpad(a, -1, NULL)", call("lpad", COLUMN, SyntaxNode(NodeKind.NUMBER, "-1"), text(""))),
        ("exists(a, (x, i) -> x = 1)", call("exists", COLUMN, SyntaxNode(NodeKind.LAMBDA, "", (scalar(COLUMN, ONE),)))),
        ("CAST(a AS MAP<STRING, INT>)", call("cast", COLUMN, text("MAP < STRING , INT >"))),
        ("a::interval day", several(call("cast", COLUMN, text("interval")), COLUMN)),
        ("CAST(a AS interval day to second)", call("cast", COLUMN, text("interval day to second"))),
        ("CASE WHEN a THEN b ELSE c END", several(COLUMN, COLUMN, COLUMN)),
        ("a - 1", scalar(COLUMN, ONE)),
        ("NOT a = 1 AND b", SyntaxNode(NodeKind.LOGICAL, "", (several(), scalar(COLUMN, ONE), COLUMN))),
        ("now()", call("now")),
        ("m[upper(a)]", several(COLUMN, several(call("upper", COLUMN)))),
    ],
)
def test_the_tree_of_tokens(where: str, tree: SyntaxNode) -> None:
    assert tree_of(Dialect.get_or_raise("spark").tokenize(where)) == several(tree)


@pytest.mark.parametrize(
    "where",
    [
        "concat(a, b, c) = d AND concat_ws(', ', upper(a), lower(b), 'x') = 'y' AND a || b || c = 'z'",
        "replace(replace(a, '-', ''), '+', 'plus') = 'b' AND regexp_replace(a, '[^0-9]', ' ') = '1'",
        "hex(sha2(a, 256)) = 'x' AND base64(encode(a, 'utf-8')) = 'y' AND CAST(unbase64(a) AS STRING) = 'z'",
        "exists(from_json(a, 'items array<struct<name: string, price: double>>').items, x -> x.price > 1)",
        "exists(from_json(a, 'array<struct<price: double, count: int>>'), x -> x.price * x.count > x.price + b)",
        "exists(split(a, ','), x -> lower(trim(x)) IN (lower(b), lower(c)) OR x || '-' || b = c)",
        "exists(from_json(a, 'i array<struct<tags: array<string>>>').i, x -> exists(x.tags, y -> y = 'z'))",
        "exists(filter(split(a, ','), x -> length(x) > 1), x -> startswith(x, concat(b, '-')))",
        "a LIKE 'x%' AND a NOT LIKE ALL ('x/%', 'y') OR a LIKE '/%' ESCAPE '/' OR a RLIKE r'x.*' OR like(a, 'x')",
        "NOT rlike(a, 'x') AND a = 'x' AND NOT like(a, '_') AND regexp(a, 'x') AND a REGEXP 'x' AND a LIKE 'x' || 'y'",
        "date_format(t, 'yyyy') = '2020' AND to_timestamp(a) > to_timestamp(b, 'yyyy') AND unix_timestamp() > 1",
        "arrays_overlap(split(a, ','), split(b, ',')) AND array_contains(split(a, ' '), b)",
        "exists(items, x -> exists(x.tags, y -> lower(y) = lower(x.name)))",
        "exists(array('" + "', '".join(f"name-{number}" for number in range(100)) + "'), x -> contains(a, x))",
        "aggregate(a, 0D, (sum, x) -> sum + x) > 1 AND reduce(a, CAST(0 AS DECIMAL(10, 2)), (s, x) -> s + x) > 1",
        "aggregate(a, double(0), (sum, x) -> sum + x.price * x.count, sum -> round(sum, 2)) > 1.5BD",
        "from_csv(a, 'x int, y string', map('mode', 'FAILFAST', 'SEP', ';')).x = 1",
        "to_json(struct(a, t), map('timestampFormat', 'yyyy-MM-dd HH:mm:ss')) = 'x'",
        "from_json(a, 'x int NOT NULL, `y \"z\"` map<string, decimal(10, 2)>').x = 1",
        "variant_get(parse_json(a), '$.b', 'int') = 1 AND try_variant_get(parse_json(a), '$.b') IS NULL",
        "from_json(a, 'x int', map('allowComments', 'true', 'primitivesAsString', 'true')).x = 1",
        "a IN ('" + "', '".join("x" * 20 for _ in range(400)) + "')",
        " OR ".join(["concat(a, b) = c"] * 500),
        " AND ".join(["repeat(a, 19) <> 'x'"] * 100),
        "repeat('x', 1000) = a AND repeat(a, 19) = b AND repeat(lpad(a, 10), 100) = b",
    ],
)
def test_what_conditions_need_is_within_the_limits(where: str) -> None:
    check_where(where)


FIELDS = ", ".join(f"f{number}: int" for number in range(100))
GROWING = [
    "repeat(repeat('x', 1000), 1000) = a",
    "repeat(a, 21) = b",
    "repeat(repeat(a, 6), 6) = b",
    "lower(repeat(/* */ `repeat`(upper(a), 10) || 'x', 10)) = b",
    "space(1000) || repeat(space(1000), 1000) = b",
    "exists(array(concat(a, a, a, a)), x -> exists(array(concat(x, x, x, x)), y -> concat(y, y) = b))",
    "filter(array(repeat(a, 10)), x -> repeat(x, 10) = b)[0] = b",
    "aggregate(array(repeat(a, 10)), 0, (s, x) -> s + length(repeat(x, 10))) = 1",
    "hex(hex(hex(hex(hex(a))))) = b",
    "encode(decode(encode(decode(a, 'X'), 'UTF-32'), 'X'), 'UTF-32') = b",
    "url_encode(url_encode(url_encode(url_encode(a)))) = b",
    "to_json(struct(to_json(struct(a)))) = b",
    "to_csv(struct(to_csv(struct(to_csv(struct(to_csv(struct(a)))))))) = b",
    "CAST(split(CAST(split(a, '') AS STRING), '') AS STRING) = b",
    "to_json(split(a, '')) = b",
    "size(sentences(repeat(a, 3))) = 1",
    "exists(from_json(a, 'array<array<int>>'), x -> array_union(x, x) = x)",
    "exists(array_sort(split(a, '')), x -> repeat(x, 21) = b)",
    "split(a, '') = split(upper(a), '') AND array(split(a, ''), split(a, ''), split(a, '')) IS NULL",
    "replace(replace(a, 'x', 'xxxxxx'), 'x', 'xxxxxx') = b",
    "regexp_replace(regexp_replace(a, '', 'xxxxx'), '', 'xxxxx') = b",
    "array_join(split(a, ''), 'xx') = b",
    "concat_ws('xx', split(a, '')) = b",
    f"concat({', '.join('a' * 21)}) = b",
    f"to_json(array({', '.join('a' * 6)})) = b",
    f"arrays_zip({', '.join('a' * 6)}) IS NULL",
    f"from_json(a, 'array<struct<{FIELDS}>>') IS NULL",
    f"variant_get(parse_json(a), '$', 'map<string, struct<{FIELDS}>>') IS NULL",
    f"CAST(parse_json(a) AS ARRAY<STRUCT<{FIELDS}>>) IS NULL",
    f"parse_json(a)::ARRAY<STRUCT<{FIELDS}>> IS NULL",
    f"to_json(a, map('timestampFormat', '{'y' * 42}')) = b",
    "repeat(a, 11) = repeat(upper(a), 11)",
    "NOT b AND a = 'x' OR repeat(a, 11) IN ('y', repeat(upper(a), 11))",
    "CASE WHEN b THEN repeat(a, 11) ELSE 'x' END || repeat(a, 11) = b",
]


@pytest.mark.parametrize("where", GROWING)
def test_a_value_may_not_grow_by_functions_around_each_other(where: str) -> None:
    with pytest.raises(InvalidSetting, match=r"may be [\d,]+ times as large as the message, more than 20 times"):
        check_where(where)


ARGUMENTS = {
    "another start than a number, which must be argument 2": [
        "aggregate(a, 'x', (s, x) -> concat(s, s)) = b",
        "aggregate(a, b, (s, x) -> concat(s, s)) = b",
        "reduce(a, CAST(0 AS STRING), (s, x) -> concat(s, s)) = b",
        "aggregate(a, array(0), (s, x) -> concat(s, s)) = b",
    ],
    "argument 3 than a text": ["replace(a, 'x', b) = b", "regexp_replace(a, 'x', concat('y', b)) = b"],
    "argument 2 than a text": ["array_join(a, b) = b"],
    "calls date_format with another argument 2 than a text": ["date_format(t, a) = b", "date_format(t, a || 'y') = b"],
    "calls regexp_replace with another argument 2 than a text": ["regexp_replace(a, b, 'x') = b"],
    "calls str_to_map with another argument 3 than a text": ["str_to_map(a, ',', b)['x'] = b"],
    "calls like with another argument 2 than a text": ["like(a, b)", "NOT like(a, upper(b))", "a = 'x' AND like(a, b)"],
    "has LIKE with another pattern than a text": [
        "a LIKE b",
        "a NOT LIKE (b)",
        "a LIKE 'x' || b",
        "a LIKE ANY ('x', b)",
        "a NOT LIKE ALL (lower(b), 'x')",
        "a LIKE b ESCAPE '/'",
        "exists(items, x -> x LIKE a)",
    ],
    "has ILIKE with another pattern than a text": ["a ILIKE concat('x', b)"],
    "has RLIKE with another pattern than a text": ["a RLIKE b", "a RLIKE CASE WHEN a THEN 'x' ELSE b END"],
    "argument 1 than a text": ["concat_ws(a, b, b) = b", "schema_of_json(repeat('[', 99)) = b"],
    "regexp_replace with a $": ["regexp_replace(a, '(?=(.*))', '$1') = b"],
    "than a text of plain types": [
        """from_json(a, '{"type": "udt", "class": "java.util.Timer"}').b = 1""",
        """from_json(a, '"string"').b = 1""",
        """from_csv(a, '[]').b = 1""",
        """from_csv(a, ' /* */ {}').b = 1""",
        "from_json(a, concat('b ', 'int')).b = 1",
        "from_json(a, b).b = 1",
        "from_json(a, schema_of_json('{}')).b = 1",
        """variant_get(parse_json(a), '$', '{"type": "udt"}') = 1""",
        "try_variant_get(parse_json(a), '$', b) = 1",
    ],
    "with options that are not written as map": [
        "from_csv(a, 'b int', b).b = 1",
        "from_json(a, 'b int', map_concat(map('mode', 'x'))).b = 1",
        "to_json(a, map('dateFormat', b)) = b",
        "to_csv(a, map(concat('a', 'b'), 'x')) = b",
        "from_csv(a, 'b int', map(1, 2)).b = 1",
    ],
}


@pytest.mark.parametrize(("reason", "where"), [(reason, where) for reason in ARGUMENTS for where in ARGUMENTS[reason]])
def test_arguments_that_must_be_literals(reason: str, where: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(reason)):
        check_where(where)


@pytest.mark.parametrize("function", PATTERNS)
def test_a_pattern_is_not_one_of_the_message(function: str) -> None:
    for at in PATTERNS[function]:
        arguments = [*["'x'"] * at, "a"]
        with pytest.raises(
            InvalidSetting, match=f"calls {function} with another argument {at + 1} than a text in quotes"
        ):
            check_where(f"{function}({', '.join(arguments)}) IS NULL")


@pytest.mark.parametrize("name", ["maxColumns", "maxCharsPerColumn", "inputBufferSize", "compression", "samplingRatio"])
@pytest.mark.parametrize("function", OPTIONS)
def test_an_option_that_is_not_on_the_list_is_refused(function: str, name: str) -> None:
    arguments = ", ".join(["'x int'"] * OPTIONS[function])
    where = f"{function}({arguments}, map('mode', 'PERMISSIVE', '{name}', '1'))"
    with pytest.raises(
        InvalidSetting, match=f"with the option {name}, which a condition may not set: docs/replication"
    ):
        check_where(f"{where} IS NULL")


def test_a_tree_that_is_too_deep_is_refused() -> None:
    tree = COLUMN
    for _ in range(10_000):
        tree = call("abs", tree)
    assert list(limit_problems(tree)) == ["is nested more than 200 levels deep"]

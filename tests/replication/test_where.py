"""Conditions, checked without Spark."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import pytest

from magnetar.errors import InvalidSetting
from magnetar.replication.model import RoutePolicy
from magnetar.replication.route import check_policy
from magnetar.replication.spark_functions import GROUPS, OPTION_NAMES
from magnetar.replication.where import check_where

FIELDS = ("price", "country", "items", "address")


@pytest.mark.parametrize(
    "where",
    [
        "price > 10 AND country = 'DE'",
        "get_json_object(CAST(value AS STRING), '$.items[0].name') = 'a;b -- (no comment'",
        '`a column; of mine` = "it\'s" -- what is meant (',
        "/* ( */ __key IS NOT NULL",
        r"name = 'it\'s' OR name = 'it''s'",
        "selected = true",
        "size(items) > 0 AND items[0].price > 1",
        "exists(items, x -> x.price > 1) OR aggregate(prices, 0, (sum, x) -> sum + x) > 1",
        "__eventTime > now() - INTERVAL 1 DAY AND d > DATE '2020-01-01' AND day < current_date",
        "a RLIKE 'x.*' OR a LIKE ANY ('x%', 'y%') OR a <=> b OR a::int > 1 OR NOT (a BETWEEN 1 AND 2)",
        "CASE WHEN a THEN b ELSE c END AND from_json(v, 'a int').a > 1 AND xxhash64(a) % 2 = 0",
        "`a b`[0] = '[' AND m['x']['y'] = 1 AND array(1)[0] = 1 AND (a)[0] = 1 AND 'x' -- C:\\data\n != '\\\\'",
        "extract(year FROM ts) = 2020 AND trim(BOTH 'x' FROM a) = 'y' AND a IN (1, 2) AND c = X'1A'",
    ],
)
def test_sp6_conditions(where: str) -> None:
    check_where(where)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("  ", "is empty"),
        ("-- nothing", "is only a comment"),
        ("country = = 'CH'", "is no condition in SQL: error at 10, near '='"),
        ("a = 1 AND\nprice > 1 price", "error at 20, near 'price'"),
        ("a = 1 AND", "is no condition in SQL"),
        ("price > 1; DROP TABLE t", "has a ; at 9"),
        ("price > 1;", "has a ; at 9"),
        ("id IN (SELECT id FROM t)", "has a subquery at 7"),
        ("exists(select 1)", "has a subquery at 7"),
        ("id IN (TABLE csv.`/etc/passwd`)", "has a subquery at 7"),
        ("(price > 1", "is no condition in SQL: error at 9"),
        ("price > 1) OR (true", "error at 9, near ')'"),
        ("items[0) = 1", "error at 7, near ')'"),
        ("name = 'x", "has a quote or a comment that is not closed"),
        ("name = `x", "has a quote or a comment that is not closed"),
        ("a = 1 /* x", "has a quote or a comment that is not closed"),
        ("a = 'CH' -- path C:\\data\\", "has a backslash before a line break"),
        ("a = 1 --\\\n AND b = '1'", "has a backslash before a line break"),
        ("/* /*+ */ a = 1 OR '*/ a = 1 -- ' = a", "has a /* in a comment near"),
        ("a = 1 /* x /* y */ */", "has a /* in a comment near 4"),
        ("a COLLATE UTF8_LCASE = 'x'", "a COLLATE UTF8_LCASE (Collate), which a condition may not have"),
        ("[1, 2][0] = 1", "has a list at 0 that is not written as array(…)"),
        ("a IN ([1])", "has a list at 6 that is not written as array(…)"),
        ("a = 1 AND [a][0] = 1", "has a list at 10 that is not written as array(…)"),
        ("a ? b", "has ? at 2, which a condition may not have"),
        ("a -> b ->> c", "has ->> at 7, which"),
        ("a #> b", "has #> at 2, which"),
        ("a ~~ 'x'", "has ~~ at 2, which"),
        ("a ~* 'x'", "has ~* at 2, which"),
        ("a ?? b", "has ?? at 2, which"),
        ("x" * 20_000, "20000 characters, more than 10000"),
        ("uper(a) = 'X'", "lists the functions and operators that are allowed; did you mean upper"),
        ("reflect('java.lang.System', 'exit') = 1", "calls reflect, which is not a function that a condition may call"),
        ("count(*) > 1", "calls count, which is not"),
        ("max(price) > 1", "calls max"),
        ("row_number() OVER (ORDER BY a) > 1", "calls row_number"),
        ("explode(items) = 1", "calls explode"),
        ("a = :name", ":name (Placeholder), which a condition may not have"),
    ],
)
def test_an_invalid_condition_is_rejected(where: str, reason: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        check_policy(RoutePolicy(where=where))
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "where", ["PRICE > 1", "address.street.name = 'x'", "exists(items, one -> one.x > price)", "__key IS NULL"]
)
def test_columns_of_the_value_and_of_every_message(where: str) -> None:
    check_where(where, FIELDS)


@pytest.mark.parametrize(
    ("where", "column"),
    [
        ("prise > 1", "prise; did you mean price"),
        ("street.name = 1", "street"),
        ("__kex = 1", "__kex; did you mean __key"),
    ],
)
def test_an_unknown_column_is_rejected(where: str, column: str) -> None:
    check_where(where)
    with pytest.raises(InvalidSetting, match=f"unknown column {column}: the columns of the value are address, country"):
        check_where(where, FIELDS)


def test_a_deep_condition_is_rejected() -> None:
    with pytest.raises(InvalidSetting):
        check_where("(" * 4000 + "a" + ")" * 4000)


def test_the_documentation_lists_the_functions() -> None:
    text = (Path(__file__).parents[2] / "docs" / "replication.md").read_text()
    for group, names in GROUPS.items():
        assert f"| {group} | {', '.join(f'`{name}`' for name in sorted(names.split()))} |" in text


def test_bound_condition_depth() -> None:
    for opening, closing in (("(", ")"), ("abs(", ")"), ("CASE WHEN b THEN ", " END"), ("items[", "]")):
        check_where(opening * 12 + "a" + closing * 12)
        with pytest.raises(InvalidSetting, match="nested more than 30 levels deep"):
            check_where(opening * 31 + "a" + closing * 31)
    with pytest.raises(InvalidSetting, match="nested more than 30 levels deep"):
        check_where("1" + " + 1" * 40)
    check_where(" OR ".join(["a = 1"] * 500))


def test_bound_condition_number() -> None:
    check_where("repeat('x', 1000) = lpad(a, 1000, ',)') AND array_insert(items, -1, 1) IS NULL")
    check_where("round(a) = 1 AND round(a, -1000) = floor(a, 3)")
    for size in ("1001", "99999999999", "a", "1 + 1", "(1)", "'1'", "1e9"):
        for call in ("repeat(a, {})", "lpad(a, {})", "round(a, {})", "ceil(a, {})"):
            with pytest.raises(InvalidSetting, match="another size than a number up to 1000"):
                check_where(f"{call.format(size)} = a")


def test_the_documentation_lists_the_options() -> None:
    text = (Path(__file__).parents[2] / "docs" / "replication.md").read_text()
    assert f"with these names: {', '.join(f'`{name}`' for name in sorted(OPTION_NAMES, key=str.lower))}." in text


@pytest.mark.parametrize("name", ["struct", "date", "decimal", "char", "int", "timestamp", "string", "array", "map"])
@pytest.mark.parametrize("shape", ["{}(", "{}(1, ", "abs({}(", "{}[", "[{} ", "{}<", "CAST(a AS {}("])
def test_nested_types_are_read_in_bounded_time(name: str, shape: str) -> None:
    """The parser tries each level twice where it expects a type: thirty levels would take hours."""
    opening = shape.format(name)
    closing = "".join({"(": ")", "[": "]", "<": ">"}.get(sign, "") for sign in reversed(opening))
    times = 30 // max(1, len(closing))
    with contextlib.suppress(InvalidSetting):
        check_where(opening * times + "1" + closing * times)


@pytest.mark.parametrize("text", ["(" * 1_000_000, "(" * 9_999, "NOT " * 2_400 + "a", "a" + "[0]" * 3_000, "map(1)"])
def test_no_text_is_too_much_for_the_parser(text: str) -> None:
    with pytest.raises(InvalidSetting):
        check_where(text)


@pytest.mark.parametrize(
    "where", ["if a = 'secret' then b", "IF 'secret'", "get_json_object(a, '$[secret') = 1", "a:`secret`[ = 1"]
)
def test_a_condition_is_not_in_the_log(where: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), contextlib.suppress(InvalidSetting):
        check_where(where)
    assert caplog.text == ""


def test_the_parser_of_the_program_around_us_logs_as_before(caplog: pytest.LogCaptureFixture) -> None:
    check_where("a = 1")
    logging.getLogger("sqlglot").warning("theirs")
    assert "theirs" in caplog.text

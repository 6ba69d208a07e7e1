"""What a condition may contain, by both checks: the broker's without Spark, and that of the pipelines process."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from magnetar.errors import InvalidSetting
from magnetar.pipelines.filter.allowed import NotAllowed, check_analysed, check_parsed
from magnetar.replication.route_parts import RouteParts, in_force
from magnetar.replication.spark_functions import FUNCTIONS, OPTIONS
from magnetar.replication.where import check_where
from magnetar.replication.where_limits import GROWTH_MAX, MESSAGE_SIZE_MIN
from tests.replication.test_where_limits import ARGUMENTS, GROWING

COLUMNS = "s string, n int, d date, t timestamp, items array<struct<price: int>>, m map<string, string>, b boolean"
SYNTAX = {"try_cast", "timestampadd", "timestampdiff"}  # of the grammar: no registered functions


def set_refusal(where: str) -> str:
    """Why the broker refuses a condition, or nothing."""
    try:
        check_where(where)
    except InvalidSetting as error:
        return str(error)
    return ""


def parse_refusal(spark: SparkSession, where: str) -> str:
    try:
        check_parsed(spark, where)
    except (NotAllowed, PySparkException) as error:
        return str(error)
    return ""


def refusal(spark: SparkSession, where: str) -> str:
    """Why the pipelines process refuses a condition, or nothing."""
    try:
        called = check_parsed(spark, where)
        analysed: Any = spark.createDataFrame([], COLUMNS).where(F.expr(f"({where}\n) IS NOT NULL"))._jdf
        check_analysed(spark, analysed.queryExecution().analyzed().condition(), called)
    except (NotAllowed, PySparkException, Py4JError) as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def examples(spark: SparkSession) -> dict[str, list[str]]:
    """Every function that Spark has, with the examples of its documentation."""
    found = {}
    for (name,) in spark.sql("SHOW SYSTEM FUNCTIONS").collect():
        if name.isidentifier():
            text = "\n".join(row[0] for row in spark.sql(f"DESCRIBE FUNCTION EXTENDED {name}").collect())
            found[name] = [one.strip() for one in re.findall(r"> SELECT (.*?);\s*(?:\n|$)", text)]
    return found


def test_every_function_of_spark_is_allowed_or_refused_by_both_checks(
    spark: SparkSession, examples: dict[str, list[str]]
) -> None:
    assert examples.keys() >= FUNCTIONS - SYNTAX
    for name in examples.keys() - FUNCTIONS:
        for call in (f"{name}()", f"{name}(n)", f"{name.upper()} /* */ (s, n)", f"`{name}`(s)", f"n = {name}(n) + 1"):
            assert set_refusal(call), call
            assert parse_refusal(spark, call), call


def test_what_a_newer_spark_adds_is_refused(spark: SparkSession) -> None:
    assert "calls read_file_of_2030" in set_refusal("read_file_of_2030(s) = 'x'")
    assert "calls read_file_of_2030" in parse_refusal(spark, "read_file_of_2030(s) = 'x'")


def test_the_examples_of_allowed_functions_pass_both_checks(
    spark: SparkSession, examples: dict[str, list[str]]
) -> None:
    skipped = ("AS S", ">>>", "TIME'", "time'", "time '", "(9)")  # not one value, or types that are switched off
    usable = [one for name in FUNCTIONS - SYNTAX for one in examples[name] if not any(word in one for word in skipped)]
    refused = {one: set_refusal(one) or refusal(spark, one) for one in usable}
    assert {one: reason for one, reason in refused.items() if reason} == {}


@pytest.mark.parametrize(
    "where",
    [
        "n > 10 AND s = 'DE' OR NOT b",
        "exists(items, x -> x.price > 1) OR aggregate(items.price, 0, (sum, x) -> sum + x) > 1",
        "t > now() - INTERVAL 1 DAY AND d > DATE '2020-01-01' AND d < current_date AND t < current_timestamp",
        "t - t > INTERVAL '1' DAY OR d - d > INTERVAL '1' DAY OR d + 1 > d OR d + INTERVAL 1 MONTH > t",
        "t + INTERVAL 2 HOUR * 3 > t OR INTERVAL '1' DAY / 2 > INTERVAL '1' HOUR OR add_months(d, 1) > d",
        "s RLIKE 'x.*' OR s LIKE ANY ('x%', 'y%') OR s NOT LIKE ALL ('x', 'y') OR s <=> 'x' OR s::int > 1",
        "CASE WHEN b THEN b ELSE NOT b END AND from_json(s, 'a int').a > 1 AND xxhash64(n) % 2 = 0",
        "extract(year FROM t) = 2020 AND trim(BOTH 'x' FROM s) = 'y' AND n IN (1, 2) AND CAST(s AS BINARY) = X'1A'",
        "m['a'] = 'b' AND items[0].price BETWEEN 1 AND 2 AND size(items) > 0 AND s IS DISTINCT FROM 'x'",
        "timestampadd(DAY, 1, t) > t AND timestampdiff(DAY, t, t) = 0 AND try_cast(s AS DECIMAL(10, 2)) > 1.5BD",
        "struct(n AS a).a = 1 AND (1, 2) = (n, n) AND s || 'x' = 'yx' AND -n < ~n AND n << 1 > n DIV 2",
        "int(s) = 1 AND date(t) = d AND string(n) = s AND lpad(s, 10, '0') = s AND repeat(s, 3) = s",
        "get_json_object(CAST(s AS STRING), '$.items[0].name') = 'a;b -- (no comment' /* ( */ -- )",
    ],
)
def test_what_conditions_are_made_of_passes_both_checks(spark: SparkSession, where: str) -> None:
    assert set_refusal(where) == ""
    assert refusal(spark, where) == ""


BYPASSES = [
    "reflect('java.lang.System', 'exit', '0') IS NULL",
    "ReFlEcT('java.lang.System', 'exit', '0') IS NULL",
    "`reflect`('java.lang.System', 'exit', '0') IS NULL",
    "reflect/* x */\n('java.lang.System', 'exit') IS NULL",
    "reflect -- x\n('java.lang.System', 'exit') IS NULL",
    "java_method('java.lang.System', 'exit') IS NULL",
    "try_reflect('java.lang.System', 'exit') IS NULL",
    "system.builtin.reflect('java.lang.System', 'exit') IS NULL",
    "builtin.abs(n) = 1",
    "spark_catalog.default.f(n) = 1",
    "session.f(n) = 1",
    "IDENTIFIER('reflect')('java.lang.System', 'exit') IS NULL",
    "IDENTIFIER('ref' || 'lect')('java.lang.System', 'exit') IS NULL",
    "IDENTIFIER('n') = 1",
    "exists(array(1), x -> reflect('java.lang.System', 'exit') IS NULL)",
    "aggregate(array(1), 0, (a, x) -> a, a -> reflect('java.lang.System', 'exit')) IS NULL",
    "CASE WHEN b THEN true ELSE reflect('java.lang.System', 'exit') IS NULL END",
    "CAST(reflect('java.lang.System', 'exit') AS INT) = 1",
    "reflect('java.lang.System', 'exit')::int = 1",
    "from_json(s, reflect('java.lang.System', 'exit')).a = 1",
    "n IN (1, reflect('java.lang.System', 'exit'))",
    "n BETWEEN 1 AND reflect('java.lang.System', 'exit')",
    "s LIKE reflect('java.lang.System', 'exit')",
    "items[reflect('java.lang.System', 'exit')].price = 1",
    "CALL reflect('java.lang.System')",
    "SELECT 1",
    "(SELECT true)",
    "EXISTS (SELECT 1)",
    "EXISTS(FROM x)",
    "n IN (SELECT 1)",
    "n IN (TABLE x)",
    "n IN (WITH x AS (SELECT 1) SELECT * FROM x)",
    "n = (VALUES (1))",
    "n = :name",
    "n = ?",
    "'${env:HOME}' = s",
    "'${system:user.home}' = s",
    "'$\\u007benv:HOME}' = s OR '${spark.app.name}' = s",
    "current_user() = s",
    "session_user() = s",
    "current_database() = s",
    "version() = s",
    "input_file_name() = s",
    "raise_error(s) IS NULL",
    "assert_true(b) IS NULL",
    "rand() > 0.5",
    "uuid() = s",
    "monotonically_increasing_id() = 1",
    "explode(array(1)) = 1",
    "count(*) > 1",
    "max(n) OVER (PARTITION BY s) > 1",
    "any(b)",
    "abs(DISTINCT n) = 1",
    "abs(n) FILTER (WHERE b) = 1",
    "from_protobuf(s, 'M', '/etc/passwd') IS NULL",
    "xpath_string(s, 'a') = 'x'",
    "\\u0072eflect('java.lang.System', 'exit') IS NULL",
    "\uff52eflect('java.lang.System', 'exit') IS NULL",
    "ref\u200blect('java.lang.System', 'exit') IS NULL",
    "/* /*+ */ reflect('java.lang.System', 'exit') IS NULL OR '*/ n = 1 -- ' = s",
    "repeat('x', 2147483647) = s",
    "repeat('x', n) = s",
    "repeat('x', (1000 * 1000000)) = s",
    "space(2147483647) = s",
    "lpad(s, 2147483647, 'x') = s",
    "array_repeat(n, 2147483647) IS NULL",
    "size(sequence(0, 1000000000)) > 1",
    "format_string('%2147483647d', n) = s",
    "*",
    "s.*",
]


@pytest.mark.parametrize("where", BYPASSES)
def test_no_code_by_a_condition(spark: SparkSession, where: str) -> None:
    assert set_refusal(where)
    assert parse_refusal(spark, where)


NAMESPACE, TOPIC = "n = 1", "s = 'public'"
ROWS = [(1, "secret"), (1, "public"), (2, "public")]


@pytest.mark.parametrize("comment", ["", " -- x", " --", " /* x */", " -- C:\\data", " -- '", " -- \\\r", " -- x\n\n"])
def test_the_conditions_of_a_namespace_and_its_topic_both_hold(spark: SparkSession, comment: str) -> None:
    for namespace, topic in ((NAMESPACE + comment, TOPIC), (NAMESPACE, TOPIC + comment)):
        assert set_refusal(namespace) == set_refusal(topic) == ""
        where = in_force(RouteParts(where=namespace), RouteParts(where=topic)).where
        assert parse_refusal(spark, where) == ""
        assert spark.createDataFrame(ROWS, "n int, s string").where(F.expr(where)).collect() == [(1, "public")]


def test_a_comment_takes_no_condition_with_it(spark: SparkSession) -> None:
    """For Spark, a backslash before a line break continues a comment. Such conditions may be stored."""
    namespace = f"{NAMESPACE} -- C:\\data\\"
    where = in_force(RouteParts(where=namespace), RouteParts(where=TOPIC)).where
    assert spark.createDataFrame(ROWS, "n int, s string").where(F.expr(where)).count() == 2
    for text in (where, f"{NAMESPACE} --\\\n AND {TOPIC}"):
        assert "has a backslash before a line break" in parse_refusal(spark, text)
        assert "has a backslash before a line break" in set_refusal(text)
    assert "has a backslash before a line break" in set_refusal(namespace)


@pytest.mark.parametrize("where", [*GROWING, *(where for refused in ARGUMENTS.values() for where in refused)])
def test_no_memory_and_no_class_by_a_condition(spark: SparkSession, where: str) -> None:
    """Before the analysis, which evaluates schemas and options."""
    assert parse_refusal(spark, where)
    assert re.split(" for a | that ", parse_refusal(spark, where))[0].removeprefix("it ") in set_refusal(where)


@pytest.mark.parametrize("name", ["maxColumns", "maxCharsPerColumn", "inputBufferSize", "compression"])
def test_options_are_those_of_the_list(spark: SparkSession, name: str) -> None:
    for function in OPTIONS:
        arguments = ", ".join(["'x int'"] * OPTIONS[function])
        assert parse_refusal(spark, f"{function}({arguments}, map('mode', 'PERMISSIVE')) IS NULL") == ""
        where = f"{function}({arguments}, map('mode', 'PERMISSIVE', '{name}', '1000000000')) IS NULL"
        assert f"calls {function} with the option {name}, which a condition may not set" in parse_refusal(spark, where)


def test_what_runs_at_the_analysis_is_refused_before_it(spark: SparkSession) -> None:
    """Spark loads the class that reflect names while it analyses."""
    with pytest.raises(NotAllowed, match="it calls reflect, which is not a function that a condition may call: docs"):
        check_parsed(spark, "reflect('not.there.Class', 'method') IS NULL")


@pytest.mark.parametrize("word", ["current_user", "user", "session_user"])
def test_the_user_of_the_session_without_parentheses(spark: SparkSession, word: str) -> None:
    """It may be the name of a column, which is known after the analysis only."""
    assert "may not have" in refusal(spark, f"{word} = s")


def test_another_function_than_the_one_of_spark_is_refused_by_its_class(spark: SparkSession) -> None:
    own = F.udf(lambda text: text, "string", useArrow=False)
    query: Any = spark.createDataFrame([], COLUMNS).where(own(F.col("s")) == "x")._jdf
    with pytest.raises(NotAllowed, match="PythonUDF, which a condition may not have"):
        check_analysed(spark, query.queryExecution().analyzed().condition(), frozenset({"soundex"}))


def test_a_variable_of_the_session_is_refused(spark: SparkSession) -> None:
    spark.sql("DECLARE OR REPLACE VARIABLE secret STRING DEFAULT 'x'")
    try:
        assert "VariableReference" in refusal(spark, "secret = s")
    finally:
        spark.sql("DROP TEMPORARY VARIABLE secret")


REFUSED = ("reflect", "java_method", "version", "uuid", "count", "explode", "no_such_function", "system.builtin.abs")
SHAPES = (
    "abs({0})",
    "coalesce({0}, {1})",
    "CASE WHEN {0} = 1 THEN {1} ELSE 2 END",
    "array({0}, {1})[0]",
    "aggregate(array({0}), 0, (acc, x) -> {1})",
    "CAST({0} AS INT)",
    "({0} + {1})",
    "if({0} > {1}, 1, {0})",
    "element_at(map('a', {0}), 'a')",
    "/* ( */ {0}",
)
expressions = st.recursive(
    st.sampled_from([("n", False), ("1", False), *((f"{name}(n)", True) for name in REFUSED)]),
    lambda inner: st.builds(
        lambda shape, a, b: (shape.format(a[0], b[0]), a[1] or ("{1}" in shape and b[1])),
        st.sampled_from(SHAPES),
        inner,
        inner,
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@given(expression=expressions)
def test_a_condition_is_refused_exactly_if_a_refused_function_is_in_it(
    spark: SparkSession, expression: tuple[str, bool]
) -> None:
    where, has_refused = f"{expression[0]} = 1", expression[1]
    assert bool(set_refusal(where)) is has_refused
    assert bool(parse_refusal(spark, where)) is has_refused


TEXTS = ("x", '"', "\\", "\x01", "'", "%", "é", "ΐ", "1,", "a b. ")
TEXT_SHAPES = (
    "upper({})",
    "quote({})",
    "hex({})",
    "base64(encode({}, 'UTF-8'))",
    "url_encode({})",
    "decode(encode({}, 'UTF-32'), 'ISO-8859-1')",
    "to_char(CAST({} AS BINARY), 'hex')",
    "to_json(struct({}))",
    "to_json(split({}, ''))",
    "to_csv(struct({}))",
    "to_csv(struct(split({}, '')))",
    "CAST(split({}, '') AS STRING)",
    "CAST(sentences({}) AS STRING)",
    "concat('[', regexp_replace(regexp_replace({}, '[^0-9]', ''), '', ','), '1]')",
    "to_json(from_json({}, 'array<timestamp>'), map('timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS'))",
    "CAST(from_json({}, 'array<decimal(38, 37)>') AS STRING)",
    "CAST(try_variant_get(try_parse_json({}), '$', 'array<timestamp>') AS STRING)",
    "mask({}, 'é', 'é', 'é', 'é')",
    "replace({}, 'x', 'xxx')",
    "regexp_replace({}, '', 'xx')",
    "array_join(split({}, ''), 'xx')",
    "concat_ws('xx', split({}, ''), 'x')",
    "concat({0}, {0})",
    "repeat({}, 3)",
    "lpad({}, 1000, 'é')",
    "CASE WHEN {0} = 'x' THEN 'y' ELSE {0} END",
    "element_at(map('a', {}), 'a')",
    "array_insert(array({}), 2, 'x')[0]",
)
nested = st.recursive(
    st.just("s"), lambda inner: st.builds(lambda shape, text: shape.format(text), st.sampled_from(TEXT_SHAPES), inner)
)
"""Texts made of texts: what a function does to the result of another one counts, so these are nested."""


@settings(max_examples=60)
@given(expression=nested)
def test_no_value_grows_beyond_what_the_documentation_says(spark: SparkSession, expression: str) -> None:
    """The factor is for signs that upper case, or a mask, makes longer once."""
    if set_refusal(f"{expression} = 'x'"):
        assert parse_refusal(spark, f"{expression} = 'x'")
        return
    texts = [(one * (MESSAGE_SIZE_MIN // len(one.encode())),) for one in TEXTS]
    sizes = F.max(F.octet_length(F.expr(expression)))
    (largest,) = spark.createDataFrame(texts, "s string").agg(sizes).first() or (None,)
    assert (largest or 0) <= 4 * GROWTH_MAX * MESSAGE_SIZE_MIN

"""The split: the first rule that holds, nulls, unreadable rows, and rules that are wrong."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import magnetar.spark
from magnetar.spark.errors import InvalidOption
from magnetar.spark.routing.split import RULES_MAX


@pytest.fixture
def orders(spark: SparkSession) -> DataFrame:
    rows: list[tuple[Any, ...]] = [
        (1, 5.0, "ann", None),
        (2, -5.0, "bob", None),
        (3, -5.0, None, None),
        (4, 5.0, None, None),
        (5, None, "eve", None),
        (6, -5.0, None, "not json"),
    ]
    return spark.createDataFrame(rows, "id int, amount double, name string, __error string")


def reasons(bad: DataFrame) -> dict[int, tuple[str, str]]:
    return {row.id: (row["__reason"], row["__description"]) for row in bad.collect()}


def test_sp2_the_first_rule_that_holds_is_the_reason(orders: DataFrame) -> None:
    good, bad = magnetar.spark.split(
        orders, {"NotPositive": "amount  <= 0", "Nameless": F.col("name").isNull()}, unreadable="Garbled"
    )
    assert {row.id for row in good.collect()} == {1, 5}, "a condition that is null does not hold"
    assert reasons(bad) == {
        2: ("NotPositive", "rule NotPositive: amount <= 0"),
        3: ("NotPositive", "rule NotPositive: amount <= 0"),
        4: ("Nameless", "rule Nameless: isNull(name)"),
        6: ("Garbled", "not json"),
    }
    assert good.columns == orders.columns
    assert bad.columns == ["__reason", "__description", *orders.columns]


def test_sp2_a_split_of_good_rows(orders: DataFrame) -> None:
    good, _ = magnetar.spark.split(orders.drop("__error"), {"NotPositive": "amount <= 0"})
    good, bad = magnetar.spark.split(good, {"Nameless": "name is null"})
    assert {row.id for row in good.collect()} == {1, 5}
    assert set(reasons(bad)) == {4}


def test_sp8_unreadable_rows_need_no_rule(orders: DataFrame) -> None:
    good, bad = magnetar.spark.split(orders, {})
    assert good.count() == 5
    assert reasons(bad) == {6: ("Unreadable", "not json")}


def test_sp2_names_of_columns_may_have_dots_and_backticks(spark: SparkSession) -> None:
    odd = spark.createDataFrame([(1, 2)], "`a.b` int, `c``d` int")
    good, bad = magnetar.spark.split(odd, {"Two": "`a.b` = 2"})
    assert good.collect()[0].asDict() == {"a.b": 1, "c`d": 2}
    assert bad.count() == 0


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"Wrong": "amount <="}, r"rule Wrong is not a condition in SQL: .*[Ss]yntax error"),
        ({"Wrong": "amuont <= 0"}, r"rule Wrong: .*amuont.*"),
        ({"Wrong": "amount"}, "rule Wrong is double: it must be a condition, which is true or false"),
        ({"Wrong": "sum(amount) > 1"}, "rule Wrong: "),
        ({"Wrong": " "}, "rule Wrong is ' ': it must be a condition in SQL, or a column"),
        ({"Wrong": 1}, "rule Wrong is '1': it must be a condition"),
        ({"Wrong": "true or " * 2000 + "true"}, "rule Wrong has 16004 characters, more than 10000"),
        ({"": "true"}, "reason '' is not a text of 1 to 100 characters"),
        ({"x" * 101: "true"}, "is not a text of 1 to 100 characters"),
        ({"Unreadable": "true"}, "rule Unreadable has the reason of rows that could not be read"),
        ({f"Rule{n}": "true" for n in range(RULES_MAX + 1)}, "101 rules exceed the limit of 100"),
    ],
)
def test_sp2_wrong_rules_are_refused(orders: DataFrame, rules: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        magnetar.spark.split(orders, rules)


def test_sp2_wrong_frames_are_refused(spark: SparkSession, orders: DataFrame) -> None:
    twice = orders.select("id", "amount", F.lit(1).alias("ID"))
    for frame, text in (
        (twice, "column id occurs 2 times"),
        (orders.withColumn("__reason", F.lit("x")), "column __reason exists already"),
        ("orders", "'orders' is not a DataFrame"),
    ):
        with pytest.raises(InvalidOption, match=text):
            magnetar.spark.split(frame, {"Bad": "amount > 0"})  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="no rules: name at least one"):
        magnetar.spark.split(orders.drop("__error"), {})

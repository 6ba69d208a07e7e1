"""The text of a query: its columns, a missing FROM, and what is no query."""

from __future__ import annotations

import pytest

from magnetar.cli.deadletters.query import QUERY_MAX, condition_columns, parse_query
from magnetar.errors import InvalidSetting
from magnetar.spark.dead_letters.letter_session import sentence_of

KNOWN = ["reason", "count", "payload", "key", "__key"]


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("select reason, count(*) from letters group by reason", ["reason"]),
        ("select REASON from letters l where l.payload.amount > 1", ["reason", "payload"]),
        ("with a as (select `key` k from letters) select k from a", ["key"]),
        ("select 1 from letters", []),
        ("select * from letters", KNOWN),
        ("select letters.* from letters", KNOWN),
        ("select * except (reason) from letters", KNOWN),
        ("describe letters", []),
        ("select reason from letters lateral view explode(???", KNOWN),
    ],
)
def test_sp4_only_the_columns_of_a_query_are_built(text: str, columns: list[str]) -> None:
    parsed = parse_query(text, KNOWN)
    assert (parsed.text, list(parsed.columns)) == (text, columns)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("select reason, count(*) group by reason;", "SELECT reason, COUNT(*) FROM letters GROUP BY reason"),
        ("select count(*) where reason = 'Expired'", "SELECT COUNT(*) FROM letters WHERE reason = 'Expired'"),
    ],
)
def test_sp4_a_query_without_from_reads_letters(text: str, full: str) -> None:
    assert parse_query(text, KNOWN).text == full


@pytest.mark.parametrize("text", ["drop table letters", "insert into x select 1", "create view v as select 1"])
def test_sp4_what_is_no_query_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="is no query"):
        parse_query(text, KNOWN)


def test_sp4_a_query_has_a_size() -> None:
    with pytest.raises(InvalidSetting, match="the query is empty"):
        parse_query(" ; ", KNOWN)
    with pytest.raises(InvalidSetting, match=f"exceeds {QUERY_MAX}"):
        parse_query("select " + "1," * QUERY_MAX + "1", KNOWN)


def test_sp4_columns_of_a_condition() -> None:
    assert condition_columns("payload.amount > 3 and Reason like '%x%'", KNOWN) == {"payload", "reason"}
    assert condition_columns("reason = = (", KNOWN) == set(KNOWN)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `a` cannot be resolved. Did you mean `b`?"
            " SQLSTATE: 42703; line 1 pos 7;\n'Project ['a]\n+- Relation",
            "A column with name `a` cannot be resolved. Did you mean `b`? (line 1, position 8)",
        ),
        (
            "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 1, pos 18)\n\n== SQL ==\n",
            "syntax error at or near 'x' (line 1, position 19)",
        ),
        (
            "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL (line 1, position 8) ==\nselect 1/0\n",
            "division by zero (line 1, position 8)",
        ),
        ("something else", "something else"),
    ],
)
def test_sp4_errors_of_spark_are_one_sentence(text: str, sentence: str) -> None:
    assert sentence_of(text) == sentence

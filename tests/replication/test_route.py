"""Checks of a route policy when it is set."""

from __future__ import annotations

import pytest

from magnetar.errors import InvalidName, InvalidSetting
from magnetar.replication.model import Mask, MaskKind, RoutePolicy
from magnetar.replication.route import applied_changes, check_policy, check_rename, check_where


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
    ],
)
def test_sp6_conditions(where: str) -> None:
    check_where(where)


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("  ", "is empty"),
        ("-- nothing", "is only a comment"),
        ("price > 1; DROP TABLE t", "has a ; at 9"),
        ("id IN (SELECT id FROM t)", "has a subquery at 7"),
        ("exists(select 1)", "has a subquery at 7"),
        ("(price > 1", "has an unclosed ( at 0"),
        ("price > 1) OR (true", "has an unmatched ) at 9"),
        ("items[0) = 1", "has an unmatched ) at 7"),
        ("name = 'x", "has an unclosed ' at 7"),
        ("x" * 20_000, "20000 characters, more than 10000"),
    ],
)
def test_an_invalid_condition_is_rejected(where: str, reason: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        check_policy(RoutePolicy(where=where))
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("masks", "reason"),
    [
        ([Mask("")], "empty name in the path"),
        ([Mask("a..b")], "empty name in the path"),
        ([Mask("a,b")], "comma in the path"),
        ([Mask("a", MaskKind.HASH, text="x")], "text is only for kind fixed, not hash"),
        ([Mask("a"), Mask("a", MaskKind.NULL)], "two masks of field 'a'"),
        ([Mask("a"), Mask("a.b")], "the first already hides the second"),
        ([Mask(f"f{number}") for number in range(101)], "101 masks exceed the limit of 100"),
        ([Mask("x" * 2000)], "2000 characters, more than 1000"),
    ],
)
def test_an_invalid_mask_is_rejected(masks: list[Mask], reason: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        check_policy(RoutePolicy(masks=tuple(masks)))
    assert reason in str(refused.value)


def test_a_rename_is_checked_too() -> None:
    check_policy(RoutePolicy(rename="archive"))
    with pytest.raises(InvalidName, match=r"no \{topic\}"):
        check_rename("archive", of_namespace=True)


def test_changed_messages_name_the_changes() -> None:
    masks = (Mask("email"), Mask("address.street", MaskKind.NULL))
    assert (
        applied_changes(RoutePolicy(where="a > 1", masks=masks, rename="x"))
        == "where,mask:email,mask:address.street,rename"
    )
    assert applied_changes(RoutePolicy(masks=(Mask("email"),))) == "mask:email"
    assert applied_changes(RoutePolicy()) == ""

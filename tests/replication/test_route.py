"""Checks of a route policy when it is set."""

from __future__ import annotations

import pytest

from magnetar.errors import InvalidName, InvalidSetting
from magnetar.replication.model import Mask, MaskKind, RoutePolicy
from magnetar.replication.route import applied_changes, check_policy, check_rename


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

"""Parts of route policies: what a change keeps, and what a topic inherits."""

from __future__ import annotations

import msgspec
import pytest

from magnetar.errors import InvalidSetting
from magnetar.replication.model import Mask, MaskKind, Refusal, RoutePolicy
from magnetar.replication.route_parts import NOTHING, RouteChange, RouteParts, changed, in_force, kept_by

EMAIL, PHONE = Mask("email"), Mask("phone", MaskKind.NULL)


def test_a_topic_inherits_each_part() -> None:
    namespace = RouteParts(
        where="n > 1", masks=(EMAIL,), rename="x-{topic}", refused=Refusal.PARK, dead_letters=True, paused=True
    )
    everything = RoutePolicy("n > 1", (EMAIL,), "x-{topic}", Refusal.PARK, dead_letters=True, paused=True)
    assert in_force(namespace) == in_force(namespace, NOTHING) == everything
    own = RouteParts(rename="{topic}", refused=Refusal.STOP, dead_letters=False, paused=False)
    assert in_force(namespace, own) == RoutePolicy("n > 1", (EMAIL,), "{topic}")
    assert in_force(NOTHING) == RoutePolicy()


def test_masks_are_united_and_conditions_conjoined() -> None:
    namespace = RouteParts(where="a = 1 -- a note", masks=(EMAIL,))
    policy = in_force(namespace, RouteParts(where="b = 2", masks=(PHONE,)))
    assert policy.masks == (EMAIL, PHONE)
    assert policy.where == "(a = 1 -- a note\n) AND (b = 2\n)"
    assert in_force(namespace, RouteParts(where=namespace.where)).where == namespace.where


@pytest.mark.parametrize(
    ("inherited", "own", "expected"),
    [
        ([EMAIL], [Mask("email", MaskKind.NULL)], [Mask("email", MaskKind.NULL)]),
        ([Mask("address")], [Mask("address.street")], [Mask("address")]),
        ([Mask("address.street")], [Mask("address")], [Mask("address")]),
        ([Mask("address.street")], [Mask("address2")], [Mask("address.street"), Mask("address2")]),
    ],
)
def test_overlapping_masks(inherited: list[Mask], own: list[Mask], expected: list[Mask]) -> None:
    policy = in_force(RouteParts(masks=tuple(inherited)), RouteParts(masks=tuple(own)))
    assert list(policy.masks) == expected


def test_a_topic_lifts_what_its_namespace_has_by_a_word_for_it() -> None:
    namespace = RouteParts(where="n > 1", masks=(EMAIL, PHONE))
    own = changed(NOTHING, RouteChange(remove_masks=("email",), remove_where=True), namespace)
    assert own == RouteParts(unmasked=("email",), unfiltered=True)
    assert in_force(namespace, own) == RoutePolicy(masks=(PHONE,))
    own = changed(own, RouteChange(masks=(EMAIL,), where="m > 1"), namespace)
    assert in_force(namespace, own) == RoutePolicy(where="m > 1", masks=(EMAIL, PHONE))
    assert own.unmasked == (), "a new mask ends it"


def test_a_lift_lasts_as_long_as_its_namespace_has_what_it_lifts() -> None:
    own = RouteParts(unmasked=("email", "phone"), unfiltered=True, paused=False, refused=Refusal.PARK)
    namespace = RouteParts(where="n > 1", masks=(EMAIL,), paused=True)
    assert kept_by(namespace, own) == RouteParts(
        unmasked=("email",), unfiltered=True, paused=False, refused=Refusal.PARK
    )
    assert kept_by(NOTHING, own) == RouteParts(refused=Refusal.PARK)
    assert kept_by(NOTHING, RouteParts(paused=True)).paused


def test_a_mask_is_replaced_in_one_step() -> None:
    own = RouteParts(masks=(Mask("address.street"), EMAIL))
    change = RouteChange(masks=(Mask("address"),), remove_masks=("address.street",))
    assert changed(own, change).masks == (EMAIL, Mask("address"))
    with pytest.raises(InvalidSetting, match=r"'zip' cannot be removed: masked are address\.street, email"):
        changed(own, RouteChange(remove_masks=("zip",)))


def test_a_change_is_sent_without_the_parts_that_it_does_not_name() -> None:
    """So that a command works with a broker that does not know a newer part."""
    assert msgspec.to_builtins(RouteChange(paused=False, rename=None)) == {"paused": False, "rename": None}

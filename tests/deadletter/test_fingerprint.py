"""SP2, SP4: failures of the same cause have the same fingerprint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.deadletter.fingerprint import SIZE, exception_in, fingerprint, shape_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 has no amount", "order 4711 has no amount"),
        ("no customer 'ann'", "no customer 'bob'"),
        ('no customer "ann"', 'no customer "bob and others"'),
        ("timeout after 1.5 s at 12:30:01", "timeout after 20 s at 09:00:59"),
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 00000000-0000-0000-0000-000000000000"),
        ("object at 0x7f00aa", "object at 0x1"),
        ("commit deadbeef01 failed", "commit 12345678ab failed"),
    ],
)
def test_sp4_values_do_not_matter(one: str, other: str) -> None:
    assert fingerprint("E", one) == fingerprint("E", other)


def test_sp4_causes_matter() -> None:
    causes = {
        fingerprint("ValueError", "no amount"),
        fingerprint("KeyError", "no amount"),
        fingerprint("ValueError", "no customer"),
        fingerprint("ValueError", "no amount", ["shop:charge"]),
        fingerprint("ValueError", "no amount", ["shop:refund"]),
    }
    assert len(causes) == 5


@pytest.mark.parametrize(
    ("text", "exception"),
    [
        ("ValueError: no amount", "ValueError"),
        ("ValueError('no amount')", "ValueError"),
        ("java.lang.IllegalStateException: no", "java.lang.IllegalStateException"),
        ("shop.errors.NoSuchCustomerError: ann", "shop.errors.NoSuchCustomerError"),
        ("std::bad: no", ""),
        ("no such customer", ""),
        ("", ""),
    ],
)
def test_sp4_the_exception_of_a_text(text: str, exception: str) -> None:
    assert exception_in(text) == exception


@given(st.text(max_size=3000), st.text(max_size=300), st.lists(st.text(max_size=20), max_size=8))
def test_any_text_has_a_fingerprint(text: str, exception: str, frames: list[str]) -> None:
    assert len(fingerprint(exception, text, frames)) == SIZE
    assert shape_of(shape_of(text)) == shape_of(shape_of(shape_of(text)))

"""Every caller asks both brokers everything, and Apache Pulsar's answers are those of answers.txt.

What one broker allows and the other refuses is in differences.toml, or a bug.
"""

from __future__ import annotations

from collections.abc import Iterator

import answers
import pytest
from cast import CALLERS, Caller
from expected import Expected, differences, read
from questions import REQUESTS
from sides import Side


@pytest.fixture(scope="module")
def known() -> Iterator[list[Expected]]:
    yield read()


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
def test_apache_pulsar_answers_as_recorded(theirs: Side, caller: Caller) -> None:
    (found,) = answers.asked(theirs.answer, [caller]).values()
    assert found == answers.read()[caller.name], "run compat/access/record"


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
def test_our_broker_gives_a_caller_the_rights_that_apache_pulsar_does(
    ours: Side, caller: Caller, known: list[Expected]
) -> None:
    (found,) = answers.asked(ours.answer, [caller]).values()
    recorded = answers.read()[caller.name]
    assert differences(caller, recorded, found, known) == []


def test_every_known_difference_occurs(known: list[Expected]) -> None:
    assert [entry.reason for entry in known if not entry.seen] == [], "no longer differ: remove them"


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
def test_our_broker_refuses_a_stranger_with_401_and_a_missing_right_with_403(ours: Side, caller: Caller) -> None:
    statuses = {request.name: ours.status(caller, request) for request in REQUESTS}
    expected = 403 if caller.name != "forged token" else 401
    assert {name: status for name, status in statuses.items() if status in (401, 403) and status != expected} == {}

"""What is not acknowledged, by the REST of a Magnetar broker and of Apache Pulsar, from recorded replies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from magnetar.client.errors import InvalidArgument, NotFound, ServerFailure
from magnetar.spark.dead_letters.cursor_admin import CursorAdmin
from tests.cli.conftest import Recorder

NAME = "persistent://acme/shop/a%2Fb-DLQ-partition-1"
PATH = "/admin/v2/persistent/acme/shop/a%252Fb-DLQ-partition-1"


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.close()


@pytest.fixture
def admin(recorder: Recorder) -> Iterator[CursorAdmin]:
    with CursorAdmin(recorder.url) as admin:
        yield admin


def waiting(admin: CursorAdmin, ledger: int, subscription: str = "*") -> list[int]:
    entries = np.arange(12)
    mask = admin.unacknowledged(NAME, subscription).mask(entries, np.full(12, -1), ledger)
    return np.flatnonzero(mask).tolist()


def test_sp4_pages_of_a_magnetar_broker(recorder: Recorder, admin: CursorAdmin) -> None:
    pages = [{"ledgerId": 5, "positions": "1,3-4", "next": 4}, {"ledgerId": 5, "positions": "7.0-2", "next": None}]
    recorder.will_answer_in_turn("GET", f"{PATH}/unacknowledged", *pages)
    assert waiting(admin, 5) == [1, 3, 4, 7]
    assert [request.query for request in recorder.requests] == [
        {"subscription": "*"},
        {"subscription": "*", "after": "4"},
    ]


def test_sp4_a_page_that_repeats_is_an_error(recorder: Recorder) -> None:
    recorder.will_answer("GET", f"{PATH}/unacknowledged", {"ledgerId": 5, "positions": "1", "next": 4})
    with (
        CursorAdmin(recorder.url, timeout_s=0.1) as admin,
        pytest.raises(ServerFailure, match="the page after 4 repeats"),
    ):
        admin.unacknowledged(NAME)


def test_sp4_cursors_of_apache_pulsar(recorder: Recorder, admin: CursorAdmin) -> None:
    recorder.will_answer("GET", f"{PATH}/unacknowledged", {"reason": "HTTP 404 Not Found"}, 404)
    cursors = {
        "a": {"markDeletePosition": "9:3", "individuallyDeletedMessages": "[(9:5..9:7]]", "state": "Open"},
        "b": {"markDeletePosition": "9:1", "individuallyDeletedMessages": "[(9:2‥9:6], ]"},
        "pulsar.repl.east": {"markDeletePosition": "8:0", "individuallyDeletedMessages": "[]"},
        "reader": {"markDeletePosition": "8:0", "individuallyDeletedMessages": "[]"},
    }
    recorder.will_answer("GET", f"{PATH}/internalStats", {"cursors": cursors, "numberOfEntries": 10})
    durable = {name: {"isDurable": name != "reader", "msgBacklog": 1} for name in cursors}
    recorder.will_answer("GET", f"{PATH}/stats", {"subscriptions": durable})
    assert waiting(admin, 9) == [2, 4, 5, 7, 8, 9, 10, 11]
    assert waiting(admin, 9, "a") == [4, 5, 8, 9, 10, 11]
    assert (waiting(admin, 8), waiting(admin, 10)) == ([], list(range(12)))
    assert admin.durable_subscriptions(NAME) == ["a", "b"]
    with pytest.raises(NotFound, match="has no subscription 'c'"):
        admin.unacknowledged(NAME, "c")


def test_sp4_dead_letter_topics_of_apache_pulsar(recorder: Recorder, admin: CursorAdmin) -> None:
    recorder.will_answer("GET", "/admin/v2/namespaces/acme/shop/deadLetters", {"reason": "HTTP 405"}, 405)
    names = ["persistent://acme/shop/" + name for name in ("o", "o-s-DLQ-partition-0", "o-s-DLQ-partition-1", "a-DLQ")]
    recorder.will_answer("GET", "/admin/v2/persistent/acme/shop", names)
    found = admin.dead_letter_topics("acme/shop")
    assert found == ["persistent://acme/shop/a-DLQ", "persistent://acme/shop/o-s-DLQ"]
    recorder.will_answer("GET", "/admin/v2/persistent/acme/shop", {"reason": "Namespace does not exist"}, 404)
    with pytest.raises(NotFound, match="Namespace does not exist"):
        admin.dead_letter_topics("acme/shop")


def test_an_address_of_the_binary_protocol_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="does not start with http"):
        CursorAdmin("pulsar://localhost:6650")

"""Random requests over the route table: none returns 500, every rejection has a reason and changes nothing.

The broker is in memory, and the application is called without sockets.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from hypothesis import given, note, settings
from hypothesis import strategies as st

from magnetar.admin.routes import ROUTES
from tests.admin.driver import Admin
from tests.admin.random_requests import Maker, Request
from tests.admin.route_requests import catalog_of, check_response, kept, key, new_world, send, wants

REQUESTS_PER_WORLD = 12


def talk(admin: Admin, requests: Sequence[Request], say: Callable[[str], None]) -> Counter[int]:
    """Sends the requests one after the other, and checks their effects."""
    statuses: Counter[int] = Counter()

    async def send_all() -> None:
        before = kept(admin)
        for request in requests:
            say(str(request))
            answer = await send(admin, request.method, request.path, request.query, request.body)
            admin.commit()
            statuses[answer.status] += 1
            check_response(answer)
            after = kept(admin)
            assert answer.status < 400 or before == after, f"refused with {answer.status}, and yet something changed"
            before = after

    asyncio.run(send_all())
    admin.broker.invariants()
    assert catalog_of(admin) == catalog_of(Admin(admin.storage.crash())), "memory and disk differ"
    return statuses


@settings(max_examples=200, deadline=None)
@given(st.randoms(use_true_random=True))
def test_random_requests_cause_no_500_and_rejections_change_nothing(random: Random) -> None:
    """True randomness covers the table evenly and does not shrink; `use_true_random=False` does the reverse."""
    maker = Maker(random)
    talk(new_world(), [maker.any_request() for _ in range(REQUESTS_PER_WORLD)], note)


def test_the_requests_are_nearly_valid() -> None:
    """The test above is useful only if it knows the handlers' parameters, and often enough succeeds."""
    known = wants()
    assert known["PUT /admin/v2/tenants/{tenant}"].bodies
    assert known["DELETE /admin/v2/tenants/{tenant}"].parameters == ("force",)
    with_body = [route for route in ROUTES if route.method in ("PUT", "POST")]
    assert sum(bool(known[key(route)].bodies) for route in with_body) >= len(with_body) / 2
    maker, statuses = Maker(Random(1)), Counter[int]()
    for _ in range(20):
        statuses += talk(new_world(), [maker.any_request() for _ in range(REQUESTS_PER_WORLD)], print)
    assert sum(count for status, count in statuses.items() if status < 300) > sum(statuses.values()) / 4, statuses
    assert {204, 400, 404, 412} <= {*statuses}

"""Route policies on disk, under their stored names."""

from __future__ import annotations

import msgspec

from magnetar.broker.replication.route_policies import decode_policy, encode_policy
from magnetar.replication.model import RoutePolicy


def test_a_route_policy_stored_under_the_first_names_is_read() -> None:
    stored = msgspec.msgpack.encode({"letters": True, "paused": True})
    policy = RoutePolicy(dead_letters=True, paused=True)
    assert decode_policy(stored) == policy
    assert decode_policy(encode_policy(policy)) == policy
    assert msgspec.msgpack.decode(encode_policy(policy)) == {"letters": True, "paused": True}

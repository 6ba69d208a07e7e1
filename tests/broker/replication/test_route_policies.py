"""Route policies on disk, under their stored names."""

from __future__ import annotations

import msgspec

from magnetar.broker.replication.route_policies import decode_parts, encode_parts
from magnetar.replication.route_parts import RouteParts


def test_a_route_policy_stored_under_the_first_names_is_read() -> None:
    stored = msgspec.msgpack.encode({"letters": True, "paused": True})
    policy = RouteParts(dead_letters=True, paused=True)
    assert decode_parts(stored) == policy
    assert decode_parts(encode_parts(policy)) == policy
    assert msgspec.msgpack.decode(encode_parts(policy)) == {"letters": True, "paused": True}

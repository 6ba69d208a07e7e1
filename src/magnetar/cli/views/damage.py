"""Replies about what cannot be read, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def shown_skip(skipped: Mapping[str, Any]) -> str:
    """A reply of `skipDamaged`, for one subscription of one topic."""
    if skipped["startedOver"]:
        return "starts over with the first message"
    count = skipped["entries"]
    if not count:
        return "nothing to skip"
    more = "; there is more: call it again" if skipped["isLeft"] else ""
    return f"skipped {count} {'entry' if count == 1 else 'entries'}, {skipped['first']} to {skipped['last']}{more}"

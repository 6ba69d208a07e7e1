"""File descriptors: how many the process may have, and how many of them are for connections.

RocksDB needs some at any time, and ends the broker if it gets none: clients may only have what is left. Knows nothing
of sockets.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from magnetar.bounds import DESCRIPTORS_KEPT

_PLENTY = 1 << 20  # where the operating system has no limit, or none that it tells
_ROOM_MIN = 32  # connections that are accepted, however small the limit
_HTTP_SHARE = 4  # one in so many


class Capacity(NamedTuple):
    """Connections that there is room for."""

    binary: int
    http: int


def limit() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return _PLENTY
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _PLENTY if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Raises the limit of this process as far as it may by itself."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _PLENTY if hard == resource.RLIM_INFINITY else min(hard, _PLENTY)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def capacity(descriptors: int, connections_max: int, http_max: int) -> Capacity:
    """`descriptors`, without those that storage needs, for the connections that the settings allow; 0 is any number."""
    free = max(descriptors - DESCRIPTORS_KEPT.limit, _ROOM_MIN)
    http = max(1, min(free // _HTTP_SHARE, http_max or free))
    binary = free - http
    return Capacity(min(binary, connections_max) if connections_max else binary, http)

"""Closes the cached clients of this process: workers keep theirs until they exit, tests must not."""

from __future__ import annotations

from magnetar.spark import clients


def close_inline_clients() -> None:
    while clients._inline:
        clients._inline.popitem()[1].close()

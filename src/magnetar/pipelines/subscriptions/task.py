"""The task of replicated subscriptions, which Spark's Python workers import (see `pipelines.worker_daemon`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from magnetar.pipelines.subscriptions.following import FollowResult, FollowTask


def follow(tasks: list[FollowTask], slice_s: float, rows: Iterable[object]) -> list[FollowResult]:
    from magnetar.pipelines.subscriptions.follow import follow_all  # the driver does not need it

    list(rows)
    return follow_all(tasks, slice_s)

"""What runs in Spark's Python workers, by reference: a worker on another machine imports it from what was shipped.

Each function takes the rows of its partition to their end, although there is nothing in them: Spark ends a worker that
leaves some, and with it go its connections. Imports what does the work when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from magnetar.pipelines.copy.assignment import Assignment, Outcome

if TYPE_CHECKING:
    from magnetar.pipelines.subscriptions.following import FollowResult, FollowTask


def copy(assignments: list[Assignment], slice_s: float, linger_s: float, rows: Iterable[object]) -> list[Outcome]:
    from magnetar.pipelines.copy import copier as copying

    list(rows)
    return copying.copy(assignments, slice_s, linger_s)


def stay_warm(rows: Iterable[object]) -> list[object]:
    """Spark ends workers that have had nothing to do for a minute; the next ones would have to connect anew."""
    list(rows)
    return []


def follow(works: list[FollowTask], slice_s: float, rows: Iterable[object]) -> list[FollowResult]:
    from magnetar.pipelines.subscriptions import follow as subscriptions

    list(rows)
    return subscriptions.follow(works, slice_s)

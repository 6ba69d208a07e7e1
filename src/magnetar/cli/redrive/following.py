"""Follows a declared pipeline until its run is over, with a progress bar. An interrupt leaves it running."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from magnetar.cli.rest import Rest
from magnetar.errors import MagnetarError

_POLL_S = 0.5
_OVER = ("done", "failed", "cancelled", "paused")


class RunOver(MagnetarError):
    """The run ended in another way than it should."""


def follow(rest: Rest, path: tuple[str, ...], status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The last status; raises `RunOver` if the run failed."""
    from magnetar.cli.foreground import progress_display
    from magnetar.declared.model import Progress

    title = path[-1]
    display = progress_display(title)
    try:
        while status["state"] not in _OVER:
            progress = status["progress"]
            note = progress.get("note") if status["state"] == "running" else _waiting(status)
            display.show(
                Progress(progress.get("done", 0), progress.get("total"), progress.get("counts", {}), note or "running")
            )
            time.sleep(_POLL_S)
            status = rest.get(*path)
    except KeyboardInterrupt:
        display.close()
        where = "/".join(path[1:3])
        print(
            f"{title} goes on in the broker: `magnetar redrive show {title} --namespace {where}` shows its progress,"
            f" `magnetar redrive cancel {title} --namespace {where}` ends it",
            file=sys.stderr,
        )
        raise
    finally:
        display.close()
    if status["state"] == "failed":
        raise RunOver(f"{title} failed: {status['reason']}")
    return status


def _waiting(status: Mapping[str, Any]) -> str:
    return str(status["reason"] or status["state"])

"""Spark pipelines beside the brokers. The modules here are the engine, which knows no verb; each verb has a folder.

    service           starts Spark and runs the registered verbs
    verbs             the registered verbs: the only module that names them
    declared_sources  records that a broker declares, and where their reported state goes
    status_board      the reported state of every row; `heartbeats` sends it
    events            the one thread in which a verb decides
    jobs, lanes       Spark jobs, a few at a time
    clusters          the clients of one process, by cluster

Owns no data and keeps no state: progress is kept in subscriptions, so a process may be killed at any time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magnetar.pipelines.processing.api import process
    from magnetar.pipelines.processing.call.message import Message, Received

__all__ = ["Message", "Received", "process"]

_MODULES = {"Message": "call.message", "Received": "call.message", "process": "api"}


def __getattr__(name: str) -> Any:
    """For programs; lazy, so that a worker does not load what it does not need."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.processing.{_MODULES[name]}"), name)

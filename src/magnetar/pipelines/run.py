"""A run of a verb: what it works on, when to stop, and where its progress goes.

A command in the foreground and the pipelines process each give a verb their own context. Owns the words only; knows no
verb, and keeps no state: a run that is repeated continues from its subscription.
"""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import SparkSession

from magnetar.declared.model import Progress as Progress
from magnetar.errors import MagnetarError
from magnetar.replication.cluster import ClusterEndpoint


class RunFailed(MagnetarError):
    """The run cannot go on, and would fail in the same way again: the reason is shown with the record."""


class RunContext(Protocol):
    """The surroundings of one run. Used by the thread of the run, and by threads that it starts."""

    @property
    def spark(self) -> SparkSession:
        """A session of its own on the Spark of the process."""
        ...

    @property
    def endpoint(self) -> ClusterEndpoint:
        """The cluster to work on, with a token that is valid now: take it again for every new client."""
        ...

    def report(self, progress: Progress) -> None:
        """Replaces the last one. Cheap, and may be called from any thread as often as wanted."""
        ...

    @property
    def is_stopping(self) -> bool:
        """Paused, cancelled, or the process ends: the run returns soon, at a point from which the next continues."""
        ...

    def wait(self, seconds: float) -> bool:
        """Sleeps; returns True at once when the run is stopping."""
        ...

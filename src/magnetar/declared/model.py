"""The model of declared pipelines: records with a wanted state, reports of their runs, and the objects of REST calls.

A broker keeps records and shows reports, the pipelines process runs them, commands declare them. Knows no verb: see
`verbs` for their specs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from magnetar.access.principal import Author
from magnetar.replication.model import Process


class Wanted(StrEnum):
    """The state that an operator wants."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"


class RunState(StrEnum):
    """The reported state of a run."""

    WAITING = "waiting"  # for the pipelines process, for a place among the others, or for a broker that is away
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether the run ended for good, and frees what it was alone on."""
        return self in (RunState.DONE, RunState.FAILED, RunState.CANCELLED)


class Progress(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a run has done so far, in messages. `counts` are parts of it, by names of the verb."""

    done: int = 0
    total: int | None = None  # None: not known, or without an end
    counts: dict[str, int] = {}
    note: str = ""  # the present step


class RunHistoryItem(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A run that is over."""

    run: int
    state: RunState
    started_ms: int
    ended_ms: int
    reason: str = ""
    progress: Progress = Progress()


class PipelineRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A declared pipeline as the broker stores it. `id` is never used again, `run` counts the runs.

    A run lasts until it is done, fails or is cancelled: then `outcome` has it. A pause is no end of it.
    """

    id: int
    namespace: str
    name: str
    verb: str
    spec: dict[str, Any]
    wanted: Wanted
    declared_ms: int
    changed_ms: int  # of the wanted state
    run: int = 1
    started_ms: int = 0  # of the run
    author: Author | None = None  # None without authorization
    outcome: RunHistoryItem | None = None
    runs: tuple[RunHistoryItem, ...] = ()  # that are over, the oldest first
    failed_runs: int = 0  # since it was declared for the first time

    @property
    def full(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_over(self) -> bool:
        return self.outcome is not None


class PipelineRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The body that declares a pipeline. `paused`: nothing runs before it is resumed."""

    verb: str
    spec: dict[str, Any]
    paused: bool = False


class DeclaredPipeline(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A record whose run is not over, for the pipelines process."""

    id: int
    run: int
    namespace: str
    name: str
    verb: str
    spec: dict[str, Any]
    wanted: Wanted

    @property
    def full(self) -> str:
        return f"{self.namespace}/{self.name}"


class PipelinesDeclaration(msgspec.Struct, frozen=True, rename="camel"):
    """All pipelines of a cluster whose runs are not over. `version` differs after every change."""

    version: str
    cluster: str
    pipelines: list[DeclaredPipeline]


class RunReport(msgspec.Struct, rename="camel", omit_defaults=True):
    """The state of one run in the pipelines process."""

    id: int
    run: int
    state: RunState
    reason: str = ""
    error: str = ""  # the last one, which may be over
    progress: Progress = Progress()
    rate: float = 0.0  # messages a second
    since_ms: int = 0  # when it entered this state
    error_ms: int = 0


class RunReports(msgspec.Struct, rename="camel"):
    """The heartbeat of a pipelines process: the runs that changed, or all."""

    pipeline: str  # an id for each start of the process
    is_all: bool
    rows: list[RunReport]


class PipelineStatus(msgspec.Struct, rename="camel"):
    """A record and the state of its last run, for people."""

    id: int
    namespace: str
    name: str
    verb: str
    spec: dict[str, Any]
    wanted: Wanted
    state: RunState
    reason: str
    process: Process
    run: int
    declared_ms: int
    declared_by: str
    started_ms: int
    since_ms: int
    progress: Progress
    rate: float
    updated_ms: int  # of the last report; 0 without one
    last_error: str = ""
    last_error_ms: int = 0
    failed_runs: int = 0

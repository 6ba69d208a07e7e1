"""Declared pipelines: records with the state that operators want, and the state that the pipelines process reports.

Owns the rules: a run ends once and is kept, no two redrives have a dead letter topic in common, and what was cancelled
ends without a pipelines process too. Runs nothing.

    wanted       run            what happens
    running      lasts          the process runs it, and starts it again when it was lost
    paused       lasts          the process ends it at a point from which it continues
    cancelled    lasts          the process ends it, and reports that it is cancelled
    any          over           nothing; a new run begins when it is resumed or declared again
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from magnetar.access.principal import Author
from magnetar.broker.pipelines.presence import ProcessPresence
from magnetar.broker.pipelines.run_reports import LiveRuns
from magnetar.broker.pipelines.stored import PipelineRecords
from magnetar.broker.pipelines.watchers import Watcher, Watchers
from magnetar.declared.model import (
    DeclaredPipeline,
    PipelineRecord,
    PipelinesDeclaration,
    PipelineStatus,
    Progress,
    RunHistoryItem,
    RunReport,
    RunReports,
    RunState,
    Wanted,
)
from magnetar.declared.topic_set import TopicSet
from magnetar.declared.verbs import checked_fields, spec_of, verb_named
from magnetar.errors import InvalidName, InvalidSetting, NamespaceNotFound, PipelineConflict, PipelineNotFound
from magnetar.names import check_entity
from magnetar.pipeline_bounds import PIPELINE_RUNS_KEPT, PIPELINES_OF_NAMESPACE
from magnetar.replication.model import Process

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker

_NAME_SHOWN = 500  # a request may name anything


class DeclaredPipelines:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.records = PipelineRecords(broker.storage, broker.commits, broker.damage)
        self._started_ms = broker.now_ms()
        self.presence = ProcessPresence(self._started_ms)
        self._runs = LiveRuns()
        self._count = 0
        self._watchers = Watchers(lambda watcher: broker.attempt("maintenance", "declaration of pipelines", watcher))

    # -- declaration

    @property
    def version(self) -> str:
        return f"{self._broker.life}-{self._started_ms:x}-{self._count}"

    def declaration(self) -> PipelinesDeclaration:
        active = [
            DeclaredPipeline(one.id, one.run, one.namespace, one.name, one.verb, one.spec, one.wanted)
            for one in self.records
            if not one.is_over
        ]
        return PipelinesDeclaration(self.version, self._broker.settings.clusterName, active)

    def is_expecting_runs(self) -> bool:
        """Whether a pipeline is to run."""
        return any(one.wanted is Wanted.RUNNING and not one.is_over for one in self.records)

    def watch(self, watcher: Watcher) -> bool:
        """See `Watchers`."""
        return self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.remove(watcher)

    def _changed(self) -> None:
        self._count += 1
        self._watchers.notify()

    # -- records

    def all(self, namespace: str | None = None) -> list[PipelineRecord]:
        return [one for one in self.records if namespace in (None, one.namespace)]

    def get(self, namespace: str, name: str) -> PipelineRecord:
        full = f"{namespace}/{name}"
        record = self.records.of(full)
        if record is not None:
            return record
        if self.records.is_damaged(full):
            raise PipelineNotFound(f"the record of pipeline {full} is damaged: declare it again, or delete it")
        raise PipelineNotFound(f"pipeline {full[:_NAME_SHOWN]} does not exist")

    def declare(
        self,
        namespace: str,
        name: str,
        verb: str,
        fields: dict[str, Any],
        author: Author | None = None,
        *,
        wanted: Wanted = Wanted.RUNNING,
    ) -> bool:
        """Begins a run; False if the same run lasts already."""
        check_entity("pipeline", name)
        if namespace not in self._broker.catalog.namespaces:
            raise NamespaceNotFound("Namespace does not exist")
        fields = checked_fields(verb, fields, namespace)
        before = self.records.of(f"{namespace}/{name}")
        if before is not None and not before.is_over:
            if (before.verb, before.spec) == (verb, fields):
                return False
            raise PipelineConflict(f"pipeline {before.full} {_lasting(before)} with another spec: cancel it first")
        if before is None and len(self.all(namespace)) >= PIPELINES_OF_NAMESPACE.limit:
            raise PipelineConflict(
                f"namespace {namespace} has {PIPELINES_OF_NAMESPACE.limit} pipelines already: delete some"
            )
        now_ms = self._broker.now_ms()
        record = PipelineRecord(
            id=self._broker.next_id(self._broker.commits.batch()) if before is None else before.id,
            namespace=namespace,
            name=name,
            verb=verb,
            spec=fields,
            wanted=wanted,
            declared_ms=now_ms,
            changed_ms=now_ms,
            author=author,
        )
        if before is not None:
            record = replace(record, run=before.run, runs=before.runs, failed_runs=before.failed_runs)
        self._begin(record, is_first=before is None)
        return True

    def _begin(self, record: PipelineRecord, *, is_first: bool = False) -> None:
        """A new run of a record. Raises `PipelineConflict`."""
        self._check_claims(record)
        run = record.run if is_first else record.run + 1
        self._keep(replace(record, run=run, started_ms=self._broker.now_ms(), outcome=None))

    def _check_claims(self, record: PipelineRecord) -> None:
        """Raises for a redrive of topics that another one works on."""
        claims = _claims(record)
        if not claims:
            return
        for other in self.records:
            if other.is_over or other.verb != record.verb or other.full == record.full:
                continue
            for claimed in _claims(other):
                common = next((one for one in claims if one.overlaps(claimed)), None)
                if common is not None:
                    text = f"{common}" if common == claimed else f"{common}, which may have topics of {claimed}"
                    raise PipelineConflict(f"{record.verb} {other.full} {_lasting(other)} on {text}: wait or cancel it")

    def pause(self, namespace: str, name: str) -> None:
        record = self._lasting_record(namespace, name)
        if record.wanted is Wanted.CANCELLED:
            raise PipelineConflict(f"pipeline {record.full} is being cancelled")
        self._want(record, Wanted.PAUSED)

    def resume(self, namespace: str, name: str) -> None:
        """Continues a paused run; after its end begins another one."""
        record = self.get(namespace, name)
        if record.is_over:
            now_ms = self._broker.now_ms()
            self._begin(replace(record, wanted=Wanted.RUNNING, changed_ms=now_ms))
        elif record.wanted is Wanted.CANCELLED:
            raise PipelineConflict(f"pipeline {record.full} is being cancelled")
        else:
            self._want(record, Wanted.RUNNING)

    def cancel(self, namespace: str, name: str) -> None:
        record = self._lasting_record(namespace, name)
        self._want(record, Wanted.CANCELLED)
        self._end_cancelled(self._broker.now_ms())

    def _lasting_record(self, namespace: str, name: str) -> PipelineRecord:
        record = self.get(namespace, name)
        if record.outcome is not None:
            raise PipelineConflict(f"pipeline {record.full} is over: run {record.run} is {record.outcome.state.value}")
        return record

    def _want(self, record: PipelineRecord, wanted: Wanted) -> None:
        if record.wanted is not wanted:
            self._keep(replace(record, wanted=wanted, changed_ms=self._broker.now_ms()))

    def delete(self, namespace: str, name: str, *, force: bool = False) -> None:
        """Only after the end of its run; by force at once, and the process stops it when it receives that."""
        full = f"{namespace}/{name}"
        if not self.records.is_damaged(full):
            record = self.get(namespace, name)
            if not record.is_over and not force:
                raise PipelineConflict(f"pipeline {full} {_lasting(record)}: cancel it first, or force")
            self._runs.forget((record.id, record.run))
        self.records.delete(full)
        self._changed()

    def lasting_in(self, namespace: str) -> PipelineRecord | None:
        """A pipeline of a namespace whose run is not over."""
        return next((one for one in self.all(namespace) if not one.is_over), None)

    def forget_namespace(self, namespace: str) -> None:
        """Deletes the records of a namespace that was deleted."""
        found = [*(one.full for one in self.all(namespace)), *self.records.damaged_in(namespace)]
        for full in found:
            self.records.delete(full)
        if found:
            self._changed()

    def _keep(self, record: PipelineRecord) -> None:
        self.records.put(record)
        self._changed()

    def authors(self, tenant: str) -> list[Author]:
        """Of pipelines that read or write topics of a tenant, and are not over."""
        lasting = (one for one in self.records if not one.is_over and one.author is not None)
        return [one.author for one in lasting if one.author is not None and tenant in _tenants(one)]

    # -- reports

    def receive(self, reports: RunReports) -> None:
        now_ms = self._broker.now_ms()
        self.presence.heartbeat(reports.pipeline, now_ms)
        active = {(one.id, one.run): one for one in self.records if not one.is_over}
        for report in self._runs.receive(reports, now_ms, active.__contains__):
            if report.state.is_over:
                self._end(active[report.id, report.run], report, now_ms)

    def _end(self, record: PipelineRecord, report: RunReport, now_ms: int) -> None:
        outcome = RunHistoryItem(
            record.run, report.state, record.started_ms, now_ms, report.reason or report.error, report.progress
        )
        kept = (*record.runs, outcome)[-PIPELINE_RUNS_KEPT.limit :]
        failed = record.failed_runs + (report.state is RunState.FAILED)
        self._keep(replace(record, outcome=outcome, runs=kept, failed_runs=failed))

    def _end_cancelled(self, now_ms: int) -> None:
        """Runs that no process works on any more."""
        for record in self.records:
            if record.is_over or record.wanted is not Wanted.CANCELLED:
                continue
            known = self._runs.of((record.id, record.run))
            if known is None or not self.presence.has_heartbeat(now_ms):
                progress = Progress() if known is None else known.report.progress
                report = RunReport(record.id, record.run, RunState.CANCELLED, progress=progress)
                self._end(record, report, now_ms)

    def update(self) -> None:
        """Called every minute, and when a process is gone."""
        self._end_cancelled(self._broker.now_ms())

    # -- the pipelines process

    def expect_process(self) -> None:
        """The broker is starting a pipelines process."""
        self.presence.expect_process(self._broker.now_ms())

    def no_process(self, reason: str, process: Process = Process.ABSENT) -> None:
        self.presence.no_process(reason, self._broker.now_ms(), process)
        self.update()

    def process_left(self, pipeline: str) -> None:
        self.presence.process_left(pipeline, self._broker.now_ms())
        self.update()

    # -- status

    def statuses(self, records: Iterable[PipelineRecord]) -> list[PipelineStatus]:
        return [self.status(record) for record in records]

    def status(self, record: PipelineRecord) -> PipelineStatus:
        now_ms = self._broker.now_ms()
        known = self._runs.of((record.id, record.run))
        state, reason, since_ms = self._state(record, now_ms)
        progress, rate = Progress(), 0.0
        if record.outcome is not None:
            progress = record.outcome.progress
        elif known is not None:
            progress = known.report.progress
            rate = known.report.rate if state is RunState.RUNNING else 0.0
        return PipelineStatus(
            id=record.id,
            namespace=record.namespace,
            name=record.name,
            verb=record.verb,
            spec=record.spec,
            wanted=record.wanted,
            state=state,
            reason=reason,
            process=self.presence.process(now_ms),
            run=record.run,
            declared_ms=record.declared_ms,
            declared_by="" if record.author is None else record.author.role,
            started_ms=record.started_ms,
            since_ms=since_ms,
            progress=progress,
            rate=rate,
            updated_ms=0 if known is None else known.updated_ms,
            last_error="" if known is None else known.report.error,
            last_error_ms=0 if known is None else known.report.error_ms,
            failed_runs=record.failed_runs,
        )

    def _state(self, record: PipelineRecord, now_ms: int) -> tuple[RunState, str, int]:
        outcome = record.outcome
        if outcome is not None:
            return outcome.state, outcome.reason, outcome.ended_ms
        known = self._runs.of((record.id, record.run))
        has_process = self.presence.has_heartbeat(now_ms)
        if known is not None and has_process:
            return known.report.state, known.report.reason, known.report.since_ms
        if record.wanted is Wanted.PAUSED:
            return RunState.PAUSED, "", record.changed_ms
        stopped = None if has_process else self.presence.why_stopped(now_ms)
        return RunState.WAITING, *(stopped or self.presence.why_unknown("this pipeline"))


def _lasting(record: PipelineRecord) -> str:
    return {Wanted.PAUSED: "is paused", Wanted.CANCELLED: "is being cancelled"}.get(record.wanted, "runs")


# A stored record may be of a version with another verb or spec: it claims nothing, and fails when it runs.


def _claims(record: PipelineRecord) -> tuple[TopicSet, ...]:
    try:
        return verb_named(record.verb).claims(spec_of(record.verb, record.spec), record.namespace)
    except (InvalidSetting, InvalidName):
        return ()


def _tenants(record: PipelineRecord) -> set[str]:
    try:
        return verb_named(record.verb).tenants(spec_of(record.verb, record.spec), record.namespace)
    except (InvalidSetting, InvalidName):
        return set()

"""Declared pipelines in the broker: records, runs, conflicts, reports, and their life on disk."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.access.principal import Author
from magnetar.broker import keys
from magnetar.broker.host import FaultKind, ManualHost
from magnetar.broker.pipelines.declared import DeclaredPipelines
from magnetar.broker.pipelines.presence import HEARTBEAT_MAX_MS
from magnetar.broker.pipelines.run_reports import TEXT_SIZE_MAX
from magnetar.broker.rates import RATES_EVERY_MS
from magnetar.declared.model import PipelineStatus, Progress, RunReport, RunReports, RunState, Wanted
from magnetar.errors import InvalidName, InvalidSetting, NamespaceNotFound, PipelineConflict, PipelineNotFound
from magnetar.pipeline_bounds import PIPELINE_COUNTS, PIPELINE_RUNS_KEPT, PIPELINES_OF_NAMESPACE
from magnetar.replication.model import Process
from tests.broker.world import START_MS, World

NAMESPACE = "public/default"
LETTERS = "persistent://public/default/t-s-DLQ"
FIX = {"sources": ["t-s-DLQ"]}


def declare(world: World, name: str = "fix", fields: dict[str, Any] = FIX, **options: Any) -> bool:
    begun = world.broker.pipelines.declare(NAMESPACE, name, "redrive", fields, **options)
    world.settle()
    return begun


def status(world: World, name: str = "fix") -> PipelineStatus:
    pipelines = world.broker.pipelines
    return pipelines.status(pipelines.get(NAMESPACE, name))


def report(
    world: World, state: RunState, name: str = "fix", *, process: str = "p1", is_all: bool = False, **values: Any
) -> None:
    record = world.broker.pipelines.get(NAMESPACE, name)
    world.broker.pipelines.receive(RunReports(process, is_all, [RunReport(record.id, record.run, state, **values)]))
    world.settle()


def pipelines(world: World) -> DeclaredPipelines:
    return world.broker.pipelines


# -- records


def test_sp3_a_record_survives_a_crash_and_is_declared_to_the_process() -> None:
    world = World()
    assert declare(world, author=Author("alice"))
    assert pipelines(world).is_expecting_runs()
    again = world.restart()
    (found,) = pipelines(again).declaration().pipelines
    assert (found.full, found.verb, found.spec) == ("public/default/fix", "redrive", {"sources": [LETTERS]})
    assert (found.run, found.wanted) == (1, Wanted.RUNNING)
    record = pipelines(again).get(NAMESPACE, "fix")
    assert (record.author, record.declared_ms) == (Author("alice"), START_MS)
    assert pipelines(again).version != pipelines(world).version


def test_sp3_the_same_declaration_again_begins_nothing() -> None:
    world = World()
    assert declare(world)
    version = pipelines(world).version
    assert not declare(world, fields={"sources": [LETTERS]})
    assert pipelines(world).version == version
    with pytest.raises(PipelineConflict, match="public/default/fix runs with another spec: cancel it first"):
        declare(world, fields={"sources": ["t-s-DLQ"], "rate": 5})


def test_an_id_is_never_used_again() -> None:
    world = World()
    declare(world)
    first = status(world).id
    pipelines(world).delete(NAMESPACE, "fix", force=True)
    world.settle()
    world = world.restart()
    declare(world)
    assert status(world).id > first


@pytest.mark.parametrize(
    ("namespace", "name", "verb", "fields", "error"),
    [
        ("public/none", "fix", "redrive", FIX, NamespaceNotFound),
        (NAMESPACE, "a b", "redrive", FIX, InvalidName),
        (NAMESPACE, "x" * 10_000, "redrive", FIX, InvalidName),
        (NAMESPACE, "fix", "copy", FIX, InvalidSetting),
        (NAMESPACE, "fix", "redrive", {"sources": [7]}, InvalidSetting),
        (NAMESPACE, "fix", "redrive", {"sources": ["x"], "rate": 1 << 70}, InvalidSetting),
    ],
)
def test_what_is_wrong_is_refused_and_leaves_nothing(
    namespace: str, name: str, verb: str, fields: dict[str, Any], error: type[Exception]
) -> None:
    world = World()
    with pytest.raises(error):
        pipelines(world).declare(namespace, name, verb, fields)
    assert pipelines(world).all() == []


def test_bound_pipelines_of_namespace() -> None:
    world = World()
    for number in range(PIPELINES_OF_NAMESPACE.limit):
        declare(world, f"p{number}", {"sources": [f"t{number}-s-DLQ"]})
    with pytest.raises(PipelineConflict, match=f"has {PIPELINES_OF_NAMESPACE.limit} pipelines already"):
        declare(world, "one-more")


def test_watchers_are_notified_of_every_change_and_one_that_fails_costs_the_others_nothing() -> None:
    faults: list[str] = []

    class Host(ManualHost):
        def fault(self, kind: FaultKind, error: Exception, where: str = "") -> None:
            faults.append(kind)

    world = World(host=Host())
    seen: list[str] = []

    def fail() -> None:
        raise RuntimeError("a bug")

    assert pipelines(world).watch(fail)
    assert pipelines(world).watch(lambda: seen.append(pipelines(world).version))
    declare(world)
    pipelines(world).pause(NAMESPACE, "fix")
    pipelines(world).pause(NAMESPACE, "fix")  # changes nothing
    assert len(set(seen)) == len(seen) == 2
    assert faults == ["maintenance"] * 2


# -- wanted state


def test_sp7_pause_and_resume_continue_the_same_run() -> None:
    world = World()
    declare(world)
    report(world, RunState.RUNNING, progress=Progress(5, 10))
    pipelines(world).pause(NAMESPACE, "fix")
    assert pipelines(world).declaration().pipelines[0].wanted is Wanted.PAUSED
    assert not pipelines(world).is_expecting_runs()
    report(world, RunState.PAUSED, progress=Progress(6, 10))
    assert (status(world).state, status(world).progress.done, status(world).rate) == (RunState.PAUSED, 6, 0.0)
    world = world.restart()
    assert status(world).state is RunState.PAUSED
    pipelines(world).resume(NAMESPACE, "fix")
    assert (pipelines(world).get(NAMESPACE, "fix").run, status(world).state) == (1, RunState.WAITING)


def test_sp7_a_pipeline_declared_as_paused_waits_for_its_resume() -> None:
    world = World()
    declare(world, wanted=Wanted.PAUSED)
    assert (status(world).state, pipelines(world).is_expecting_runs()) == (RunState.PAUSED, False)
    pipelines(world).resume(NAMESPACE, "fix")
    assert pipelines(world).is_expecting_runs()


def test_sp3_a_cancelled_run_ends_when_the_process_says_so() -> None:
    world = World()
    declare(world)
    report(world, RunState.RUNNING, progress=Progress(5, 10))
    pipelines(world).cancel(NAMESPACE, "fix")
    assert (status(world).state, status(world).wanted) == (RunState.RUNNING, Wanted.CANCELLED)
    for change in (pipelines(world).pause, pipelines(world).resume):
        with pytest.raises(PipelineConflict, match="is being cancelled"):
            change(NAMESPACE, "fix")
    report(world, RunState.CANCELLED, progress=Progress(6, 10))
    assert (status(world).state, status(world).progress) == (RunState.CANCELLED, Progress(6, 10))
    assert pipelines(world).declaration().pipelines == []
    for change in (pipelines(world).pause, pipelines(world).cancel):
        with pytest.raises(PipelineConflict, match="is over: run 1 is cancelled"):
            change(NAMESPACE, "fix")


def test_sp3_a_run_that_no_process_knows_is_cancelled_at_once() -> None:
    world = World()
    declare(world)
    pipelines(world).cancel(NAMESPACE, "fix")
    assert status(world).state is RunState.CANCELLED


def test_sp3_a_run_whose_process_is_lost_while_it_is_cancelled_ends_too() -> None:
    world = World()
    declare(world)
    report(world, RunState.RUNNING, progress=Progress(5, 10))
    pipelines(world).cancel(NAMESPACE, "fix")
    world.advance(seconds=HEARTBEAT_MAX_MS / 2000)
    assert status(world).state is RunState.RUNNING
    world.advance(seconds=(HEARTBEAT_MAX_MS + RATES_EVERY_MS) / 1000)
    assert (status(world).state, status(world).progress.done) == (RunState.CANCELLED, 5)


def test_sp3_a_run_whose_process_ends_while_it_is_cancelled_ends_with_it() -> None:
    world = World()
    declare(world)
    report(world, RunState.RUNNING)
    pipelines(world).cancel(NAMESPACE, "fix")
    pipelines(world).process_left("p1")
    assert status(world).state is RunState.CANCELLED


# -- conflicts


@pytest.mark.parametrize("source", ["t-s-DLQ", "t-s-DLQ-partition-2", NAMESPACE, "t-*-DLQ", f"{NAMESPACE}/*"])
def test_sp3_one_active_redrive_per_dead_letter_topic(source: str) -> None:
    world = World()
    declare(world)
    with pytest.raises(PipelineConflict, match=r"redrive public/default/fix runs on .*t-s-DLQ"):
        declare(world, "second", {"sources": ["other-DLQ", source]})
    assert [one.name for one in pipelines(world).all()] == ["fix"]
    pipelines(world).pause(NAMESPACE, "fix")
    with pytest.raises(PipelineConflict, match="fix is paused on"):
        declare(world, "second", {"sources": [source]})


@pytest.mark.parametrize("end", [RunState.DONE, RunState.FAILED, RunState.CANCELLED])
def test_sp3_the_end_of_a_run_frees_its_topics(end: RunState) -> None:
    world = World()
    declare(world)
    report(world, end)
    declare(world, "second")
    with pytest.raises(PipelineConflict, match="second runs on"):
        pipelines(world).resume(NAMESPACE, "fix")
    assert status(world).state is end, "and the first one is as it was"


def test_sp3_redrives_of_other_topics_run_beside_each_other() -> None:
    world = World()
    declare(world)
    declare(world, "second", {"sources": ["x-s-DLQ", "y-*-DLQ"]})
    declare(world, "third", {"sources": ["public/other"]})
    pipelines(world).declare(NAMESPACE, "archive", "archive", {"topics": [NAMESPACE], "path": "/data"})
    assert len(pipelines(world).declaration().pipelines) == 4


# -- runs


def test_sp3_a_finished_run_is_kept_and_another_one_counts_on() -> None:
    world = World()
    declare(world)
    report(world, RunState.DONE, progress=Progress(7, 7, {"quarantined": 1}))
    world = world.restart()
    (item,) = pipelines(world).get(NAMESPACE, "fix").runs
    assert (item.run, item.state, item.progress) == (1, RunState.DONE, Progress(7, 7, {"quarantined": 1}))
    assert status(world).progress.done == 7
    assert declare(world, fields={"sources": ["u-DLQ"]})
    assert (status(world).run, status(world).state, status(world).progress) == (2, RunState.WAITING, Progress())
    report(world, RunState.FAILED, reason="no such column")
    assert (status(world).reason, status(world).failed_runs) == ("no such column", 1)
    pipelines(world).resume(NAMESPACE, "fix")
    assert status(world).run == 3


def test_sp3_the_end_of_a_run_that_a_crash_loses_is_reported_again() -> None:
    world = World()
    declare(world)
    record = pipelines(world).get(NAMESPACE, "fix")
    done = RunReports("p1", True, [RunReport(record.id, record.run, RunState.DONE)])
    pipelines(world).receive(done)  # and nothing is committed
    assert status(world).state is RunState.DONE
    again = world.restart()
    assert pipelines(again).is_expecting_runs()
    pipelines(again).receive(done)
    again.settle()
    assert status(again.restart()).state is RunState.DONE


def test_bound_pipeline_runs_kept() -> None:
    world = World()
    declare(world)
    for _ in range(PIPELINE_RUNS_KEPT.limit + 2):
        report(world, RunState.DONE)
        pipelines(world).resume(NAMESPACE, "fix")
    runs = pipelines(world).get(NAMESPACE, "fix").runs
    assert [one.run for one in runs] == list(range(3, PIPELINE_RUNS_KEPT.limit + 3))


def test_a_report_on_an_earlier_run_or_another_record_changes_nothing() -> None:
    world = World()
    declare(world)
    record = pipelines(world).get(NAMESPACE, "fix")
    report(world, RunState.DONE)
    pipelines(world).resume(NAMESPACE, "fix")
    late = [RunReport(record.id, 1, RunState.FAILED), RunReport(record.id + 1, 2, RunState.FAILED)]
    pipelines(world).receive(RunReports("p1", False, late))
    assert (status(world).state, status(world).failed_runs) == (RunState.WAITING, 0)


def test_bound_pipeline_counts() -> None:
    world = World()
    declare(world)
    counts = {f"c{number}": number for number in range(PIPELINE_COUNTS.limit + 5)}
    progress = Progress(1, None, counts, "x" * 10_000)
    report(world, RunState.RUNNING, reason="y" * 10_000, error="z" * 10_000, progress=progress)
    shown = status(world)
    assert len(shown.progress.counts) == PIPELINE_COUNTS.limit
    assert [len(text) for text in (shown.progress.note, shown.reason, shown.last_error)] == [TEXT_SIZE_MAX] * 3


def test_the_last_error_is_shown_after_it_is_over() -> None:
    world = World()
    declare(world)
    report(world, RunState.RUNNING, error="a broker was away", error_ms=7)
    report(world, RunState.RUNNING, rate=12.0)
    assert (status(world).last_error, status(world).last_error_ms, status(world).rate) == ("a broker was away", 7, 12.0)


# -- the process


def test_sp7_a_pipeline_that_no_process_runs_shows_why() -> None:
    world = World()
    declare(world)
    assert (status(world).state, status(world).reason) == (RunState.WAITING, "no pipelines process has reported yet")
    pipelines(world).expect_process()
    assert (status(world).reason, status(world).process) == ("the pipelines process is starting", Process.STARTING)
    pipelines(world).no_process("pipelines need Spark", Process.NEEDS_SPARK)
    assert status(world).reason == "no pipelines process: pipelines need Spark"
    assert status(world).process is Process.NEEDS_SPARK
    report(world, RunState.RUNNING)
    assert (status(world).state, status(world).process) == (RunState.RUNNING, Process.REPORTING)
    world.advance(seconds=HEARTBEAT_MAX_MS / 1000 + 1)
    assert (status(world).state, status(world).process) == (RunState.WAITING, Process.ABSENT)
    assert status(world).reason == "no heartbeat from the pipelines process for 11 s"
    report(world, RunState.RUNNING)
    pipelines(world).process_left("p1")
    assert status(world).reason == "the pipelines process is gone"


def test_another_process_that_does_not_know_a_run_yet_replaces_the_reports_of_the_first() -> None:
    world = World()
    declare(world)
    report(world, RunState.RUNNING)
    pipelines(world).receive(RunReports("p2", True, []))
    assert status(world).reason == "the pipelines process has not reported this pipeline yet"


# -- deletion


def test_sp3_a_record_is_deleted_after_its_run_or_by_force() -> None:
    world = World()
    declare(world)
    with pytest.raises(PipelineConflict, match="runs: cancel it first, or force"):
        pipelines(world).delete(NAMESPACE, "fix")
    report(world, RunState.DONE)
    pipelines(world).delete(NAMESPACE, "fix")
    with pytest.raises(PipelineNotFound, match="pipeline public/default/fix does not exist"):
        pipelines(world).delete(NAMESPACE, "fix")
    with pytest.raises(PipelineNotFound) as caught:
        pipelines(world).get(NAMESPACE, "x" * 10_000)
    assert len(str(caught.value)) < 600
    declare(world)
    pipelines(world).delete(NAMESPACE, "fix", force=True)
    world.settle()
    assert pipelines(world.restart()).all() == []


def test_the_records_of_a_namespace_are_deleted_with_it() -> None:
    world = World()
    world.broker.catalog.create_namespace("public/other")
    pipelines(world).declare("public/other", "fix", "redrive", FIX)
    declare(world)
    world.broker.catalog.delete_namespace("public/other")
    world.settle()
    again = world.restart()
    assert [one.full for one in pipelines(again).all()] == ["public/default/fix"]


def test_fault_a_damaged_record_is_listed_runs_nothing_and_can_be_declared_again() -> None:
    world = World()
    declare(world)
    batch = world.storage.batch()
    batch.put(keys.named(keys.PIPELINE, "public/default/fix"), b"\xc1")
    world.storage.write(batch)
    world.storage.sync()
    again = world.restart()
    assert again.broker.damage.counts() == {"pipeline": 1}
    assert pipelines(again).declaration().pipelines == []
    with pytest.raises(PipelineNotFound, match="is damaged: declare it again, or delete it"):
        pipelines(again).get(NAMESPACE, "fix")
    declare(again)
    assert not again.broker.damage
    assert status(again).state is RunState.WAITING


# -- rights


def test_sp7_the_authors_of_a_tenant_are_those_of_pipelines_that_work_in_it() -> None:
    world = World()
    declare(world, author=Author("alice"), fields={"sources": ["t-s-DLQ"], "to": "acme/shop/t"})
    declare(world, "second", {"sources": ["x-DLQ"]}, author=Author("bob"))
    declare(world, "third", {"sources": ["y-DLQ"]})
    assert pipelines(world).authors("public") == [Author("alice"), Author("bob")]
    assert pipelines(world).authors("acme") == [Author("alice")]
    report(world, RunState.DONE)
    assert pipelines(world).authors("acme") == []

"""The table of verbs in the process, and the specs that they get."""

from __future__ import annotations

import pytest

from magnetar.declared.redrive import RedriveSpec
from magnetar.declared.verbs import VERBS
from magnetar.pipelines.declared.runners import RUNNERS, run_verb, runner_of
from magnetar.pipelines.run import RunContext, RunFailed

seen: list[tuple[object, object]] = []


def note(context: RunContext, spec: RedriveSpec) -> None:
    seen.append((context, spec))


def test_every_verb_of_the_broker_has_a_runner() -> None:
    assert RUNNERS.keys() == VERBS.keys()


def test_a_runner_gets_the_spec_of_its_verb() -> None:
    seen.clear()
    context: RunContext = object()  # type: ignore[assignment]
    run_verb(context, "redrive", {"sources": ["x-DLQ"]}, {"redrive": f"{__name__}:note"})
    assert seen == [(context, RedriveSpec(["x-DLQ"]))]


@pytest.mark.parametrize(
    ("verb", "table", "reason"),
    [
        ("copy", {}, "verb 'copy' is not known to this pipelines process"),
        ("redrive", {"redrive": "no.such.module:run"}, "verb redrive cannot be imported from no.such.module:run"),
        ("redrive", {"redrive": f"{__name__}:nothing"}, "cannot be imported"),
    ],
)
def test_a_verb_that_is_missing_fails_with_the_reason(verb: str, table: dict[str, str], reason: str) -> None:
    with pytest.raises(RunFailed, match=reason):
        runner_of(verb, table)


def test_a_spec_of_another_version_fails_with_the_reason() -> None:
    with pytest.raises(RunFailed, match="unknown field `new`"):
        run_verb(object(), "redrive", {"sources": [], "new": 1}, {"redrive": f"{__name__}:note"})  # type: ignore[arg-type]

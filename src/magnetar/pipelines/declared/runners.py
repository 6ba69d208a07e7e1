"""The runners of declared pipelines: the function of each verb, imported when a pipeline needs it. A table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from magnetar.declared.verbs import spec_of
from magnetar.errors import InvalidSetting
from magnetar.pipelines.run import RunContext, RunFailed

Runner = Callable[[RunContext, Any], None]
"""Gets the spec of its verb; returns when it is done, or soon after the context is stopping."""

RUNNERS: Mapping[str, str] = {
    "redrive": "magnetar.pipelines.redrive.redrive:run",
    "process": "magnetar.pipelines.processing.run:run",
    "archive": "magnetar.pipelines.archive.run:run",
}


def runner_of(verb: str, table: Mapping[str, str] = RUNNERS) -> Runner:
    """Raises `RunFailed`."""
    place = table.get(verb)
    if place is None:
        raise RunFailed(f"verb {verb[:100]!r} is not known to this pipelines process")
    module, _, name = place.partition(":")
    try:
        found: Runner = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RunFailed(f"verb {verb} cannot be imported from {place}: {error}") from error
    return found


def run_verb(context: RunContext, verb: str, fields: dict[str, Any], table: Mapping[str, str] = RUNNERS) -> None:
    """Runs one attempt. Raises what the verb raises, and `RunFailed` for a spec that this version cannot use."""
    runner = runner_of(verb, table)
    try:
        spec = spec_of(verb, fields)
    except InvalidSetting as error:
        raise RunFailed(str(error)) from error
    runner(context, spec)

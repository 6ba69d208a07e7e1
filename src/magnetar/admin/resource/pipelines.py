"""Declared pipelines: records with a wanted state, the state of their runs, and the calls of the pipelines process.

These paths are our own. The process long-polls the declaration and reports, as for replication.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from magnetar.access.needs import Need, Right, right_on_namespace
from magnetar.admin.http.errors import BadRequest
from magnetar.admin.http.long_poll import wait_for_change
from magnetar.admin.http.request import Call
from magnetar.admin.needs import TENANT_ADMIN
from magnetar.declared.model import (
    PipelineRequest,
    PipelinesDeclaration,
    PipelineStatus,
    RunHistoryItem,
    RunReports,
    Wanted,
)
from magnetar.declared.verbs import spec_of, verb_named
from magnetar.errors import InvalidName, InvalidSetting, NamespaceNotFound

_request = msgspec.json.Decoder(PipelineRequest)
_reports = msgspec.json.Decoder(RunReports)

_EXPECTED = 'verb and spec are expected, such as {"verb": "redrive", "spec": {"sources": ["orders-billing-DLQ"]}}'


# -- the pipelines process


async def declaration(call: Call) -> PipelinesDeclaration:
    """Show all pipelines to run; with `after` waits up to `timeoutMs` for a version other than that one.

    A pipelines process names itself with `pipeline`: if its connection ends while it waits, it is gone.
    """
    await wait_for_change(call, call.broker.pipelines)
    return call.broker.pipelines.declaration()


def report(call: Call) -> None:
    """Receive the report of a pipelines process, which it sends every few seconds, even if empty."""
    reports = call.body_as(_reports)
    if reports is None:
        raise BadRequest("the request body is empty: pipeline, isAll and rows are expected")
    call.broker.pipelines.receive(reports)


# -- records


def list_all(call: Call) -> list[PipelineStatus]:
    """List the pipelines of all namespaces that the caller administers, with the state of each."""
    authorization, principal = call.broker.authorization, call.principal
    namespaces = {one.namespace for one in call.broker.pipelines.all()}
    seen = {one for one in namespaces if authorization.allows(principal, (right_on_namespace(Need.TENANT_ADMIN, one),))}
    return call.broker.pipelines.statuses(one for one in call.broker.pipelines.all() if one.namespace in seen)


def list_of_namespace(call: Call) -> list[PipelineStatus]:
    """List the pipelines of a namespace, with the state of each."""
    namespace = _namespace(call)
    return call.broker.pipelines.statuses(call.broker.pipelines.all(namespace))


def get(call: Call) -> PipelineStatus:
    """Show a pipeline: its spec, the wanted and the reported state, and the progress."""
    pipelines = call.broker.pipelines
    return pipelines.status(pipelines.get(_namespace(call), call.path["pipeline"]))


def declare(call: Call) -> PipelineStatus:
    """Declare a pipeline, and begin a run of it; the same body again changes nothing while the run lasts."""
    body = _body(call)
    wanted = Wanted.PAUSED if body.paused else Wanted.RUNNING
    pipelines, namespace, name = call.broker.pipelines, _namespace(call), call.path["pipeline"]
    pipelines.declare(namespace, name, body.verb, body.spec, call.author, wanted=wanted)
    return pipelines.status(pipelines.get(namespace, name))


def delete(call: Call) -> None:
    """Delete a pipeline whose run is over; with `force` also one that runs."""
    call.broker.pipelines.delete(_namespace(call), call.path["pipeline"], force=call.flag("force"))


def pause(call: Call) -> None:
    """Pause a pipeline: its run ends at a point from which it continues."""
    call.broker.pipelines.pause(_namespace(call), call.path["pipeline"])


def resume(call: Call) -> None:
    """Resume a paused pipeline; if its run is over, begin another one with the same spec."""
    call.broker.pipelines.resume(_namespace(call), call.path["pipeline"])


def cancel(call: Call) -> None:
    """Cancel a pipeline: its run ends soon, and what it has not done stays as it is."""
    call.broker.pipelines.cancel(_namespace(call), call.path["pipeline"])


def runs(call: Call) -> list[RunHistoryItem]:
    """List the last runs of a pipeline that are over, the oldest first."""
    return list(call.broker.pipelines.get(_namespace(call), call.path["pipeline"]).runs)


# -- what they need


def _targets_of_spec(call: Call) -> Iterator[Right]:
    """What a pipeline does is done with the rights of the broker, so its author must have them: on every tenant whose
    topics it reads or writes, and on the machine if it runs any code or writes any file."""
    body = call.body_as(_request)
    if body is None:
        return
    verb, spec = verb_named(body.verb), _spec(body)
    if verb.runs_code(spec):
        yield Right(Need.SUPER_USER)
    try:
        tenants = verb.tenants(spec, call.namespace)
    except InvalidName as error:
        raise BadRequest(f"spec of {body.verb}: {error}") from error
    for tenant in sorted(tenants):
        yield Right(Need.TENANT_ADMIN, tenant)


DECLARE = TENANT_ADMIN.with_targets(
    "on every tenant whose topics it reads or writes; super user for a function, SQL of a process, or files",
    _targets_of_spec,
)


# -- bodies and names


def _body(call: Call) -> PipelineRequest:
    body = call.body_as(_request)
    if body is None:
        raise BadRequest(f"the request body is empty: {_EXPECTED}")
    return body


def _spec(body: PipelineRequest) -> object:
    try:
        return spec_of(body.verb, body.spec)
    except InvalidSetting as error:
        raise BadRequest(str(error)) from error


def _namespace(call: Call) -> str:
    namespace = call.namespace
    if namespace not in call.broker.catalog.namespaces:
        raise NamespaceNotFound("Namespace does not exist")
    return namespace

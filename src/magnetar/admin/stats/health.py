"""Health over HTTP: Pulsar's checks as plain text, and a pair of probes as JSON with every check and its reason.

The judgement is `magnetar.health`; here is who gets which status for it.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from starlette.responses import PlainTextResponse, Response

from magnetar.admin.http.errors import Unavailable
from magnetar.admin.http.request import Call
from magnetar.health import ALIVE, HEALTHY, READY, STATES, Health, HealthCheck, State, health_of


class CheckState(msgspec.Struct, omit_defaults=True):
    state: State
    reason: str = ""


class Probe(msgspec.Struct):
    """`status` is `failed` if a check failed that this probe counts; `reason` has the failures, then the warnings."""

    status: State
    reason: str
    checks: dict[str, CheckState]


async def check(call: Call) -> PlainTextResponse:
    """Check that the broker works, with a small write that becomes durable: `ok`, or 503 with the reasons."""
    call.choice("topicVersion", ("V2", "V1"))  # version of Pulsar's health check topic, unused here
    call.check_broker(call.query.get("brokerId"))
    health = health_of(call.vitals.facts(), await call.vitals.proof())
    return _text(health, HEALTHY, "ok")


def ready_text(call: Call) -> PlainTextResponse:
    """Check that clients may connect: `ok`, or 503 with the reasons."""
    return _text(health_of(call.vitals.facts()), READY, "ok")


def status(call: Call) -> PlainTextResponse:
    """The same for load balancers: `OK`."""
    return _text(health_of(call.vitals.facts()), READY, "OK")


def live(call: Call) -> Response:
    """Show all checks; 503 if a restart would help: timers or commits make no progress."""
    return _probe(health_of(call.vitals.facts()), ALIVE)


def ready(call: Call) -> Response:
    """Show all checks; 503 while clients should not connect: the broker starts, stops or makes no progress."""
    return _probe(health_of(call.vitals.facts()), READY)


def _text(health: Health, counted: Collection[str], good: str) -> PlainTextResponse:
    failures = health.failures(counted)
    if failures:
        raise Unavailable("; ".join(failures))
    return PlainTextResponse(good)


def _probe(health: Health, counted: Collection[str]) -> Response:
    state = health.state(counted)
    reason = "; ".join(one.reason for one in sorted(health.checks, key=_severity) if one.reason)
    body = Probe(state, reason, {one.name: CheckState(one.state, one.reason) for one in health.checks})
    status_code = 503 if state == "failed" else 200
    return Response(msgspec.json.encode(body), status_code=status_code, media_type="application/json")


def _severity(one: HealthCheck) -> int:
    return -STATES.index(one.state)

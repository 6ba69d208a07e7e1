"""Bad input to the whole interface: a 4xx with a reason that names the mistake, and nothing is partially created.

The route table drives the tests, so that a new route is covered automatically.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from magnetar.admin.routes import ROUTES, Route
from tests.admin.driver import Admin
from tests.admin.route_requests import PARAMETER, check_response, kept, key, new_world, plain_path, send, wants

LONG = "x" * 10_000
WRONG = {
    "tenant": ("%2E%2E", "a%2Fb", "a%20b", "caf%C3%A9", "a%00b", LONG),
    "namespace": ("%2E%2E", "a%2Fb", "a%20b", "caf%C3%A9", "a%00b", LONG),
    "cluster": ("%2E%2E", "a%2Fb", "a%20b", "caf%C3%A9", "a%00b", LONG),
    "topic": ("%2E%2E", "a%2Fb", "%20", "a%00b", "a%0Ab", LONG),
    "subscription": (LONG,),
}
BROKEN_JSON = (b"{", b"[1,", b'{"a":1}}', b"\xff\xfe", b"NaN", b"[" * 100_000, b"'x'")


@pytest.fixture(scope="module")
def world() -> Admin:
    """Shared, since no test may change it."""
    return new_world()


def rejection(admin: Admin, method: str, path: str, body: bytes = b"", query: bytes = b"") -> tuple[int, str]:
    """Expects a rejection that changes nothing."""
    before = kept(admin)
    answer = asyncio.run(send(admin, method, path, query, body))
    admin.commit()
    assert answer.status >= 400, f"{method} {path[:200]} {body[:100]!r} was answered with {answer.status}"
    check_response(answer)
    assert kept(admin) == before, "rejection, and yet something changed"
    return answer.status, json.loads(answer.body)["reason"]


# -- names


@pytest.mark.parametrize("route", ROUTES, ids=key)
def test_an_invalid_name_is_rejected_by_its_kind(world: Admin, route: Route) -> None:
    body = b'"x"' if route.method in ("PUT", "POST") else b""
    for place in {*PARAMETER.findall(route.path)} & {*WRONG}:
        for name in WRONG[place]:
            status, reason = rejection(world, route.method, plain_path(route, **{place: name}), body)
            assert status in (400, 404, 405, 412, 501), f"{status} for {place} {name[:20]}: {reason}"
            if status in (404, 412):  # in the other cases something else may be checked first
                assert place in reason, f"{status} for {name[:20]}: {reason}"


@pytest.mark.parametrize("route", ROUTES, ids=key)
def test_a_path_that_is_not_utf8_is_rejected(world: Admin, route: Route) -> None:
    for place in {*PARAMETER.findall(route.path)} - {"domain"}:
        status, reason = rejection(world, route.method, plain_path(route, **{place: "%FF"}))
        assert status == 400 and "UTF-8" in reason


# Where these are missing, the response is about them.
MISSING = {"tenant": "nobody", "namespace": "missing"}


@pytest.mark.parametrize("route", [route for route in ROUTES if "{tenant}" in route.path], ids=key)
def test_missing_resources_are_not_found_and_not_created(route: Route) -> None:
    for placeholder, name in MISSING.items():
        if f"{{{placeholder}}}" not in route.path or (
            route.method == "PUT" and route.path.endswith(f"{{{placeholder}}}")
        ):
            continue
        admin = new_world()
        before = kept(admin)
        answer = asyncio.run(send(admin, route.method, plain_path(route, **{placeholder: name}), b"", b""))
        admin.commit()
        check_response(answer)
        assert answer.status >= 400, f"answered with {answer.status}"
        assert kept(admin) == before


# -- bodies

WITH_BODY = [route for route in ROUTES if route.method in ("PUT", "POST")]


@pytest.mark.parametrize("route", WITH_BODY, ids=key)
def test_malformed_json_is_rejected(route: Route) -> None:
    admin = new_world()
    for body in BROKEN_JSON if wants()[key(route)].bodies else ():
        status, reason = rejection(admin, route.method, plain_path(route), body)
        assert status in (400, 412, 501), (status, reason)


def objects() -> Iterator[tuple[Route, msgspec.inspect.StructType]]:
    """Every route whose body is an object with known fields."""
    for route in WITH_BODY:
        for kind in msgspec.inspect.multi_type_info(wants()[key(route)].bodies):
            alternatives = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
            for alternative in alternatives:
                if isinstance(alternative, msgspec.inspect.StructType):
                    yield route, alternative


def test_an_unknown_field_is_named() -> None:
    for route, kind in objects():
        status, reason = rejection(new_world(), route.method, plain_path(route), b'{"nonsense": 1}')
        assert status in (400, 404, 405, 409, 412, 501), key(route)
        if status == 400:
            assert "nonsense" in reason or _is_missing(reason, kind), f"{key(route)}: {reason}"


def _is_missing(reason: str, kind: msgspec.inspect.StructType) -> bool:
    """Another required field may be reported first."""
    return any(field.encode_name in reason for field in kind.fields if field.required)


def test_a_field_of_the_wrong_type_is_named() -> None:
    for route, kind in objects():
        for field in kind.fields:
            for wrong in (*_wrong_values(field.type),):
                body = json.dumps({field.encode_name: wrong}).encode()
                status, reason = rejection(new_world(), route.method, plain_path(route), body)
                if status == 400:
                    named = field.encode_name in reason or _is_missing(reason, kind)
                    assert named, f"{key(route)} {body!r}: {reason}"


def _wrong_values(kind: msgspec.inspect.Type) -> list[Any]:
    """Values that never fit, whatever else the object contains."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _wrong_values(kind.type)
    if isinstance(kind, msgspec.inspect.IntType):
        return ["one", "1.5", [1], 10**40, -(10**40)]
    if isinstance(kind, msgspec.inspect.BoolType):
        return ["yes", "1", 1.5]
    if isinstance(kind, msgspec.inspect.StrType):
        return [{}, ["x"]]
    return []


# -- parameters


@pytest.mark.parametrize("route", ROUTES, ids=key)
def test_an_unreadable_parameter_is_named(route: Route) -> None:
    for name in wants()[key(route)].parameters:
        if f"{{{name}}}" in route.path:
            path, query = plain_path(route, **{name: "nonsense"}), b""
        else:
            path, query = plain_path(route), f"{name}=nonsense".encode()
        admin = new_world()
        answer = asyncio.run(send(admin, route.method, path, query, b""))
        check_response(answer)
        assert answer.status >= 400, f"{name}=nonsense was answered with {answer.status}"
        if answer.status == 400:
            assert name in json.loads(answer.body)["reason"]

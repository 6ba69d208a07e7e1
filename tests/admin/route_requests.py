"""A broker with one of everything, requests as the HTTP server builds them, and the parameters of each handler.

Serves the tests of the whole route table.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import unquote

import msgspec
from pytest import MonkeyPatch

from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.request import Call
from magnetar.admin.routes import ROUTES, Route
from magnetar.broker.catalog.record import ClusterRecord
from magnetar.storage.api import Space
from tests.admin.driver import Admin

PARAMETER = re.compile(r"\{(\w+)\}")
REASON_SIZE_MAX = 2000


# -- existing resources


@cache
def template() -> Admin:
    """One of everything."""
    admin = Admin(forceDeleteTenantAllowed=True)
    admin.broker.catalog.save_cluster("west", ClusterRecord("http://west:8080"))
    admin.done("PUT", "/admin/v2/tenants/acme", json={"allowedClusters": ["standalone", "west"]})
    for namespace in ("acme/default", "acme/n", "public/n"):
        admin.done("PUT", f"/admin/v2/namespaces/{namespace}")
    for namespace in ("acme/default", "acme/n", "public/n", "public/default"):
        admin.done("PUT", f"/admin/v2/persistent/{namespace}/many/partitions", json=3)
        topic = f"persistent://{namespace}/t"
        admin.unsubscribe_idle(admin.subscribe(topic, "s"))
        admin.publish(topic, b"one", b"two", b"three")
        admin.publish(topic, b"four", batch=3)
    return admin


def new_world() -> Admin:
    admin = Admin(template().storage.crash(), forceDeleteTenantAllowed=True)
    admin.subscribe("persistent://acme/n/t", "live", permits=2)
    admin.publish("non-persistent://public/default/volatile", b"x")
    return admin


# -- parameters of a handler, found by calling it


@dataclass(frozen=True)
class Wants:
    bodies: tuple[Any, ...]
    parameters: tuple[str, ...]


@cache
def wants() -> dict[str, Wants]:
    """For each route the types of its body and the names of its parameters, as far as a plain request gets."""
    bodies: dict[str, list[Any]] = defaultdict(list)
    parameters: dict[str, list[str]] = defaultdict(list)
    asked = ""
    with MonkeyPatch.context() as patch:
        for method in ("flag", "choice", "number", "body_as"):
            original = getattr(Call, method)

            def listening(call: Call, what: Any, *more: Any, original: Any = original, **others: Any) -> Any:
                if isinstance(what, msgspec.json.Decoder | BodyReader):
                    bodies[asked].append(what.type)
                else:
                    parameters[asked].append(what)
                return original(call, what, *more, **others)

            patch.setattr(Call, method, listening)
        for route in ROUTES:
            asked, admin = key(route), new_world()
            for body in (b"", b"{}", b"1"):
                asyncio.run(send(admin, route.method, plain_path(route), b"", body))
    return {
        asked: Wants(tuple(dict.fromkeys(bodies[asked])), tuple(dict.fromkeys(parameters[asked])))
        for asked in map(key, ROUTES)
    }


def key(route: Route) -> str:
    return f"{route.method} {route.path}"


def plain_path(route: Route, **names: str) -> str:
    """A path of a route on which everything exists, except the given parts."""
    return PARAMETER.sub(lambda match: (PLAIN | names).get(match[1], "1"), route.path)


PLAIN = {
    "domain": "persistent",
    "tenant": "acme",
    "namespace": "n",
    "topic": "t",
    "subscription": "s",
    "cluster": "west",
    "broker": "broker.test:8080",
    "setting": "maxTopicsPerNamespace",
    "role": "ops",
    "bundle": "0x00000000_0xffffffff",
}


# -- requests and checks


@dataclass
class RawResponse:
    status: int
    headers: dict[str, str]
    body: bytes


async def send(admin: Admin, method: str, path: str, query: bytes, body: bytes, role: str = "") -> RawResponse:
    """Calls the application like the HTTP server; a client library would normalize some paths."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": [
            (b"host", b"broker.test:8080"),
            (b"content-type", b"application/json"),
            *([(b"authorization", b"Bearer " + role.encode())] if role else []),
        ],
        "client": ("127.0.0.1", 50000),
        "server": ("broker.test", 8080),
    }
    response = RawResponse(0, {}, b"")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def take(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            response.status = message["status"]
            response.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            response.body += message.get("body", b"")

    await admin.app(scope, receive, take)
    return response


def kept(admin: Admin) -> tuple[list[tuple[bytes, bytes]], dict[str, dict[str, str]]]:
    """Everything on disk, and the non-persistent topics."""
    rows = [row for space in Space for row in admin.storage.scan(space, b"", b"\xff" * 16)]
    return rows, dict(admin.broker.catalog.non_persistent)


def catalog_of(admin: Admin) -> dict[str, Any]:
    catalog = admin.broker.catalog
    known = {name: getattr(catalog, name) for name in ("clusters", "tenants", "namespaces", "partitioned", "topics")}
    return {name: {key: msgspec.to_builtins(value) for key, value in rows.items()} for name, rows in known.items()}


def check_response(response: RawResponse) -> None:
    assert 200 <= response.status < 500 or response.status in (501, 503), response.body
    if response.status >= 400:
        assert response.headers["content-type"] == "application/json"
        refusal = json.loads(response.body)
        assert list(refusal) == ["reason"] and refusal["reason"].strip()
        assert len(refusal["reason"]) <= REASON_SIZE_MAX, "a reason that repeats all that was sent"
    elif response.headers.get("content-type") == "application/json":
        json.loads(response.body)

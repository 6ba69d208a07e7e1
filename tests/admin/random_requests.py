"""Random requests for a route: nearly valid ones, of which some parts are corrupted.

Path parts come from existing resources, bodies from the types of the handlers. Serves the tests of the route table and
the fuzz targets.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from magnetar.admin.routes import ROUTES, Route
from magnetar.names import NON_PERSISTENT, PERSISTENT
from magnetar.settings.dynamic import DYNAMIC
from tests.admin.route_requests import PARAMETER, key, wants

T = TypeVar("T")

WRONG_NAMES = (
    "%2E%2E",
    "a%2Fb",
    "a%20b",
    "%20",
    "%00",
    "%FF",
    "%ED%A0%80",
    "caf%C3%A9",
    "%",
    "%zz",
    "a%0Ab",
    "*",
    "-partition-0",
    "x" * 10_000,
    "%25",
    "null",
)
# Existing resources, and possible ones.
NAMES: dict[str, tuple[str, ...]] = {
    "tenant": ("public", "acme"),
    "namespace": ("default", "n"),
    "topic": ("t", "many", "many-partition-0", "volatile"),
    "subscription": ("s", "live"),
    "cluster": ("standalone", "west"),
    "broker": ("broker.test:8080",),
    "setting": tuple(sorted(DYNAMIC)),
    "value": ("0", "1", "true", "false", "partitioned", "Shared,Failover"),
    "version": ("0", "1"),
    "role": ("ops",),
    "bundle": ("0x00000000_0xffffffff",),
}
MISSING_NAMES: dict[str, tuple[str, ...]] = {
    "tenant": ("nobody",),
    "namespace": ("missing",),
    "topic": ("missing", "many-partition-9", "t-s-DLQ", "t-s-RETRY", "t-s-DLQ-s-DLQ", "partitioned"),
    "subscription": ("missing",),
    "cluster": ("missing", "east"),
    "setting": ("maxMessageSize", "nonsense"),
    "value": ("-1", "99999999999999999999"),
    "version": ("-1", "latest"),
}
NUMBERS = ("0", "1", "2", "3", "1700000000000")
WRONG_NUMBERS = ("-1", "2147483648", "9223372036854775807", "9" * 30, "1.5", "abc", "")
PARAMETERS = ("force", "authoritative", "isGlobal", "applied", "mode", "perPartition", "timestamp", "sequence")
PARAMETER_VALUES = ("true", "false", "ALL", "message_age", "destination_storage", *NUMBERS)
WRONG_PARAMETER_VALUES = ("", "maybe", "x" * 10_000, *WRONG_NUMBERS)

# Texts by the name of their field.
TEXTS: dict[str, tuple[str, ...]] = {
    "": ("x", "s", "earliest", "latest", "0:0", "9:9", "Shared", "Full", "BACKWARD", "standalone", "west", "produce"),
    "allowedClusters": ("standalone", "west"),
    "adminRoles": ("ops", "dev", "é"),
    "type": ("AVRO", "JSON", "STRING", "NONE"),
    "schema": ('{"type":"record","name":"R","fields":[]}', '{"type":"record","name":"R"}', "", "x"),
    "serviceUrl": ("http://west:8080", "http://east:8080"),
    "brokerServiceUrl": ("pulsar://west:6650",),
}
WRONG_TEXTS = ("", " ", "x" * 3000, "\ud800", "\x00", "..", "a/b")
NEEDED = {"allowedClusters"}  # not by its type, but always
POLICY_FIELDS = (
    "retention_policies",
    "message_ttl_in_seconds",
    "replication_clusters",
    "bundles",
    "properties",
    "deleted",
)
SMALL = range(-1, 6)
LARGE = (-2, 100, 2**31 - 1, 2**31, -(2**31) - 1, 2**63, -(2**70), 10**40)
BROKEN_JSON = (b"", b"{", b"[1,", b"\xff\xfe", b"null", b"[" * 5000, b'{"a":1}}', b"NaN", b"1e999")


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: bytes
    body: bytes

    def __str__(self) -> str:
        return f"{self.method} {self.path[:200]}?{self.query[:200]!r} {self.body[:300]!r}"


class Maker:
    """Generates random requests; about one in `n` parts is wrong, see `one_in(n)`."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def one_in(self, times: int) -> bool:
        return self.random.randrange(times) == 0

    def of(self, several: Sequence[T]) -> T:
        return several[self.random.randrange(len(several))]

    def some(self, make: Callable[[], T], most: int = 3) -> list[T]:
        return [make() for _ in range(self.random.randrange(most + 1))]

    # -- requests

    def any_request(self) -> Request:
        return self.request(self.of(self.of(groups())))

    def request(self, route: Route) -> Request:
        method = self.of(["GET", "PUT", "POST", "DELETE", "PATCH"]) if self.one_in(15) else route.method
        path = PARAMETER.sub(lambda match: self.path_part(match[1]), route.path)
        return Request(method, path, urlencode(self.parameters(route)).encode(), self.body(route))

    def path_part(self, name: str) -> str:
        if name == "domain":
            return NON_PERSISTENT if self.one_in(4) else PERSISTENT
        if self.one_in(20):
            return self.of(WRONG_NAMES)
        if name not in NAMES:
            return self.of(WRONG_NUMBERS if self.one_in(6) else NUMBERS)
        return self.of(MISSING_NAMES.get(name, WRONG_NAMES) if self.one_in(6) else NAMES[name])

    def parameters(self, route: Route) -> dict[str, str]:
        names = (*wants()[key(route)].parameters, *((self.of(PARAMETERS),) if self.one_in(4) else ()))
        chosen = [name for name in names if self.one_in(2)]
        return {name: self.of(WRONG_PARAMETER_VALUES if self.one_in(8) else PARAMETER_VALUES) for name in chosen}

    def body(self, route: Route) -> bytes:
        kinds = body_types(key(route))
        if self.one_in(15):
            return self.of(BROKEN_JSON)
        if not kinds and not self.one_in(4):
            return b""
        return json.dumps(self.near(self.of(kinds)) if kinds else self.junk()).encode()

    # -- values

    def number(self) -> int:
        return self.of(LARGE if self.one_in(8) else SMALL)

    def text(self, field: str) -> str:
        return self.of(WRONG_TEXTS if self.one_in(12) else TEXTS.get(field, TEXTS[""]))

    def junk(self, depth: int = 0) -> Any:
        if depth < 3 and self.one_in(4):
            if self.one_in(2):
                return self.some(lambda: self.junk(depth + 1))
            return {self.text(""): self.junk(depth + 1) for _ in range(self.random.randrange(3))}
        return self.of([None, True, False, 0.5, 1e308, -1e308, self.number(), self.text("")])

    def near(self, kind: msgspec.inspect.Type, field: str = "") -> Any:
        """A value of a type, occasionally with a mistake."""
        return self.junk() if self.one_in(25) else self.fitting(kind, field)

    def fitting(self, kind: msgspec.inspect.Type, field: str) -> Any:
        inspect = msgspec.inspect
        match kind:
            case inspect.Metadata(type=inner):
                return self.fitting(inner, field)
            case inspect.BoolType():
                return self.one_in(2)
            case inspect.IntType() | inspect.FloatType():
                return self.number()
            case inspect.StrType():
                return self.text(field)
            case inspect.NoneType():
                return None
            case inspect.LiteralType(values=values):
                return self.of(values)
            case inspect.EnumType(cls=cls):
                return self.of([member.value for member in cls])
            case inspect.UnionType(types=types):
                return self.fitting(self.of(types), field)
            case inspect.ListType(item_type=one) | inspect.SetType(item_type=one) | inspect.VarTupleType(item_type=one):
                return self.some(lambda: self.near(one, field))
            case inspect.DictType(key_type=key_type, value_type=value_type):
                names = self.some(lambda: self.of(POLICY_FIELDS) if self.one_in(2) else self.near(key_type, field))
                return {str(name): self.near(value_type) for name in names}
            case inspect.StructType(fields=fields):
                return self.object(fields)
        return self.junk()

    def object(self, fields: Sequence[msgspec.inspect.Field]) -> dict[str, Any]:
        made = {}
        for one in fields:
            needed = one.required or one.encode_name in NEEDED
            if self.one_in(15) if needed else self.one_in(2):
                continue
            made[one.encode_name] = self.near(one.type, one.encode_name)
        return made | {self.text(""): self.junk()} if self.one_in(15) else made


@cache
def groups() -> tuple[tuple[Route, ...], ...]:
    """Routes by handler: some handlers have a hundred similar routes, others a few different ones."""
    found: dict[str, list[Route]] = defaultdict(list)
    for route in ROUTES:
        found[route.handler.__module__].append(route)
    return tuple(map(tuple, found.values()))


@cache
def body_types(asked: str) -> list[msgspec.inspect.Type]:
    return msgspec.inspect.multi_type_info(wants()[asked].bodies)

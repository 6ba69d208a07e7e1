"""Schemas over REST: Pulsar's paths, bodies and statuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from magnetar.admin.resource import schemas
from magnetar.bounds import SCHEMA_WAIT
from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.catalog.record import NamespaceRecord
from magnetar.broker.host import ManualHost
from magnetar.broker.schema.compatibility import ALWAYS_COMPATIBLE as ALWAYS
from magnetar.schema.types import Schema, SchemaType
from tests.admin.driver import NOW_MS, Admin

BASE = "/admin/v2/schemas/public/default/t"
SCHEMA = BASE + "/schema"


def avro(*fields: dict[str, Any]) -> dict[str, Any]:
    definition = {"type": "record", "name": "R", "fields": list(fields)}
    return {"type": "AVRO", "schema": json.dumps(definition), "properties": {"owner": "me"}}


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "int", "default": 0}
ONE, TWO, OTHER = avro(A), avro(A, B), avro({"name": "a", "type": "string"})


def upload(admin: Admin, body: dict[str, Any], path: str = SCHEMA) -> int:
    response = admin("POST", path, json=body)
    assert response.status_code == 200, response.text
    assert admin.broker.commits.idle
    answer = response.json()
    assert list(answer) == ["version"] and list(answer["version"]) == ["version"]
    return int(answer["version"]["version"])


def test_upload_and_read(admin: Admin) -> None:
    assert [upload(admin, body) for body in (ONE, TWO, ONE)] == [0, 1, 0]
    first = {"version": 0, "type": "AVRO", "timestamp": NOW_MS, "data": ONE["schema"], "properties": {"owner": "me"}}
    second = {**first, "version": 1, "data": TWO["schema"]}
    assert admin.get(SCHEMA) == second
    assert admin.get(SCHEMA + "/0") == first
    assert admin.get(BASE + "/schemas") == {"getSchemaResponses": [first, second]}
    assert admin.after_crash().get(SCHEMA) == second


def test_a_schema_may_precede_its_topic_and_is_shared_by_partitions(admin: Admin) -> None:
    upload(admin, ONE)
    admin.done("PUT", "/admin/v2/persistent/public/default/t/partitions", json=2)
    assert admin.get("/admin/v2/schemas/public/default/t-partition-1/schema")["version"] == 0
    assert upload(admin, TWO, "/admin/v2/schemas/public/default/t-partition-0/schema") == 1
    admin.done("DELETE", "/admin/v2/persistent/public/default/t/partitions")
    assert admin.reason(404, "GET", SCHEMA) == "Schema not found"


def test_missing_schemas(admin: Admin) -> None:
    assert admin.reason(404, "GET", SCHEMA) == "Schema not found"
    assert admin.get(BASE + "/schemas") == {"getSchemaResponses": []}
    upload(admin, ONE)
    for version in ("1", "-1", "9223372036854775807"):
        assert admin.reason(404, "GET", f"{SCHEMA}/{version}") == "Schema not found"
    for version in ("x", "1.0", "99999999999999999999", "%20", "0x1"):
        assert "is not a 64-bit integer" in admin.reason(400, "GET", f"{SCHEMA}/{version}")
    for path in ("missing/default/t", "public/missing/t"):
        assert admin.reason(404, "GET", f"/admin/v2/schemas/{path}/schema") == "Schema not found"
        for method, rest in (("POST", "schema"), ("DELETE", "schema"), ("GET", "schemas"), ("POST", "version")):
            assert "does not exist" in admin.reason(404, method, f"/admin/v2/schemas/{path}/{rest}", json=ONE)


def test_an_incompatible_schema_is_a_conflict(admin: Admin) -> None:
    upload(admin, ONE)
    assert "field a: reader type: string" in admin.reason(409, "POST", SCHEMA, json=OTHER)
    assert "is of type STRING, version 0 is AVRO" in admin.reason(
        409, "POST", SCHEMA, json={"type": "STRING", "schema": "", "properties": {}}
    )
    assert len(admin.get(BASE + "/schemas")["getSchemaResponses"]) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"type": "AVRO", "schema": "nonsense"}, "not a valid Avro definition"),
        ({"type": "AVRO"}, "not a valid Avro definition"),
        ({"type": "INT8", "schema": "x"}, "INT8 schema has no definition"),
        ({"type": "AUTO_CONSUME", "schema": ""}, "AUTO_CONSUME schema is for consumers"),
        ({"type": "PROTOBUF_NATIVE", "schema": "{}"}, "PROTOBUF_NATIVE schema cannot be read"),
        (
            {"type": "KEY_VALUE", "schema": '{"key":"","value":{}}', "properties": {"value.schema.type": "AVRO"}},
            "AVRO schema is not a valid",
        ),
    ],
)
def test_an_invalid_definition_is_unprocessable(admin: Admin, body: dict[str, Any], reason: str) -> None:
    assert reason in admin.reason(422, "POST", SCHEMA, json=body)
    assert admin.reason(404, "GET", SCHEMA) == "Schema not found"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the request body is empty"),
        (b"{", "invalid request body"),
        (b"[]", "invalid request body"),
        (b'{"schema": ""}', "type"),
        (b'{"type": "NOTHING", "schema": ""}', "type 'NOTHING' is not one of NONE, STRING, JSON"),
        (b'{"type": 4, "schema": ""}', "type"),
        (b'{"type": "STRING", "schema": {}}', "schema"),
        (b'{"type": "STRING", "properties": {"a": []}}', "properties"),
        (b'{"type": "STRING", "propertys": {}}', "propertys"),
        (b'{"type": "KEY_VALUE", "schema": "x"}', "KEY_VALUE is not a JSON object"),
        (b'{"type": "KEY_VALUE", "schema": "{}"}', "KEY_VALUE has no key"),
    ],
)
@pytest.mark.parametrize("path", ["schema", "version", "compatibility"])
def test_unreadable_bodies(admin: Admin, body: bytes, reason: str, path: str) -> None:
    assert reason in admin.reason(400, "POST", f"{BASE}/{path}", content=body)


def test_plain_bytes_are_registered_as_none(admin: Admin) -> None:
    assert upload(admin, {"type": "BYTES", "schema": ""}) == 0
    assert admin.get(SCHEMA)["type"] == "NONE"
    assert upload(admin, {"type": "NONE", "schema": ""}) == 0
    assert "is of type AVRO, version 0 is NONE" in admin.reason(409, "POST", SCHEMA, json=ONE)


def test_key_and_value_as_text(admin: Admin) -> None:
    value = {"type": "record", "name": "V", "fields": [A]}
    properties = {"key.schema.type": "STRING", "value.schema.type": "AVRO", "kv.encoding.type": "SEPARATED"}
    body = {"type": "KEY_VALUE", "schema": json.dumps({"key": "", "value": value}), "properties": properties}
    assert upload(admin, body) == 0
    got = admin.get(SCHEMA)
    assert json.loads(got["data"]) == {"key": "", "value": value}
    assert got["properties"] == properties
    again = {"type": "KEY_VALUE", "schema": got["data"], "properties": properties}
    assert upload(admin, again) == 0
    assert admin("POST", BASE + "/version", json=again).json() == {"version": 0}


def test_the_version_of_a_schema(admin: Admin) -> None:
    assert admin("POST", BASE + "/version", json=ONE).json() == {"version": -1}
    upload(admin, ONE)
    upload(admin, TWO)
    assert admin("POST", BASE + "/version", json=TWO).json() == {"version": 1}
    assert admin("POST", BASE + "/version", json=OTHER).json() == {"version": -1}
    assert "not a valid Avro" in admin.reason(422, "POST", BASE + "/version", json={"type": "AVRO", "schema": "-"})


def test_compatibility_is_checked_without_a_change(admin: Admin) -> None:
    path = BASE + "/compatibility"
    upload(admin, ONE)
    fits = admin("POST", path, json=TWO)
    assert (fits.status_code, fits.json()) == (202, {"compatibility": True, "schemaCompatibilityStrategy": "FULL"})
    response = admin("POST", path, json=OTHER)
    verdict = response.json()
    assert (response.status_code, verdict["compatibility"]) == (202, False)
    assert "field a" in verdict["reason"]
    namespace = NamespaceRecord(overrides=Overrides(schema_compatibility="ALWAYS_COMPATIBLE"))
    admin.broker.catalog.save_namespace("public/default", namespace)
    assert admin("POST", path, json=OTHER).json() == {
        "compatibility": True,
        "schemaCompatibilityStrategy": "ALWAYS_COMPATIBLE",
    }
    assert len(admin.get(BASE + "/schemas")["getSchemaResponses"]) == 1
    assert upload(admin, OTHER) == 1


def test_delete_and_delete_by_force(admin: Admin) -> None:
    upload(admin, ONE)
    upload(admin, TWO)
    response = admin("DELETE", SCHEMA)
    assert (response.status_code, response.json()) == (200, {"version": 2})
    assert admin.reason(404, "GET", SCHEMA) == "Schema not found"
    assert admin.get(BASE + "/schemas") == {"getSchemaResponses": []}
    assert admin.reason(404, "GET", SCHEMA + "/0") == "Schema not found"
    assert upload(admin, OTHER) == 3
    response = admin("DELETE", SCHEMA + "?force=true")
    assert (response.status_code, response.json()) == (200, {"version": -1})
    assert upload(admin, ONE) == 0
    assert "is not true or false" in admin.reason(400, "DELETE", SCHEMA + "?force=maybe")
    assert admin.after_crash().get(SCHEMA)["version"] == 0


@hypothesis_settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from(["schema", "version", "compatibility"]),
    st.sampled_from(["AVRO", "JSON", "STRING", "KEY_VALUE", "PROTOBUF", "PROTOBUF_NATIVE", "EXTERNAL", "INT8", "NONE"]),
    st.text(max_size=30) | st.sampled_from(['{"key":1,"value":2}', '{"type":"object"}', '"int"', "[]", "\ud800"]),
    st.dictionaries(st.sampled_from(["key.schema.type", "value.schema.type", "x"]), st.text(max_size=10)),
)
def test_odd_bodies_never_cause_a_500(
    admin: Admin, path: str, type: str, text: str, properties: dict[str, str]
) -> None:
    content = json.dumps({"type": type, "schema": text, "properties": properties}).encode()
    response = admin("POST", f"{BASE}/{path}", content=content)
    assert response.status_code in (200, 202, 400, 409, 422), response.text
    assert admin("GET", SCHEMA).status_code in (200, 404)


# -- schemas that take long


LARGE = avro(*({"name": f"field{number}", "type": "int", "default": 0} for number in range(300)))
LARGER = avro(*({"name": f"field{number}", "type": "int", "default": 0} for number in range(301)))


def test_large_schemas_are_compared_aside(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    aside = 0

    def run_aside(work: Callable[[], object], then: Callable[[], None], client: str) -> None:
        nonlocal aside
        aside += 1
        if aside == 4:  # meanwhile another schema is added, so that it is compared again
            admin.broker.schemas.put("public/default/t", Schema(SchemaType.AVRO, OTHER["schema"].encode()), ALWAYS)
        ManualHost.run_aside(admin.host, work, then, client)

    monkeypatch.setattr(admin.broker, "run_aside", run_aside)
    assert upload(admin, LARGE) == 0 and aside == 1
    assert admin("POST", BASE + "/version", json=LARGER).json() == {"version": -1} and aside == 2
    verdict = admin("POST", BASE + "/compatibility", json=LARGER).json()
    assert verdict["compatibility"] is True and aside == 3
    verdict = admin("POST", BASE + "/compatibility", json=avro(*({"name": f"f{n}", "type": "int"} for n in range(300))))
    assert verdict.json()["compatibility"] is False and "version 1" in verdict.json()["reason"] and aside == 5
    assert upload(admin, ONE, SCHEMA.replace("/t/", "/small/")) == 0 and aside == 5
    bad = {"type": "AVRO", "schema": "x" * 5000}
    assert "not a valid Avro definition" in admin.reason(422, "POST", SCHEMA, json=bad) and aside == 6


def test_bound_schema_wait(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin.broker, "run_aside", lambda work, then, client: None)
    monkeypatch.setattr(schemas, "_WAIT_MAX_S", 0.01)
    assert "not compared yet" in admin.reason(503, "POST", SCHEMA, json=LARGE)
    assert SCHEMA_WAIT.limit == 60 and not admin.broker.schemas.versions("public/default/t")

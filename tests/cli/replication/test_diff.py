"""`magnetar replication diff A B` between two real brokers, and with one that lacks some calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from magnetar import testing
from magnetar.cli.main import main
from tests.cli.conftest import Recorder, Result

ORDERS = "persistent://public/default/orders"
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
WIDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "n", "type": ["null", "int"], "default": None}],
}


class Sides:
    """Two brokers declared in each other, and the command that compares them."""

    def __init__(self, a: str, b: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.a, self.b = a, b
        self._capsys = capsys

    def run(self, *words: str) -> Result:
        self._capsys.readouterr()
        code = main(["replication", "diff", self.a, self.b, *words])
        return Result(code, *self._capsys.readouterr())

    def found(self, *words: str, code: int = 1) -> dict[str, Any]:
        result = self.run(*words, "--json")
        assert (result.code, result.err) == (code, ""), result
        value: dict[str, Any] = json.loads(result.out)
        return value

    def whats(self, *words: str, code: int = 1) -> list[tuple[str, str, str]]:
        differences = self.found(*words, code=code)["differences"]
        return [
            (one["kind"], one["name"].removeprefix("persistent://public/default/"), one["what"]) for one in differences
        ]


def call(url: str, method: str, path: str, body: object = None) -> None:
    httpx.request(method, f"{url}/admin/v2/{path}", json=body, trust_env=False).raise_for_status()


@pytest.fixture
def sides(capsys: pytest.CaptureFixture[str]) -> Iterator[Sides]:
    with testing.broker(clusterName="a") as a, testing.broker(clusterName="b") as b:
        for here, name, there in ((a, "b", b), (b, "a", a)):
            addresses = {"serviceUrl": there.http_url, "brokerServiceUrl": there.service_url}
            call(here.http_url, "PUT", f"clusters/{name}", addresses)
        yield Sides(a.http_url, b.http_url, capsys)


def both(sides: Sides, method: str, path: str, body: object = None) -> None:
    for url in (sides.a, sides.b):
        call(url, method, path, body)


def test_clusters_that_replicate_into_each_other_do_not_differ(sides: Sides) -> None:
    for url in (sides.a, sides.b):
        call(url, "POST", "tenants/public", {"adminRoles": [], "allowedClusters": ["a", "b"]})
    call(sides.a, "PUT", "persistent/public/default/orders/partitions", 2)
    call(sides.b, "PUT", "persistent/public/default/orders/partitions", 2)
    call(sides.a, "POST", "namespaces/public/default/replication", ["a", "b"])
    result = sides.run()
    assert (result.code, result.err) == (0, "")
    assert result.out == "no difference in 1 namespace and 1 topic that both have\n"
    found = sides.found(code=0)
    assert (found["a"], found["b"], found["differences"]) == ("a", "b", [])


def test_tenants_namespaces_and_topics_on_one_side_only(sides: Sides) -> None:
    call(sides.b, "PUT", "tenants/acme", {"adminRoles": [], "allowedClusters": ["b"]})
    call(sides.b, "PUT", "namespaces/acme/shop")
    call(sides.b, "PUT", "persistent/acme/shop/orders")
    call(sides.b, "PUT", "persistent/acme/shop/bills/partitions", 3)
    call(sides.a, "PUT", "persistent/public/default/orders")
    call(sides.a, "PUT", "persistent/public/default/parts/partitions", 3)
    call(sides.b, "PUT", "persistent/public/default/parts/partitions", 4)
    call(sides.a, "PUT", "persistent/public/default/orders-billing-DLQ")
    assert sides.whats() == [
        ("tenant", "acme", "only in B"),
        ("namespace", "acme/shop", "only in B, with 2 topics"),
        ("topic", "orders", "only in A"),
        ("partitions", "parts", "3 partitions in A, 4 partitions in B"),
    ]
    assert sides.found()["remarks"] == [
        f"{ORDERS}-billing-DLQ is only in A: dead letter topics are not replicated by default"
    ]
    text = sides.run().out
    assert "4 differences in 1 namespace and 1 topic that both have\n" in text
    assert "remark: " in text


def test_policies_of_namespaces_and_topics(sides: Sides) -> None:
    both(sides, "PUT", "persistent/public/default/orders")
    call(
        sides.a, "POST", "namespaces/public/default/retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": 10}
    )
    call(sides.b, "POST", "persistent/public/default/orders/maxConsumers", 7)
    both(sides, "POST", "persistent/public/default/orders/maxProducers", 3)
    assert sides.whats() == [
        (
            "policy",
            "public/default",
            'retention_policies is {"retentionSizeInMB": 10, "retentionTimeInMinutes": 60} in A and not set in B',
        ),
        ("policy", "orders", "maxConsumers is not set in A and 7 in B"),
    ]


def test_schemas_are_compared_by_content_and_not_by_version(sides: Sides) -> None:
    both(sides, "PUT", "persistent/public/default/orders")
    post = "schemas/public/default/orders/schema"
    both(sides, "POST", post, {"type": "AVRO", "schema": json.dumps(AVRO), "properties": {}})
    assert sides.whats(code=0) == []
    call(sides.b, "POST", post, {"type": "AVRO", "schema": json.dumps(WIDER), "properties": {}})
    assert sides.whats() == [("schema", "orders", "version 1 (AVRO) is only in B")]


def test_replication_subscriptions_are_ignored(sides: Sides) -> None:
    both(sides, "PUT", "persistent/public/default/orders")
    call(sides.a, "PUT", "persistent/public/default/orders/subscription/billing")
    call(sides.b, "PUT", "persistent/public/default/orders/subscription/magnetar.repl.a")
    assert sides.whats() == [("subscription", "orders billing", "only in A")]


def test_only_the_given_namespaces_are_compared(sides: Sides) -> None:
    both(sides, "PUT", "namespaces/public/other")
    call(sides.a, "PUT", "persistent/public/other/orders")
    assert sides.whats("--namespaces", "public/default", code=0) == []
    assert sides.whats("-n", "public/other", "-n", "public/default") == [
        ("topic", "persistent://public/other/orders", "only in A")
    ]
    result = sides.run("-n", "public/nowhere")
    assert (result.code, result.out) == (2, "")
    assert "neither A nor B has this namespace" in result.err


def test_an_error_is_no_difference(sides: Sides) -> None:
    sides.b = "http://127.0.0.1:1"
    result = sides.run()
    assert (result.code, result.out) == (2, "")
    assert "cannot connect to http://127.0.0.1:1" in result.err
    sides.b = "pulsar://127.0.0.1:1"
    assert sides.run().code == 2


def test_calls_missing_on_one_side_are_a_remark(sides: Sides, recorder: Recorder) -> None:
    """Like Apache Pulsar without topic policies, and with fields that only one side has."""
    call(sides.a, "PUT", "persistent/public/default/orders")
    call(sides.a, "POST", "persistent/public/default/orders/maxConsumers", 7)
    recorder.will_answer("GET", "/admin/v2/tenants", ["public", "pulsar"])
    recorder.will_answer("GET", "/admin/v2/tenants/public", {"adminRoles": [], "allowedClusters": ["apache"]})
    recorder.will_answer("GET", "/admin/v2/namespaces/public", ["public/default"])
    recorder.will_answer(
        "GET",
        "/admin/v2/namespaces/public/default",
        {
            "replication_clusters": ["apache"],
            "bundles": {"numBundles": 4},
            "is_allow_auto_update_schema": True,
            "offload_threshold": -1,
            "subscription_auth_mode": "None",
            "schema_compatibility_strategy": "UNDEFINED",
        },
    )
    topics = "/admin/v2/persistent/public/default"
    recorder.will_answer("GET", topics, [ORDERS, "persistent://public/default/__change_events"])
    for path in (
        f"{topics}/partitioned",
        "/admin/v2/non-persistent/public/default/partitioned",
        "/admin/v2/non-persistent/public/default",
        f"{topics}/orders/subscriptions",
    ):
        recorder.will_answer("GET", path, [])
    recorder.will_answer("GET", "/admin/v2/brokers/configuration/runtime", {"reason": "no"}, status=403)
    recorder.will_answer("GET", "/admin/v2/schemas/public/default/orders/schemas", {"reason": "none"}, status=404)
    recorder.will_answer("GET", f"{topics}/orders/policies", {"reason": "no such thing"}, status=404)
    recorder.will_answer("GET", f"{topics}/orders/maxConsumers", {"reason": "topic level policies are off"}, status=405)
    sides.b = recorder.url
    found = sides.found(code=0)
    assert found["differences"] == []
    assert found["remarks"] == [
        "B does not support topic policy maxConsumers, not compared: topic level policies are off"
    ]

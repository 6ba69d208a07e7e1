"""AC7: damage by the old auto-creation bugs is found, explained and repaired, and nothing else is touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar import testing
from magnetar.broker.catalog.record import PartitionedRecord
from magnetar.names import TopicName
from tests.cli.conftest import CommandLine, Recorder

PREFIX = "persistent://public/default/"
SHOP = "/admin/v2/persistent/acme/shop"


@pytest.fixture
def running() -> Iterator[testing.TestBroker]:
    with testing.broker() as running:
        yield running


def write_metadata(running: testing.TestBroker, topic: str, partitions: int) -> None:
    """Writes metadata as the old bug did; the broker itself rejects such a creation."""
    name = TopicName.parse(topic)
    catalog = running.server.broker.catalog
    running.run(lambda: catalog._save_partitioned(name, PartitionedRecord(partitions, {})))


def damage(cli: CommandLine, *words: str, code: int = 1) -> list[dict[str, object]]:
    result = cli("doctor", "topics", *words, "--json")
    assert (result.code, result.err) == (code, "")
    found: list[dict[str, object]] = json.loads(result.out)["damage"]
    return found


def test_ac7_a_healthy_broker_has_no_damage(cli: CommandLine) -> None:
    cli.ok("topics", "create", "orders")
    cli.ok("topics", "create-partitioned-topic", "parts", "-p", "3")
    cli.ok("topics", "create", "orders-billing-DLQ")
    cli.ok("topics", "create-partitioned-topic", "non-persistent://public/default/quick", "-p", "3")
    assert cli.ok("doctor", "topics") == "no damage in 1 namespace\n"
    assert cli.ok("doctor", "topics", "public/default", "--fix") == "no damage in 1 namespace\n"


def test_ac7_bad_metadata_is_found_explained_and_repaired(cli: CommandLine, running: testing.TestBroker) -> None:
    write_metadata(running, "orders-partition-0", 4)
    result = cli("doctor", "topics")
    assert result.code == 1
    assert result.err == ""
    for part in (
        f"{PREFIX}orders-partition-0\n",
        "partitioned metadata (4 partitions) created for a partition, not for a topic; no such partitions exist",
        "look for orders-partition-0-partition-0",
        f"magnetar topics delete-partitioned-topic {PREFIX}orders-partition-0\n",
        "1 damaged in 1 namespace, 0 repaired, 1 left; --fix repairs 1 of them\n",
    ):
        assert part in result.out
    assert cli.json("topics", "list-partitioned-topics", "public/default"), "looking repairs nothing"

    fixed = cli("doctor", "topics", "--fix")
    assert fixed.code == 0
    assert "deleted the metadata" in fixed.out
    assert fixed.out.endswith("1 damaged in 1 namespace, 1 repaired, 0 left\n")
    assert cli.json("topics", "list-partitioned-topics", "public/default") == []
    assert cli.ok("doctor", "topics") == "no damage in 1 namespace\n"


def test_ac7_the_suggested_command_repairs_it(cli: CommandLine, running: testing.TestBroker) -> None:
    write_metadata(running, "orders-partition-0", 4)
    (found,) = damage(cli)
    program, *words = str(found["repair"]).split()
    assert program == "magnetar"
    cli.ok(*words)
    assert damage(cli, code=0) == []


def test_ac7_real_partitions_next_to_bad_metadata_are_not_touched(
    cli: CommandLine, running: testing.TestBroker
) -> None:
    """orders-partition-7 is no partition of orders, which has 3; a careless repair would delete those."""
    cli.ok("topics", "create-partitioned-topic", "orders", "-p", "3")
    write_metadata(running, "orders-partition-7", 3)
    assert [one["fixed"] for one in damage(cli, "--fix", code=0)] == [True]
    assert cli.json("topics", "list", "public/default") == [f"{PREFIX}orders-partition-{index}" for index in range(3)]
    assert cli.json("topics", "list-partitioned-topics", "public/default") == [f"{PREFIX}orders"]


def test_ac7_metadata_that_shares_its_name_with_a_partition_is_left_alone(
    cli: CommandLine, running: testing.TestBroker
) -> None:
    """Apache Pulsar would delete orders-partition-1, including its messages, along with this metadata."""
    cli.ok("topics", "create-partitioned-topic", "orders", "-p", "3")
    write_metadata(running, "orders-partition-1", 2)
    (found,) = damage(cli, "--fix")
    assert (found["fixable"], found["fixed"], found["topics"]) == (False, False, [f"{PREFIX}orders-partition-1"])
    node = "/admin/partitioned-topics/public/default/persistent/orders-partition-1"
    assert f"delete the node {node} in its metadata store" in str(found["repair"])
    assert len(cli.json("topics", "list", "public/default")) == 3


def test_ac7_our_broker_never_deletes_the_sibling_partitions(cli: CommandLine, running: testing.TestBroker) -> None:
    cli.ok("topics", "create-partitioned-topic", "orders", "-p", "3")
    write_metadata(running, "orders-partition-1", 3)
    cli.ok("topics", "delete-partitioned-topic", "orders-partition-1", "--force")
    assert cli.json("topics", "list", "public/default") == [f"{PREFIX}orders-partition-{index}" for index in range(3)]
    assert damage(cli, code=0) == []


def test_ac7_metadata_with_topics_under_it_is_left_alone(cli: CommandLine, running: testing.TestBroker) -> None:
    write_metadata(running, "orders-partition-0", 2)
    cli.ok("topics", "create", "orders-partition-0-partition-1")
    (found,) = damage(cli, "--fix")
    assert (found["fixable"], found["topics"]) == (False, [f"{PREFIX}orders-partition-0-partition-1"])
    assert "by hand" in str(found["repair"])
    assert len(cli.json("topics", "list", "public/default")) == 1


def test_ac7_metadata_created_for_the_dead_letters_of_a_partition_is_repaired(
    cli: CommandLine, running: testing.TestBroker, tmp_path: Path
) -> None:
    """The usual damage: a plain topic with dead letters, and metadata of the same name without partitions."""
    topic = "orders-partition-0-sub-DLQ"
    cli.ok("topics", "create", topic)
    cli.ok("messages", "publish", topic, "dead")
    file = tmp_path / "schema.json"
    definition = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
    file.write_text(json.dumps({"type": "JSON", "schema": definition}))
    cli.ok("schemas", "upload", topic, "-f", str(file))
    write_metadata(running, topic, 2)
    (found,) = damage(cli)
    assert (found["kind"], found["topic"], found["fixable"]) == ("partition-metadata", PREFIX + topic, True)
    (found,) = damage(cli, "--fix", code=0)
    assert found["fixed"]
    assert cli.json("topics", "list-partitioned-topics", "public/default") == []
    assert json.loads(cli.ok("messages", "peek", topic, "--json"))["value"] == "dead"
    assert json.loads(cli.json("schemas", "get", topic)["data"]) == definition


def test_ac7_a_working_partitioned_topic_with_such_a_name_is_no_damage(
    cli: CommandLine, running: testing.TestBroker
) -> None:
    write_metadata(running, "a-partition-of-mine", 2)
    for index in range(2):
        cli.ok("topics", "create", f"a-partition-of-mine-partition-{index}")
    assert damage(cli, "--fix", code=0) == []
    assert len(cli.json("topics", "list-partitioned-topics", "public/default")) == 1


def test_ac7_schemas_deleted_with_the_metadata_are_restored(recorder: Recorder, recorded: CommandLine) -> None:
    """Apache Pulsar deletes the schemas of the topic with the metadata's name."""
    name = "persistent://acme/shop/orders-partition-0-sub-DLQ"
    metadata = f"{SHOP}/orders-partition-0-sub-DLQ/partitions"
    schemas = "/admin/v2/schemas/acme/shop/orders-partition-0-sub-DLQ"
    versions = [{"version": version, "type": "JSON", "data": str(version), "properties": {}} for version in (1, 0)]
    recorder.will_answer("GET", SHOP, [name])
    recorder.will_answer("GET", f"{SHOP}/partitioned", [name])
    recorder.will_answer("GET", "/admin/v2/non-persistent/acme/shop", [])
    recorder.will_answer("GET", "/admin/v2/non-persistent/acme/shop/partitioned", [])
    recorder.will_answer("GET", metadata, {"partitions": 2})
    recorder.will_answer_in_turn(
        "GET", f"{schemas}/schemas", {"getSchemaResponses": versions}, {"getSchemaResponses": []}
    )
    (found,) = damage(recorded, "acme/shop", "--fix", code=0)
    assert found["outcome"] == "deleted the metadata and restored 2 schemas of the topic of the same name"
    changes = [request[:4] for request in recorder.requests if request.method != "GET"]
    assert changes == [
        ("DELETE", metadata, {"force": "false"}, None),
        *(("POST", f"{schemas}/schema", {}, {"type": "JSON", "schema": data, "properties": {}}) for data in ("0", "1")),
    ]


def test_ac7_missing_partitions_are_a_remark(cli: CommandLine, running: testing.TestBroker) -> None:
    write_metadata(running, "orders", 3)
    cli.ok("topics", "create", "orders-partition-1")
    assert cli.ok("doctor", "topics", "--fix").endswith("no damage in 1 namespace; 1 remark\n")
    report = cli.json("doctor", "topics")
    (found,) = report["remarks"]
    assert (report["damage"], report["left"], found["kind"]) == ([], 0, "missing-partitions")
    assert found["topics"] == [f"{PREFIX}orders-partition-0", f"{PREFIX}orders-partition-2"]
    assert found["repair"] == f"magnetar topics create-missed-partitions {PREFIX}orders"
    cli.ok(*str(found["repair"]).split()[1:])
    assert cli.json("doctor", "topics")["remarks"] == []


def test_ac7_chains_of_dead_letter_topics_are_reported(cli: CommandLine) -> None:
    auto = ("-m", "wasAutoCreated=true")
    cli.ok("topics", "create", "orders", *auto)
    cli.ok("topics", "create", "orders-s-RETRY", *auto)
    cli.ok("topics", "create", "orders-s-RETRY-s-DLQ", *auto)
    cli.ok("topics", "create", "orders-s-RETRY-s-DLQ-s-RETRY", *auto)
    cli.ok("topics", "create", "made-by-hand-DLQ")
    cli.ok("topics", "create", "made-by-hand-DLQ-s-RETRY", *auto)
    (found,) = damage(cli, "--fix")
    assert (found["kind"], found["topic"], found["fixable"]) == ("dead-letter-chain", f"{PREFIX}orders-s-RETRY", False)
    assert found["topics"] == [f"{PREFIX}orders-s-RETRY-s-DLQ", f"{PREFIX}orders-s-RETRY-s-DLQ-s-RETRY"]
    assert "does not report" not in str(found["why"])


def test_ac7_without_the_auto_creation_mark_no_topic_is_judged(cli: CommandLine) -> None:
    """Apache Pulsar has no wasAutoCreated."""
    cli.ok("topics", "create", "orders-s-DLQ")
    cli.ok("topics", "create", "orders-s-DLQ-s-DLQ")
    (found,) = damage(cli)
    assert "this broker does not report" in str(found["why"])


def test_ac7_only_the_given_namespaces_are_checked(cli: CommandLine, running: testing.TestBroker) -> None:
    cli.ok("namespaces", "create", "public/other")
    write_metadata(running, "public/other/orders-partition-0", 1)
    assert damage(cli, "public/default", code=0) == []
    assert len(damage(cli, "public/default", "public/other")) == 1
    assert len(damage(cli)) == 1
    assert "did you mean public/other?" in cli.fails("doctor", "topics", "other", code=2)
    assert "(HTTP 404)" in cli.fails("doctor", "topics", "public/nowhere")


def test_ac7_a_change_before_the_repair_stops_it(recorder: Recorder, recorded: CommandLine) -> None:
    """The lists are read again right before a deletion."""
    name = "persistent://acme/shop/orders-partition-0"
    recorder.will_answer("GET", f"{SHOP}/partitioned", [name])
    recorder.will_answer("GET", "/admin/v2/non-persistent/acme/shop/partitioned", [])
    recorder.will_answer("GET", "/admin/v2/non-persistent/acme/shop", [])
    recorder.will_answer("GET", f"{SHOP}/orders-partition-0/partitions", {"partitions": 2})
    recorder.will_answer_in_turn("GET", SHOP, [], [f"{name}-partition-1"])
    (found,) = damage(recorded, "acme/shop", "--fix")
    assert not found["fixed"]
    assert found["outcome"] == f"not repaired: {name}-partition-1 now exists"
    assert "DELETE" not in [request.method for request in recorder.requests]


def test_ac7_damage_remains_if_the_broker_rejects_the_repair(recorder: Recorder, recorded: CommandLine) -> None:
    name = "persistent://acme/shop/orders-partition-0"
    recorder.will_answer("GET", SHOP, [])
    recorder.will_answer("GET", f"{SHOP}/partitioned", [name])
    recorder.will_answer("GET", "/admin/v2/non-persistent/acme/shop", [])
    recorder.will_answer("GET", "/admin/v2/non-persistent/acme/shop/partitioned", [])
    recorder.will_answer("GET", f"{SHOP}/orders-partition-0/partitions", {"partitions": 2})
    recorder.will_answer("DELETE", f"{SHOP}/orders-partition-0/partitions", {"reason": "no"}, status=412)
    (found,) = damage(recorded, "acme/shop", "--fix")
    assert (found["fixed"], found["outcome"]) == (False, "the broker rejected it: no (HTTP 412)")
    node = "/admin/partitioned-topics/acme/shop/persistent/orders-partition-0"
    assert found["repair"] == f"by hand: delete the node {node} in its metadata store"

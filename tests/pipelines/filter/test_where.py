"""Filters, with a real broker and real Spark SQL."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from magnetar.client import EARLIEST, LATEST, Client, InlineClient, MessageId, Schema
from magnetar.client.schema import schema_to_wire
from magnetar.pipelines import clusters
from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.copy.errors import CopyError
from magnetar.pipelines.filter import suspects, where, where_task
from magnetar.pipelines.filter.suspects import Condition, ConditionSuspects
from magnetar.pipelines.filter.where import Filter
from magnetar.pipelines.filter.where_task import Reading, UnreadTopic
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import RoutePolicy, State
from magnetar.replication.where import METADATA_COLUMNS
from magnetar.spark.codec.columns import METADATA, ON_REQUEST, SourceColumns
from magnetar.testing import TestBroker, broker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.metadata import build_blob, messages_in

OVER_ONE = "get_json_object(CAST(value AS STRING), '$.n') > 1"
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "country", "type": ["null", "string"]}],
}


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker() as running:
        yield running


@pytest.fixture(scope="module")
def client(running: TestBroker) -> Iterator[Client]:
    with Client(running.service_url) as client:
        yield client


@pytest.fixture(scope="module")
def filter_(spark: SparkSession, client: Client) -> Filter:
    return Filter(spark, client)


@pytest.fixture
def in_process() -> Iterator[None]:
    """Runs worker code here: its connections are closed afterwards."""
    yield
    for own in clusters._clusters.values():
        own.loop.close(*own._clients.values())
    clusters._clusters.clear()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"persistent://public/default/{request.node.name}"


def chosen(filter_: Filter, assignment: Assignment, after: MessageId | None) -> Assignment:
    ready, failed = filter_.prepare([assignment], {(assignment.topic, assignment.remote.name): after})
    if failed:
        raise CopyError(failed[0].state, failed[0].reason)
    return ready[0]


def assigned(running: TestBroker, topic: str, where: str) -> Assignment:
    source = ClusterEndpoint("a", running.service_url)
    return Assignment(
        source, ClusterEndpoint("b", "pulsar://unused:1"), topic, topic, "magnetar.repl.b", RoutePolicy(where=where)
    )


def batch(*values: bytes, **metadata: object) -> bytes:
    messages = [(pb.SingleMessageMetadata(sequence_id=number), value) for number, value in enumerate(values)]
    head = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=len(values))
    head.MergeFrom(pb.MessageMetadata(**metadata))  # type: ignore[arg-type]
    return build_blob(head, build_batch(messages))


def single(value: bytes, **metadata: object) -> bytes:
    head = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    head.MergeFrom(pb.MessageMetadata(**metadata))  # type: ignore[arg-type]
    return build_blob(head, value)


def published(running: TestBroker, topic: str, *blobs: bytes, schema: pb.Schema | None = None) -> list[MessageId]:
    """The ids of the entries."""
    with InlineClient(running.service_url) as inline:
        producer = inline.run(inline.client.entry_producer(topic, schema=schema))
        for number, blob in enumerate(blobs):
            inline.run(producer.send(blob, sequence_id=number, highest_sequence_id=number, messages=messages_in(blob)))
        inline.run(producer.flush())
        inline.run(producer.close())
    with Client(running.service_url) as client:
        return [entry.id for entries in client.entries(topic, EARLIEST, LATEST) for entry in entries][-len(blobs) :]


def n(*numbers: object) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in numbers]


def test_sp6_messages_that_satisfy_the_condition_stay(running: TestBroker, filter_: Filter, topic: str) -> None:
    ids = published(
        running,
        topic,
        batch(*n(0, 1, 2, 3)),
        batch(*n(1, 1)),
        single(*n(7)),
        single(*n(0)),
        single(b"not JSON: the condition is null"),
        single(b"", null_value=True),
        single(b"?", encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")]),
        single(*n(5), uuid="u", num_chunks_from_msg=2, chunk_id=0),
        single(*n(9), replicated_from="c"),  # is excluded anyway
    )

    done = chosen(filter_, assigned(running, topic, OVER_ONE), EARLIEST)

    kept = done.messages_kept
    assert kept is not None
    reasons = {position: kept.pop(position) for position in list(kept) if isinstance(kept[position], str)}
    assert kept == {ids[0].position: (2, 3), ids[2].position: (0,)}
    assert reasons.keys() == {ids[6].position, ids[7].position}
    assert "encrypted" in str(reasons[ids[6].position])
    assert "chunk" in str(reasons[ids[7].position])
    assert done.until is not None
    assert done.until.position == ids[-1].position


def test_copied_entries_are_not_read_again(running: TestBroker, client: Client, filter_: Filter, topic: str) -> None:
    ids = published(running, topic, *(single(value) for value in n(2, 2, 2)))
    assignment = assigned(running, topic, OVER_ONE)

    done = chosen(filter_, assignment, ids[0])
    assert done.messages_kept == {ids[1].position: (0,), ids[2].position: (0,)}

    with client.cursor(topic, assignment.subscription, initial_position=EARLIEST) as cursor:
        cursor.acknowledge_up_to(ids[1])
    done = chosen(filter_, assignment, None)  # queries the subscription
    assert done.messages_kept == {ids[2].position: (0,)}

    done = chosen(filter_, assignment, ids[2])
    assert done.messages_kept == {}
    assert done.until == ids[2]


def test_a_round_is_limited_and_the_next_continues(
    running: TestBroker, topic: str, in_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = published(running, topic, *(single(value) for value in n(*range(40))))
    reading = Reading(
        (UnreadTopic(ClusterEndpoint("a", running.service_url), topic, "unused", EARLIEST),),
        SourceColumns([column.field for column in METADATA if column.name in ("__messageId", "__error")], []),
        None,
    )
    monkeypatch.setattr(where_task, "ENTRIES_MAX", 10)
    monkeypatch.setattr(where_task, "_ENTRIES_MIN", 1)

    batches = list(reading.rows())

    assert sum(batch.num_rows for batch in batches) == 11
    last = batches[-1].to_pylist()[0]
    assert MessageId.from_bytes(last["__upTo"]).position == ids[9].position


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_sp6_fields_of_a_schema_are_columns(running: TestBroker, filter_: Filter, kind: str) -> None:
    topic = f"persistent://public/default/orders-{kind}"
    schema = schema_to_wire(Schema(type=kind, data=json.dumps(ORDER).encode(), name="orders"))
    orders = [{"id": 1, "country": "DE"}, {"id": 2, "country": None}, {"id": 3, "country": "FR"}]
    encoded = [avro(order) if kind == "AVRO" else json.dumps(order).encode() for order in orders]
    version = (0).to_bytes(8, "big")
    ids = published(
        running,
        topic,
        batch(*encoded, schema_version=version),
        single(b"\xff\xff", schema_version=version),
        schema=schema,
    )

    done = chosen(filter_, assigned(running, topic, "country = 'DE' OR (id > 2 AND __key IS NULL)"), EARLIEST)

    assert done.messages_kept is not None
    assert done.messages_kept[ids[0].position] == (0, 2)
    assert isinstance(done.messages_kept[ids[1].position], str)  # not of its schema: never dropped silently


def avro(order: dict[str, object]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, ORDER, order)
    return out.getvalue()


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("contry = 'DE'", "contry"),
        ("value", "BOOLEAN"),
        ("length(value) >", "PARSE_SYNTAX_ERROR"),
        ("nothing_like_this(value)", "nothing_like_this"),
        ("CAST(CAST(value AS STRING) AS INT) > 1", ": CAST_INVALID_INPUT (SQLSTATE 22018)"),
    ],
)
def test_an_invalid_condition_is_reported(running: TestBroker, filter_: Filter, where: str, named: str) -> None:
    topic = "persistent://public/default/unfit"
    published(running, topic, single(b"a text"))
    with pytest.raises(CopyError) as refused:
        chosen(filter_, assigned(running, topic, where), EARLIEST)
    assert named in refused.value.reason
    assert where in refused.value.reason
    assert topic in refused.value.reason
    assert refused.value.state is State.STOPPED
    assert "\n" not in refused.value.reason


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("CAST(CAST(value AS STRING) AS INT) > 1", "CAST_INVALID_INPUT (SQLSTATE 22018)"),
        ("to_date(CAST(value AS STRING)) IS NULL", "CAST_INVALID_INPUT (SQLSTATE 22018)"),
        ("from_utc_timestamp(__publishTime, CAST(value AS STRING)) IS NULL", "INVALID_TIMEZONE (SQLSTATE 22009)"),
        ("variant_get(to_variant_object(array(CAST(value AS STRING))), '$[0]', 'int') > 1", "INVALID_VARIANT_CAST"),
        ("parse_json(CAST(value AS STRING)) IS NULL", "MALFORMED_RECORD_IN_PARSING"),
        ("CAST(value AS STRING) RLIKE '(4111'", "java.util.regex.PatternSyntaxException"),
    ],
)
def test_an_error_at_run_time_shows_no_value(running: TestBroker, filter_: Filter, where: str, named: str) -> None:
    """The state of a route may be read by roles that may not read its messages."""
    topic = "persistent://public/default/cards"
    published(running, topic, single(b"4111-1111"))
    with pytest.raises(CopyError) as refused:
        chosen(filter_, assigned(running, topic, where), EARLIEST)
    assert named in refused.value.reason
    assert "4111" not in refused.value.reason


def test_an_error_in_a_worker_shows_no_value() -> None:
    text = (
        "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "x.py", line 10, in eval\n    raise\n    ^^^^^\nlib.ArrowInvalid: 4111\n4111Error: 4111'
    )
    assert where._name_in_python(text) == "lib.ArrowInvalid"
    assert where._name_in_python("4111") == "PythonException"


def test_a_value_that_cannot_be_read_is_not_shown() -> None:
    class Decoder:
        needs_keys = False

        def decode(self, *_: object) -> tuple[dict[str, pa.Array], dict[int, str]]:
            return {}, {0: "field a.b: 4111 is not a date", 1: "not JSON: 4111", 2: "the value: field c[]: 4111"}

    errors = where_task.WithoutValues(Decoder()).decode(pa.array([]), None, [], None)[1]
    assert list(errors.values()) == [
        "the value does not match the topic's schema in field a.b",
        "the value does not match the topic's schema",
        "the value does not match the topic's schema in field c[]",
    ]


def test_topics_with_one_condition_share_a_round_but_not_errors(
    running: TestBroker, filter_: Filter, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Reading] = []
    chosen = where._chosen
    monkeypatch.setattr(where, "_chosen", lambda reading, text: asked.append(reading) or chosen(reading, text))
    topics = [f"{topic}-{number}" for number in range(3)]
    ids = {name: published(running, name, *map(single, n(1, 2))) for name in topics[:2]}
    plain = assigned(running, f"{topic}-plain", "")
    wanted = [*(assigned(running, name, OVER_ONE) for name in topics), plain]

    ready, failed = filter_.prepare(wanted, {(name, "b"): EARLIEST for name in topics})

    assert len(asked) == 1
    assert ready[0] is plain
    kept = {done.topic: done.messages_kept for done in ready[1:]}
    assert kept == {name: {ids[name][1].position: (0,)} for name in topics[:2]}
    assert [(outcome.topic, outcome.remote, outcome.state) for outcome in failed] == [(topics[2], "b", State.STOPPED)]
    assert topics[2] in failed[0].reason


def test_an_unreachable_source_stops_only_its_filters(spark: SparkSession) -> None:
    with broker() as gone:
        assignment = assigned(gone, "persistent://public/default/t", OVER_ONE)
    with Client(assignment.source.service_url, operation_timeout_s=0.5) as client:
        ready, failed = Filter(spark, client).prepare([assignment], {})
    assert ready == []
    assert failed[0].state is State.STOPPED
    assert failed[0].reason.startswith("the source cluster")


def test_b9_columns_are_those_of_spark() -> None:
    """The broker checks conditions by these names, without Spark."""
    assert [column.name for column in (*METADATA, *ON_REQUEST)] == list(METADATA_COLUMNS)


def test_code_in_a_condition_is_not_run(running: TestBroker, filter_: Filter, topic: str) -> None:
    """Whatever the broker let in: the pipelines process checks again, and before the analysis."""
    published(running, topic, single(*n(1)))
    for code in (
        "reflect('java.lang.System', 'setProperty', 'magnetar.test', 'x') IS NULL",
        "'${env:HOME}' = __key",
        "exists(array(1), x -> java_method('java.lang.System', 'getenv', 'HOME') IS NULL)",
    ):
        with pytest.raises(CopyError, match=r"cannot be evaluated for .*docs/replication.md|environment"):
            chosen(filter_, assigned(running, topic, code), EARLIEST)
    jvm = filter_._spark._jvm
    assert jvm is not None
    assert jvm.java.lang.System.getProperty("magnetar.test") is None


@pytest.mark.parametrize("code", ["abs(" * 3000 + "1" + ")" * 3000 + " = 1", "(" * 1_000_000, "now(9) IS NULL"])
def test_what_is_too_much_for_spark_stops_one_route(running: TestBroker, filter_: Filter, code: str) -> None:
    published(running, "persistent://public/default/too-much", single(*n(1)))
    hurt = assigned(running, "persistent://public/default/too-much", code)
    other = assigned(running, "persistent://public/default/too-much", "true")
    ready, failed = filter_.prepare([hurt, other], {(hurt.topic, hurt.remote.name): EARLIEST})
    assert [one.policy.where for one in ready] == ["true"]
    assert [one.state for one in failed] == [State.STOPPED]
    assert re.search("characters, more than|StackOverflowError|levels deep|precision", failed[0].reason)


def test_types_of_json_load_no_class(running: TestBroker, filter_: Filter, topic: str) -> None:
    """Spark would create one: a timer starts a thread, which has a name."""
    published(running, topic, single(*n(1)))
    named = {"type": "udt", "class": "java.util.Timer", "pyClass": None, "sqlType": "string"}
    schema = {"type": "struct", "fields": [{"name": "a", "type": named, "nullable": True, "metadata": {}}]}
    for function in ("from_json", "from_csv"):
        code = f"{function}(CAST(value AS STRING), '{json.dumps(schema)}') IS NULL"
        with pytest.raises(CopyError, match="another schema than a text of plain types"):
            chosen(filter_, assigned(running, topic, code), EARLIEST)
    jvm = filter_._spark._jvm
    assert jvm is not None
    threads = jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()
    assert not [thread.getName() for thread in threads if thread.getName().startswith("Timer-")]


def test_a_suspect_is_evaluated_by_itself_and_a_stopped_condition_not_at_all(
    running: TestBroker, spark: SparkSession, client: Client, topic: str, tmp_path: Path
) -> None:
    ids = published(running, topic, *map(single, n(1, 2)))
    assignment = assigned(running, topic, OVER_ONE)
    file = tmp_path / suspects.FILE
    condition = Condition("public/default", OVER_ONE)

    before = ConditionSuspects(file)
    with before.evaluating([condition]):
        before.on_spark_ended()
    now = ConditionSuspects(file)
    assert now.is_suspect(condition)
    assert chosen(Filter(spark, client, now), assignment, EARLIEST).messages_kept == {ids[1].position: (0,)}
    assert not now.is_suspect(condition)
    assert not ConditionSuspects(file).is_suspect(condition)

    with before.evaluating([condition]):
        before.on_spark_ended()
    with pytest.raises(CopyError, match="Spark ended while it was evaluated, and again while it alone was") as stopped:
        chosen(Filter(spark, client, ConditionSuspects(file)), assignment, EARLIEST)
    assert (stopped.value.state, OVER_ONE in stopped.value.reason) == (State.STOPPED, True)
    changed = assigned(running, topic, f"{OVER_ONE} AND true")
    assert chosen(Filter(spark, client, ConditionSuspects(file)), changed, EARLIEST).messages_kept == {
        ids[1].position: (0,)
    }

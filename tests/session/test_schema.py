"""Schemas on the wire, without a socket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from magnetar.session.handles import ClientAddress, SessionState
from magnetar.session.session import Session
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import FrameDecoder, encode_frame
from tests.broker.world import World

Command = pb.BaseCommand
Type = pb.Schema.Type


def avro(**types: Any) -> pb.Schema:
    fields = [{"name": name, "type": type} for name, type in types.items()]
    definition = json.dumps({"type": "record", "name": "R", "fields": fields}).encode()
    return pb.Schema(name="R", type=Type.Avro, schema_data=definition, properties=[pb.KeyValue(key="k", value="v")])


def primitive(type: Type.ValueType) -> pb.Schema:
    return pb.Schema(name="", type=type, schema_data=b"")


class Talk:
    """One connected client; `ask` returns the response after the commit."""

    def __init__(self, world: World | None = None, **settings: Any) -> None:
        self.world = world or World(**settings)
        self.session = Session(self.world.broker, ClientAddress("10.0.0.9:1", "", ""), lambda: None, lambda: None)
        self.ask(Command(type=Command.CONNECT, connect=pb.CommandConnect(client_version="t", protocol_version=21)))
        self._ids = iter(range(1, 1000))

    def request(self, command: Command) -> list[Command]:
        """Returns the immediate response."""
        self.session.receive(encode_frame(command))
        return self._said()

    def _said(self) -> list[Command]:
        return [
            command
            for command, _ in FrameDecoder(8 << 20).receive_data(b"".join(self.session.take_output()))
            if command
        ]

    def ask(self, command: Command) -> Command:
        said = self.request(command)
        self.world.settle()
        (answer,) = said + self._said()
        return answer

    def produce(self, schema: pb.Schema | None = None, topic: str = "t") -> Command:
        number = next(self._ids)
        request = pb.CommandProducer(topic=topic, producer_id=number, request_id=number, schema=schema)
        return self.ask(Command(type=Command.PRODUCER, producer=request))

    def subscribe(self, schema: pb.Schema | None = None, topic: str = "t") -> Command:
        number = next(self._ids)
        request = pb.CommandSubscribe(
            topic=topic,
            subscription=f"s{number}",
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=number,
            request_id=number,
            schema=schema,
        )
        return self.ask(Command(type=Command.SUBSCRIBE, subscribe=request))

    def get(self, version: bytes | None = None, topic: str = "t") -> pb.CommandGetSchemaResponse:
        request = pb.CommandGetSchema(topic=topic, request_id=7, schema_version=version)
        answer = self.ask(Command(type=Command.GET_SCHEMA, getSchema=request)).getSchemaResponse
        assert answer.request_id == 7
        return answer

    def get_or_create(self, schema: pb.Schema, topic: str = "t") -> pb.CommandGetOrCreateSchemaResponse:
        request = pb.CommandGetOrCreateSchema(topic=topic, request_id=8, schema=schema)
        command = Command(type=Command.GET_OR_CREATE_SCHEMA, getOrCreateSchema=request)
        answer = self.ask(command).getOrCreateSchemaResponse
        assert answer.request_id == 8
        return answer


def version(number: int) -> bytes:
    return number.to_bytes(8, "big")


def test_a_producer_receives_the_version_of_its_schema() -> None:
    talk = Talk()
    assert talk.produce(avro(a="int")).producer_success.schema_version == version(0)
    assert talk.produce(avro(a="int")).producer_success.schema_version == version(0)
    evolved = avro(a="int")
    evolved.schema_data = evolved.schema_data.replace(b"]", b', {"name": "b", "type": "int", "default": 0}]')
    assert talk.produce(evolved).producer_success.schema_version == version(1)
    assert talk.produce().producer_success.schema_version == b""


def test_plain_bytes_may_be_registered_too() -> None:
    """The Go client registers its bytes schema, and requests it when it reads."""
    talk = Talk()
    none = primitive(Type.Value("None"))
    assert talk.subscribe(none).type == Command.SUCCESS
    assert talk.produce(none).producer_success.schema_version == version(0)
    assert talk.get().schema.type == Type.Value("None")
    assert talk.produce(avro(a="int")).error.error == pb.IncompatibleSchema
    assert talk.produce().producer_success.schema_version == b""


def test_a_repeated_producer_request_returns_the_same_version() -> None:
    talk = Talk()
    request = pb.CommandProducer(topic="t", producer_id=1, request_id=1, schema=avro(a="int"))
    for _ in range(2):
        answer = talk.ask(Command(type=Command.PRODUCER, producer=request))
        assert answer.producer_success.schema_version == version(0)


def test_success_is_sent_when_the_schema_is_durable() -> None:
    talk = Talk()
    talk.produce()
    request = pb.CommandProducer(topic="t", producer_id=9, request_id=9, schema=avro(a="int"))
    assert talk.request(Command(type=Command.PRODUCER, producer=request)) == []
    lost = Talk(talk.world.restart())
    assert lost.get().error_code == pb.TopicNotFound
    talk.world.settle()
    kept = Talk(talk.world.restart())
    assert kept.get().schema_version == version(0)


def test_an_incompatible_producer_is_rejected_and_the_connection_kept() -> None:
    talk = Talk()
    talk.produce(avro(a="int"))
    refused = talk.produce(avro(a="string"))
    assert refused.type == Command.ERROR
    assert refused.error.error == pb.IncompatibleSchema
    assert "field a: reader type: string not compatible with writer type: int" in refused.error.message
    for bad in (pb.Schema(name="", type=Type.Avro, schema_data=b"nonsense"), primitive(Type.AutoConsume)):
        assert talk.produce(bad).error.error == pb.IncompatibleSchema
    assert talk.session.state is SessionState.CONNECTED
    assert talk.produce(avro(a="int")).type == Command.PRODUCER_SUCCESS
    assert len(talk.world.topic().producers) == 2


def test_consumers_are_checked_and_may_accept_any_schema() -> None:
    talk = Talk()
    assert talk.subscribe(primitive(Type.AutoConsume)).type == Command.SUCCESS
    assert talk.get().error_code == pb.TopicNotFound
    assert talk.subscribe(avro(a="int")).type == Command.SUCCESS
    assert talk.get().schema_version == version(0)
    assert talk.subscribe(avro(a="long")).type == Command.SUCCESS
    refused = talk.subscribe(avro(a="string"))
    assert refused.error.error == pb.IncompatibleSchema
    assert talk.subscribe(primitive(Type.Value("None"))).error.error == pb.IncompatibleSchema
    assert talk.subscribe().type == Command.SUCCESS
    assert len(talk.world.topic().subscriptions) == 4


def test_a_consumer_registers_no_schema_for_a_topic_of_plain_bytes() -> None:
    talk = Talk()
    talk.produce()
    refused = talk.subscribe(avro(a="int"))
    assert refused.error.error == pb.IncompatibleSchema
    assert "has no schema and is in use" in refused.error.message


def test_get_schema_latest_and_by_version() -> None:
    talk = Talk(schemaCompatibilityStrategy="ALWAYS_COMPATIBLE")
    first, second = avro(a="int"), primitive(Type.String)
    talk.produce(first)
    talk.produce(second)
    latest = talk.get()
    assert (latest.schema_version, latest.schema.type, latest.HasField("error_code")) == (
        version(1),
        Type.String,
        False,
    )
    assert latest.schema.name == "public/default/t"
    old = talk.get(version(0))
    assert (old.schema_version, old.schema.schema_data) == (version(0), first.schema_data)
    assert list(old.schema.properties) == list(first.properties)
    assert talk.get(version(0) + bytes(56)).schema_version == version(0)  # as clients before 2.4 send it
    assert talk.get(version(0), topic="t-partition-3").schema.type == Type.Avro
    missing = talk.get(version(2))
    assert (missing.error_code, missing.HasField("schema")) == (pb.TopicNotFound, False)
    assert "no version 2 of a schema" in missing.error_message


@pytest.mark.parametrize(
    ("topic", "wanted", "code"),
    [
        ("missing", None, pb.TopicNotFound),
        ("t", b"", pb.IncompatibleSchema),
        ("t", b"\0\0\0\1", pb.IncompatibleSchema),
        ("t", b"\xff" * 8, pb.TopicNotFound),
        ("nowhere/at/all/it/is", None, pb.InvalidTopicName),
    ],
)
def test_get_schema_of_a_missing_schema(topic: str, wanted: bytes | None, code: int) -> None:
    talk = Talk()
    talk.produce(avro(a="int"))
    answer = talk.get(wanted, topic)
    assert answer.error_code == code
    assert answer.error_message
    assert talk.session.state is SessionState.CONNECTED


def test_get_or_create_schema() -> None:
    talk = Talk()
    assert talk.get_or_create(avro(a="int")).error_code == pb.TopicNotFound  # it does not create topics
    talk.produce(avro(a="int"))
    assert talk.get_or_create(avro(a="int")).schema_version == version(0)
    evolved = avro(a="int")
    evolved.schema_data = evolved.schema_data.replace(b"]", b', {"name": "b", "type": "int", "default": 0}]')
    assert talk.get_or_create(evolved).schema_version == version(1)
    refused = talk.get_or_create(avro(a="string"))
    assert refused.error_code == pb.IncompatibleSchema and "field a" in refused.error_message
    assert talk.get_or_create(primitive(Type.Value("None"))).schema_version == b""


def test_validation_is_enforced_for_all_producers() -> None:
    talk = Talk(isSchemaValidationEnforced=True)
    talk.produce(avro(a="int"))
    assert talk.produce().error.error == pb.IncompatibleSchema
    assert talk.produce(primitive(Type.Value("None"))).error.error == pb.IncompatibleSchema
    assert talk.get_or_create(primitive(Type.Value("None"))).error_code == pb.IncompatibleSchema


def test_a_producer_waiting_for_exclusive_access_receives_its_version_later() -> None:
    talk = Talk()

    def produce(number: int, mode: pb.ProducerAccessMode.ValueType) -> pb.CommandProducerSuccess:
        request = pb.CommandProducer(
            topic="t", producer_id=number, request_id=number, schema=avro(a="int"), producer_access_mode=mode
        )
        return talk.ask(Command(type=Command.PRODUCER, producer=request)).producer_success

    assert produce(1, pb.Exclusive).producer_ready
    assert not produce(2, pb.WaitForExclusive).producer_ready
    close = Command(type=Command.CLOSE_PRODUCER, close_producer=pb.CommandCloseProducer(producer_id=1, request_id=3))
    said = talk.request(close)
    talk.world.settle()
    turns = [command.producer_success for command in said + talk._said() if command.type == Command.PRODUCER_SUCCESS]
    assert [(turn.producer_ready, turn.schema_version) for turn in turns] == [(True, version(0))]

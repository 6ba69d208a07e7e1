"""Schemas that take long to check are examined aside: only their connection waits, and keeps the order of commands."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable

import pytest

from magnetar.bounds import SCHEMAS_WAITING
from magnetar.broker.host import ManualHost
from magnetar.broker.schema.examination import Examination
from magnetar.session.handles import SessionState
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame
from tests.broker.world import World

from .talk import Command, Talk, send_frame


class HoldingHost(ManualHost):
    """Keeps the work until the test lets it happen."""

    def __init__(self) -> None:
        super().__init__()
        self.held: deque[tuple[Callable[[], object], Callable[[], None]]] = deque()

    def run_aside(self, work: Callable[[], object], then: Callable[[], None], client: str) -> None:
        self.held.append((work, then))

    def let_happen(self) -> None:
        super().run_aside(*self.held.popleft(), "")


@pytest.fixture
def host() -> HoldingHost:
    return HoldingHost()


@pytest.fixture
def world(host: HoldingHost) -> World:
    return World(host=host)


def large(fields: int = 300, prefix: str = "field", **default: object) -> pb.Schema:
    definition = {
        "type": "record",
        "name": "R",
        "fields": [{"name": f"{prefix}{number}", "type": "string", **default} for number in range(fields)],
    }
    return pb.Schema(name="R", type=pb.Schema.Type.Avro, schema_data=json.dumps(definition).encode())


def producer(schema: pb.Schema, producer_id: int = 1) -> Command:
    request = pb.CommandProducer(topic="t", producer_id=producer_id, request_id=producer_id, schema=schema)
    return Command(type=Command.PRODUCER, producer=request)


def subscribe(schema: pb.Schema) -> Command:
    request = pb.CommandSubscribe(
        topic="t", subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=2, schema=schema
    )
    return Command(type=Command.SUBSCRIBE, subscribe=request)


def get_or_create(schema: pb.Schema) -> Command:
    request = pb.CommandGetOrCreateSchema(topic="t", request_id=3, schema=schema)
    return Command(type=Command.GET_OR_CREATE_SCHEMA, getOrCreateSchema=request)


def types(said: list[Command]) -> list[int]:
    return [command.type for command in said]


def test_fault_schema_that_takes_long(world: World, host: HoldingHost) -> None:
    first, second = Talk(world), Talk(world, "10.0.0.10:1")
    second.produce("other")
    first.session.receive(encode_frame(producer(large())) + send_frame(0) + send_frame(1))
    assert first.said() == [] and not first.session.can_answer and first.session.has_input
    first.session.receive(send_frame(2))
    first.session.receive(b"")
    for number in range(3):
        second.publish(number)
    assert types(second.said()) == [Command.SEND_RECEIPT] * 3
    assert first.said() == []

    host.let_happen()
    assert first.session.can_answer
    assert types(first.said()) == [Command.PRODUCER_SUCCESS]
    while first.session.has_input:
        first.session.receive(b"")
    receipts = first.said()
    assert [reply.send_receipt.sequence_id for reply in receipts] == [0, 1, 2]
    assert not host.held


@pytest.mark.parametrize("ask", [subscribe, get_or_create, producer])
def test_every_command_with_a_schema_waits(
    world: World, host: HoldingHost, ask: Callable[[pb.Schema], Command]
) -> None:
    talk = Talk(world)
    talk.produce()
    talk.send(Command(type=Command.CLOSE_PRODUCER, close_producer=pb.CommandCloseProducer(producer_id=1, request_id=9)))
    talk.said()
    talk.send(ask(large()), Command(type=Command.PING, ping=pb.CommandPing()))
    assert talk.said() == []
    host.let_happen()
    (answer,) = talk.said()
    assert answer.type in (Command.SUCCESS, Command.PRODUCER_SUCCESS, Command.GET_OR_CREATE_SCHEMA_RESPONSE)
    assert len(world.broker.schemas.versions("public/default/t")) == 1
    talk.session.receive(b"")
    assert types(talk.said()) == [Command.PONG]


def test_a_refusal_is_the_same(world: World, host: HoldingHost) -> None:
    talk = Talk(world)
    talk.send(producer(large()))
    host.let_happen()
    talk.said()
    talk.send(producer(large(prefix="other"), 2))
    host.let_happen()
    (refused,) = talk.said()
    assert refused.type == Command.ERROR and "incompatible with version 0" in refused.error.message
    talk.send(producer(pb.Schema(name="R", type=pb.Schema.Type.Avro, schema_data=b"x" * 5000), 3))
    host.let_happen()
    (refused,) = talk.said()
    assert refused.type == Command.ERROR and "not a valid Avro definition" in refused.error.message


def test_a_schema_added_meanwhile_is_noticed(world: World, host: HoldingHost) -> None:
    first, second = Talk(world), Talk(world, "10.0.0.10:1")
    first.send(producer(large()))
    second.send(producer(large(prefix="other")))
    host.held.rotate()
    host.let_happen()
    assert types(second.said()) == [Command.PRODUCER_SUCCESS]
    host.let_happen()  # worthless by now: it is examined again
    assert first.said() == []
    host.let_happen()
    (refused,) = first.said()
    assert refused.type == Command.ERROR and "incompatible with version 0" in refused.error.message


def test_equal_schemas_become_one_version(world: World, host: HoldingHost) -> None:
    talks = [Talk(world, f"10.0.0.{number}:1") for number in range(10, 14)]
    for talk in talks:
        talk.send(producer(large()))
    while host.held:
        host.let_happen()
    assert [types(talk.said()) for talk in talks] == [[Command.PRODUCER_SUCCESS]] * len(talks)
    assert len(world.broker.schemas.versions("public/default/t")) == 1


def test_a_client_that_leaves_meanwhile(world: World, host: HoldingHost) -> None:
    talk = Talk(world)
    talk.send(producer(large()))
    talk.session.connection_lost()
    host.let_happen()
    assert talk.session.state is SessionState.CLOSED and talk.said() == []
    assert "public/default/t" not in world.broker.catalog.topics and not world.broker.schemas.versions(
        "public/default/t"
    )


def test_a_schema_of_a_client_that_left_is_not_examined(
    world: World, host: HoldingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(world)
    talk.send(producer(large()))
    talk.session.connection_lost()
    monkeypatch.setattr(Examination, "find_or_check", lambda *_: pytest.fail("examined"))
    host.let_happen()
    assert not host.held


def test_bound_schemas_waiting(world: World, host: HoldingHost) -> None:
    talks = [Talk(world, f"10.0.0.9:{number}") for number in range(SCHEMAS_WAITING.limit + 1)]
    for talk in talks:
        talk.send(producer(large()))
    (refused,) = talks[-1].said()
    assert refused.error.error == pb.ServiceNotReady
    assert f"{SCHEMAS_WAITING.limit} schemas of this client wait" in refused.error.message
    other = Talk(world, "10.0.0.10:1")
    other.send(producer(large(), 2))
    assert other.said() == []
    while host.held:
        host.let_happen()
    assert types(other.said()) == [Command.PRODUCER_SUCCESS]
    talks[-1].send(producer(large(prefix="other")))
    assert len(host.held) == 1


def test_a_bug_in_the_work_is_met_where_the_command_is_handled(
    world: World, host: HoldingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    from magnetar.broker.schema import definition

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    talk = Talk(world)
    talk.send(producer(large()))
    monkeypatch.setattr(definition, "check", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        host.let_happen()
    assert talk.session.state is SessionState.CLOSED

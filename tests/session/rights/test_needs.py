"""Every command of the table, by roles with and without rights."""

from __future__ import annotations

import re
from typing import Any

import pytest

from magnetar.access.authorization import Authorization
from magnetar.broker.catalog import permissions
from magnetar.broker.schema.registry import schema_id
from magnetar.names import TopicName
from magnetar.replication.model import ROUTE_FINGERPRINT
from magnetar.session.handles import SessionState
from magnetar.session.rights.needs import HANDLE, OPEN
from magnetar.session.table import TABLE, TableRow
from magnetar.wire import schema_pb2 as pb
from tests.session.rights.roles import Guarded
from tests.session.talk import Command, Talk

TOPIC = "persistent://public/default/t"
SCHEMA = pb.Schema(name="s", schema_data=b"", type=pb.Schema.Type.Value("String"))
REQUESTS: dict[int, Command] = {
    Command.PARTITIONED_METADATA: Command(
        type=Command.PARTITIONED_METADATA,
        partitionMetadata=pb.CommandPartitionedTopicMetadata(topic=TOPIC, request_id=1),
    ),
    Command.LOOKUP: Command(type=Command.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=TOPIC, request_id=1)),
    Command.GET_TOPICS_OF_NAMESPACE: Command(
        type=Command.GET_TOPICS_OF_NAMESPACE,
        getTopicsOfNamespace=pb.CommandGetTopicsOfNamespace(namespace="public/default", request_id=1),
    ),
    Command.GET_SCHEMA: Command(type=Command.GET_SCHEMA, getSchema=pb.CommandGetSchema(topic=TOPIC, request_id=1)),
    Command.GET_OR_CREATE_SCHEMA: Command(
        type=Command.GET_OR_CREATE_SCHEMA,
        getOrCreateSchema=pb.CommandGetOrCreateSchema(topic=TOPIC, request_id=1, schema=SCHEMA),
    ),
    Command.PRODUCER: Command(
        type=Command.PRODUCER, producer=pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=1)
    ),
    Command.SUBSCRIBE: Command(
        type=Command.SUBSCRIBE,
        subscribe=pb.CommandSubscribe(
            topic=TOPIC, subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=1
        ),
    ),
}
"""One request for each command that names a topic or a namespace."""

PRODUCE, CONSUME = {"produce"}, {"consume"}
EITHER = PRODUCE | CONSUME
ENOUGH = {
    Command.PARTITIONED_METADATA: EITHER,
    Command.LOOKUP: EITHER,
    Command.GET_TOPICS_OF_NAMESPACE: EITHER,
    Command.GET_SCHEMA: EITHER,
    Command.GET_OR_CREATE_SCHEMA: PRODUCE,
    Command.PRODUCER: PRODUCE,
    Command.SUBSCRIBE: CONSUME,
}


def error_of(reply: Command) -> int:
    """The error code of any reply; -1 for success."""
    for field, message in reply.ListFields():
        if field.name != "type":
            for name in ("error", "error_code"):
                if name in message.DESCRIPTOR.fields_by_name and message.HasField(name):
                    return int(getattr(message, name))
    return -1


def refused(reply: Command) -> bool:
    return error_of(reply) == pb.AuthorizationError


def test_no_command_is_without_a_need() -> None:
    with pytest.raises(TypeError, match="needs"):
        TableRow(lambda session, command: None)  # type: ignore[call-arg]
    guarded = {
        kind for entries in TABLE.values() for kind, entry in entries.items() if entry.needs not in (OPEN, HANDLE)
    }
    assert guarded == REQUESTS.keys() == ENOUGH.keys()


@pytest.mark.parametrize("kind", REQUESTS, ids=Command.Type.Name)
def test_a_role_without_rights_is_refused_by_every_command_that_names_something(kind: int) -> None:
    world = Guarded()
    reply = world.talk("none").ask(REQUESTS[kind])
    assert refused(reply) and "role \\'none\\' may not do this with" in str(reply)
    assert not world.broker.catalog.topics and not world.broker.catalog.partitioned


@pytest.mark.parametrize("kind", REQUESTS, ids=Command.Type.Name)
@pytest.mark.parametrize("action", ["produce", "consume", "functions"])
def test_the_right_that_the_reference_names_is_enough_and_no_other_is(kind: int, action: str) -> None:
    world = Guarded()
    world.grant("app", action)
    assert refused(world.talk("app").ask(REQUESTS[kind])) == (action not in ENOUGH[kind])
    assert refused(world.talk("other").ask(REQUESTS[kind]))


@pytest.mark.parametrize("kind", REQUESTS, ids=Command.Type.Name)
def test_super_users_and_clients_of_a_broker_without_authorization_are_never_refused(kind: int) -> None:
    world = Guarded()
    assert not refused(world.talk("root").ask(REQUESTS[kind]))


HANDLED = [kind for kind, entry in TABLE[SessionState.CONNECTED].items() if entry.needs == HANDLE]


@pytest.mark.parametrize("kind", HANDLED, ids=Command.Type.Name)
def test_commands_on_handles_find_only_those_of_their_own_connection(kind: int) -> None:
    """Without a right nothing is opened, so there is nothing that these commands could name."""
    world = Guarded()
    world.grant("app", "produce", "consume")
    owner, stranger = world.talk("app"), world.talk("none")
    assert owner.produce().type == Command.PRODUCER_SUCCESS
    assert owner.subscribe().type == Command.SUCCESS
    owner.publish()
    got = owner.said()
    before = _state(owner)
    stranger.send(_on_handle(kind))
    stranger.said()
    owner.said()
    assert got and _state(owner) == before


def _on_handle(kind: int) -> Command:
    """The command with the ids that the owner uses: 1 for its producer and its consumer."""
    command = Command(type=kind)  # type: ignore[arg-type]
    for field in Command.DESCRIPTOR.fields:
        if field.message_type is not None and _kind_of(field.message_type.name) == Command.Type.Name(kind):  # type: ignore[arg-type]
            part = getattr(command, field.name)
            for one in field.message_type.fields:
                if one.name in ("consumer_id", "producer_id", "request_id", "messagePermits"):
                    setattr(part, one.name, 1)
            if kind == Command.ACK:
                part.ack_type = pb.CommandAck.Cumulative
                part.message_id.add(ledgerId=1, entryId=1)
            if kind == Command.SEEK:
                part.message_publish_time = 1
            return command
    raise AssertionError(kind)


def _kind_of(message: str) -> str:
    name = message.removeprefix("Command")
    return "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in name).removeprefix("_")


def _state(talk: Talk) -> Any:
    """What a command of another connection could change."""
    consumers = [(number, one.consumer.permits, one.consumer.unacked) for number, one in talk.session.consumers.items()]
    return consumers, list(talk.session.producers), talk.closed


def metadata(**pairs: str) -> list[pb.KeyValue]:
    return [pb.KeyValue(key=key, value=value) for key, value in pairs.items()]


def test_a_policy_of_a_consumer_needs_produce_on_its_dead_letter_topic() -> None:
    """The broker publishes there in the name of the consumer."""
    world = Guarded()
    world.broker.catalog.create_namespace("public/other")
    world.grant("app", "consume")
    policy = metadata(
        **{
            "deadLetterPolicy.maxRedeliverCount": "2",
            "deadLetterPolicy.deadLetterTopic": "persistent://public/other/dead",
            "deadLetterPolicy.initialSubscriptionName": "kept",
        }
    )
    app = world.talk("app")
    assert "public/other/dead" in app.subscribe(metadata=policy).error.message
    world.grant("app", "produce", namespace="public/other")
    assert "'kept'" in app.subscribe(metadata=policy).error.message
    world.grant("app", "produce", "consume", namespace="public/other")
    assert app.subscribe(metadata=policy).type == Command.SUCCESS


def test_a_subscription_without_a_default_dead_letter_topic_is_refused_alike_with_and_without_authorization() -> None:
    """The code of a name that is none makes clients retry for half a minute."""
    policy = metadata(**{"deadLetterPolicy.maxRedeliverCount": "2"})
    guarded, free = Guarded().talk("root"), Talk(Guarded())
    free.world.broker.authorization = Authorization()
    refused, expected = (talk.subscribe(subscription="a/b", metadata=policy).error for talk in (guarded, free))
    assert refused == expected
    assert refused.error == pb.NotAllowedError and "cannot have the default dead letter topic" in refused.message


def with_schema(kind: int, topic: str) -> Command:
    """The request with a schema, for another topic."""
    command = Command()
    command.CopyFrom(REQUESTS[kind])
    _, body = command.ListFields()[1]
    body.topic = topic
    if "schema" in body.DESCRIPTOR.fields_by_name:
        body.schema.CopyFrom(SCHEMA)
    return command


SCHEMA_REQUESTS = (Command.GET_SCHEMA, Command.GET_OR_CREATE_SCHEMA, Command.PRODUCER, Command.SUBSCRIBE)


def permitted_on(topic: str) -> Guarded:
    """`t` has two partitions and a twin that is not persistent, `n` is not persistent; `app` may use one topic."""
    world = Guarded()
    world.broker.catalog.create_partitioned(TopicName.parse(TOPIC), 2, {})
    permissions.set_on_topic(world.broker.catalog, TopicName.parse(topic), "app", ["produce", "consume"])
    return world


@pytest.mark.parametrize("kind", SCHEMA_REQUESTS, ids=Command.Type.Name)
@pytest.mark.parametrize("topic", [f"{TOPIC}-partition-0", f"non-{TOPIC}"])
def test_a_schema_needs_the_right_on_the_topic_that_it_belongs_to(kind: int, topic: str) -> None:
    """A right on one partition, or on another topic of the same name, was enough."""
    world = permitted_on(topic)
    reply = world.talk("app").ask(with_schema(kind, topic))
    assert refused(reply) and re.search(f"with {TOPIC}[:,]", str(reply))
    assert world.broker.schemas.latest(schema_id(TopicName.parse(TOPIC))) is None
    permissions.set_on_topic(world.broker.catalog, TopicName.parse(TOPIC), "app", ["produce", "consume"])
    assert not refused(world.talk("app").ask(with_schema(kind, topic)))


@pytest.mark.parametrize("topic", [f"{TOPIC}-partition-0", f"non-{TOPIC}"])
def test_without_a_schema_the_right_on_the_topic_itself_is_enough(topic: str) -> None:
    app = permitted_on(topic).talk("app")
    assert app.produce(topic).type == Command.PRODUCER_SUCCESS
    any_schema = pb.Schema(name="", schema_data=b"", type=pb.Schema.AutoConsume)
    assert app.subscribe(topic, schema=any_schema).type == Command.SUCCESS


@pytest.mark.parametrize("kind", SCHEMA_REQUESTS, ids=Command.Type.Name)
@pytest.mark.parametrize("topic", [TOPIC, "non-persistent://public/default/n"])
@pytest.mark.parametrize("partition", ["", "-partition-1"])
def test_a_right_on_a_topic_is_enough_for_its_own_schema(kind: int, topic: str, partition: str) -> None:
    app = permitted_on(topic).talk("app")
    assert not refused(app.ask(with_schema(kind, f"{topic}{partition}")))


def test_an_initial_subscription_needs_consume() -> None:
    world = Guarded()
    world.grant("app", "produce")
    app = world.talk("app")
    assert refused(app.produce(initial_subscription_name="s"))
    assert app.produce().type == Command.PRODUCER_SUCCESS


@pytest.mark.parametrize("producer", ["pulsar.repl.here-->there", "magnetar.repl.here-->there"])
def test_names_of_replicators_need_a_right_of_their_own(producer: str) -> None:
    world = Guarded()
    world.grant("app", "produce", "consume")
    assert refused(world.talk("app").produce(producer_name=producer))
    assert not refused(world.talk("root").produce(producer_name=producer))


def test_the_position_of_a_route_is_not_for_those_who_may_only_consume() -> None:
    world = Guarded()
    world.grant("app", "produce", "consume")
    assert refused(world.talk("app").subscribe(subscription="pulsar.repl.there"))
    assert refused(world.talk("app").subscribe(metadata=metadata(**{ROUTE_FINGERPRINT: "x"})))


def test_a_role_without_rights_does_not_learn_what_exists() -> None:
    world = Guarded()
    for topic in ("t", "persistent://public/none/t", "persistent://none/none/t"):
        assert refused(world.talk("none").subscribe(topic)) and refused(world.talk("none").produce(topic))
    assert error_of(world.talk("none").subscribe("persistent://a")) == pb.InvalidTopicName

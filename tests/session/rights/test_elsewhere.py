"""What the broker does in the name of a role: where the role may do it, as long as it may, and no more than that."""

from __future__ import annotations

import json

import pytest

from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.schema.registry import schema_id
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.names import TopicName
from magnetar.replication.model import PIPELINE, SOURCE_POSITION
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame_with_blob
from magnetar.wire.metadata import build_blob
from tests.session.rights.roles import NAMESPACE, Guarded
from tests.session.talk import Command, Talk

ELSEWHERE = "acme/shop"
ORDERS = TopicName.parse(f"persistent://{ELSEWHERE}/orders")
LETTERS = TopicName.parse(f"persistent://{ELSEWHERE}/letters")
TTL_S = 60


def avro(*fields: tuple[str, str]) -> pb.Schema:
    definition = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    return pb.Schema(name="s", type=pb.Schema.Type.Value("Avro"), schema_data=json.dumps(definition).encode())


def policy_to(target: TopicName) -> list[pb.KeyValue]:
    pairs = {"deadLetterPolicy.maxRedeliverCount": "1", "deadLetterPolicy.deadLetterTopic": target.full}
    return [pb.KeyValue(key=key, value=value) for key, value in pairs.items()]


@pytest.fixture
def world() -> Guarded:
    """`app` may use the default namespace, and publish in another tenant's."""
    world = Guarded()
    catalog = world.broker.catalog
    catalog.create_tenant("acme", catalog.tenants["public"])
    catalog.create_namespace(ELSEWHERE)
    world.save(ELSEWHERE, overrides=Overrides(message_ttl_s=TTL_S))
    world.grant("app", "produce", "consume")
    world.grant("app", "produce", namespace=ELSEWHERE)
    world.grant("owner", "produce", "consume", namespace=ELSEWHERE)
    return world


def fail(world: Guarded, *talks: Talk) -> None:
    """Every message that arrives is returned, until none does."""
    for _ in range(6):
        for talk in talks:
            for command in talk.said():
                if command.type == Command.MESSAGE:
                    ids = [command.message.message_id]
                    nack = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=ids)
                    talk.send(
                        Command(type=Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=nack)
                    )
        world.advance(milliseconds=10_000)


def stored(world: Guarded, name: TopicName) -> int:
    if name.full not in world.broker.catalog.topics:
        return 0
    topic = world.broker.topic(name)
    assert isinstance(topic, PersistentTopic)
    return topic.log.confirmed + 1


def problem(world: Guarded) -> str:
    topic = world.broker.topic(TopicName.parse("t"))
    return str(topic.subscriptions["s"].dead_letters.problem)


def ttl_s(world: Guarded, name: TopicName) -> int:
    return world.broker.catalog.policies_of_topic(name).ttl_ms // 1000


# -- dead letters


def test_dead_letters_go_elsewhere_while_the_role_that_set_the_policy_may_publish_there(world: Guarded) -> None:
    app = world.talk("app")
    assert app.produce().type == Command.PRODUCER_SUCCESS
    assert app.subscribe(metadata=policy_to(LETTERS)).type == Command.SUCCESS
    app.publish(0)
    fail(world, app)
    assert stored(world, LETTERS) == 1 and not problem(world)


@pytest.mark.parametrize("role", ["app", "other"])
def test_a_policy_ends_with_the_right_of_its_author(world: Guarded, role: str) -> None:
    """Also for consumers that declare none, whoever they are: it is kept with the subscription."""
    world.grant("other", "consume")
    app = world.talk("app")
    app.produce()
    assert app.subscribe(metadata=policy_to(LETTERS)).type == Command.SUCCESS
    world.grant("app", namespace=ELSEWHERE)
    consumer = world.talk(role)
    assert consumer.subscribe().type == Command.SUCCESS
    app.publish(0)
    fail(world, consumer)
    assert stored(world, LETTERS) == 0
    assert problem(world) == f"role 'app' may not publish to {LETTERS.full}, where its dead letter policy leads"
    world.grant("app", "produce", namespace=ELSEWHERE)
    fail(world, consumer)
    assert stored(world, LETTERS) == 1, "the message was kept, and goes on"


def test_a_policy_within_its_namespace_needs_no_author(world: Guarded) -> None:
    app = world.talk("app")
    app.produce()
    assert app.subscribe(metadata=policy_to(TopicName.parse("letters"))).type == Command.SUCCESS
    world.grant("other", "produce", "consume")
    world.grant("app")
    other = world.talk("other")
    other.produce()
    other.subscribe()
    other.publish(0)
    fail(world, other)
    assert stored(world, TopicName.parse("letters")) == 1


def test_a_policy_from_before_authorization_stays_within_its_tenant(world: Guarded) -> None:
    for target, letters in ((LETTERS, 0), (TopicName.parse("public/other/letters"), 1)):
        if target.namespace_full not in world.broker.catalog.namespaces:
            world.broker.catalog.create_namespace(target.namespace_full)
        app = world.talk("app")
        app.produce(f"t{letters}")
        world.grant("app", "produce", namespace=target.namespace_full)
        assert app.subscribe(f"t{letters}", metadata=policy_to(target)).type == Command.SUCCESS
        subscription = world.broker.topic(TopicName.parse(f"t{letters}")).subscriptions["s"]
        subscription.record.dead_letters = type(subscription.record.dead_letters)(1, target.full)
        app.publish(0)
        fail(world, app)
        assert stored(world, target) == letters


# -- a topic that others use


def in_use(world: Guarded) -> Talk:
    owner = world.talk("owner")
    assert owner.produce(ORDERS.full, schema=avro(("id", "int"))).type == Command.PRODUCER_SUCCESS
    owner.publish(0)
    owner.said()
    assert ttl_s(world, ORDERS) == TTL_S
    return owner


def test_a_right_to_publish_does_not_change_the_schema_or_the_policies_of_a_topic(world: Guarded) -> None:
    owner, app = in_use(world), world.talk("app")
    assert app.produce("t", schema=avro(("id", "string"))).type == Command.PRODUCER_SUCCESS
    assert app.subscribe(metadata=policy_to(ORDERS)).type == Command.SUCCESS
    app.publish(0)
    fail(world, app)
    assert stored(world, ORDERS) == 2
    assert ttl_s(world, ORDERS) == TTL_S
    assert [version.number for version in world.broker.schemas.versions(schema_id(ORDERS))] == [0]
    assert owner.subscribe(ORDERS.full, schema=avro(("id", "int"))).type == Command.SUCCESS


def test_nor_does_a_message_that_says_it_failed(world: Guarded) -> None:
    in_use(world)
    app = world.talk("app")
    app.produce()
    app.subscribe()
    app.publish(0)
    held = next(command.message.message_id for command in app.said() if command.type == Command.MESSAGE)
    app.produce(ORDERS.full, producer_id=2)
    app.said()
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    metadata.properties.add(key="REAL_TOPIC", value=f"persistent://{NAMESPACE}/t")
    metadata.properties.add(key="ORIGIN_MESSAGE_ID", value=f"{held.ledgerId}:{held.entryId}:-1")
    send(app, metadata, producer_id=2)
    assert [command.type for command in app.said()] == [Command.SEND_RECEIPT]
    assert ttl_s(world, ORDERS) == TTL_S


def test_a_new_topic_and_one_of_an_administrator_keep_dead_letters(world: Guarded) -> None:
    app = world.talk("app")
    app.produce()
    app.subscribe(metadata=policy_to(LETTERS))
    app.publish(0)
    fail(world, app)
    assert ttl_s(world, LETTERS) == 0
    in_use(world)
    root = world.talk("root")
    root.produce("r")
    root.subscribe("r", metadata=policy_to(ORDERS))
    root.publish(0)
    fail(world, root)
    assert ttl_s(world, ORDERS) == 0


# -- copies and pipelines


def send(talk: Talk, metadata: pb.MessageMetadata, producer_id: int = 1) -> None:
    command = Command(type=Command.SEND, send=pb.CommandSend(producer_id=producer_id, sequence_id=0))
    talk.session.receive(encode_frame_with_blob(command, build_blob(metadata, b"x")))
    talk.world.settle()


@pytest.mark.parametrize("forged", [{"replicated_from": "b"}, {"marker_type": 10}])
def test_only_replicators_say_where_a_message_comes_from(world: Guarded, forged: dict[str, object]) -> None:
    """A copy acknowledges its original in the other cluster."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **forged)  # type: ignore[arg-type]
    metadata.properties.add(key=SOURCE_POSITION, value="9000000000:9000000000")
    app = world.talk("app")
    app.produce()
    app.said()
    send(app, metadata)
    (refused,) = app.said()
    assert refused.type == Command.SEND_ERROR and "right to replicate" in refused.send_error.message
    assert stored(world, TopicName.parse("t")) == 0 and not app.closed
    metadata.Clear()
    metadata.producer_name, metadata.sequence_id, metadata.publish_time = "p*", 0, 1  # the byte of the field, elsewhere
    send(app, metadata)
    assert [command.type for command in app.said()] == [Command.SEND_RECEIPT]


def test_a_client_does_not_pass_for_a_pipeline(world: Guarded) -> None:
    """Limits of rates do not hold for pipelines."""
    app = world.talk("app")
    says = [pb.KeyValue(key=PIPELINE, value="x")]
    assert app.subscribe(metadata=says).error.error == pb.AuthorizationError
    assert world.talk("root").subscribe(metadata=says).type == Command.SUCCESS


def test_the_schema_of_a_topic_is_no_matter_of_one_partition(world: Guarded) -> None:
    world.broker.catalog.create_partitioned(TopicName.parse("p"), 2, {})
    world.save(topic_permissions={f"persistent://{NAMESPACE}/p-partition-0": {"one": ["produce", "consume"]}})
    one = world.talk("one")
    request = pb.CommandGetOrCreateSchema(request_id=1, topic="p-partition-0", schema=avro(("id", "int")))
    reply = one.ask(Command(type=Command.GET_OR_CREATE_SCHEMA, getOrCreateSchema=request))
    assert reply.getOrCreateSchemaResponse.error_code == pb.AuthorizationError

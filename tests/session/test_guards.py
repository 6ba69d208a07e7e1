"""An exception in anything that a handler calls costs one client its connection; the others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from magnetar.broker.broker import Broker
from magnetar.broker.catalog import creation
from magnetar.broker.catalog.catalog import Catalog
from magnetar.broker.commit import Group
from magnetar.broker.replication.declaration import DeclaredRoutes
from magnetar.broker.schema.registry import SchemaRegistry
from magnetar.broker.subscription.cursor import Cursor
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.log import Log
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.producer import AccessMode, Producers
from magnetar.broker.topic.topic import Topic
from magnetar.errors import NotAllowed
from magnetar.names import TopicName
from magnetar.session import producer as producing
from magnetar.session import repeated_dead_letters
from magnetar.session import schema as schemas
from magnetar.session.handles import SessionState
from magnetar.session.session import Session
from magnetar.storage.api import StorageError
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame
from magnetar.wire.templates import MessageEncoder, SendReceiptEncoder
from tests.broker.world import World

from .talk import Command, Faults, Talk, send_frame

LEDGER = World().topic().ledger_id  # of the first topic of a new broker


class Once:
    """Replaces something callable: the first call raises, the later ones go through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception) -> None:
        self.was_called = False
        original = getattr(owner, name)

        def planted(*args: Any, **kwargs: Any) -> Any:
            if not self.was_called:
                self.was_called = True
                raise error
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, planted)


class Scene:
    """An offender and a bystander, each with a producer and a consumer of the same topic and subscription."""

    def __init__(self) -> None:
        self.world = World()
        self.faults = Faults(self.world)
        self.bystander = Talk(self.world, "10.0.0.1:1")
        self.bystander.produce(producer_name="bystander")
        self.bystander.subscribe(consumer_name="bystander")
        self.offender = Talk(self.world)
        self.offender.produce(producer_name="offender")
        self.offender.subscribe(consumer_name="offender")
        for sequence_id in range(3):
            self.bystander.publish(sequence_id)
        self.bystander.said()
        self.offender.said()
        self.faults.met.clear()

    def check_the_others(self) -> None:
        """The offender has left nothing behind, and the bystander publishes and receives everything."""
        topic = self.world.topic()
        assert list(topic.producers.by_name) == ["bystander"]
        assert not topic.producers.waiting
        for subscription in topic.subscriptions.values():
            assert {consumer.name for consumer in subscription.consumers} <= {"bystander"}
        assert self.offender.session.state is SessionState.CLOSED
        assert self.offender.closed
        assert not self.offender.session.producers and not self.offender.session.consumers
        self.bystander.publish(100)
        types = [command.type for command in self.bystander.said()]
        assert Command.SEND_RECEIPT in types and Command.MESSAGE in types
        self.world.broker.invariants()


def producer(**options: Any) -> Command:
    request = pb.CommandProducer(topic="t", producer_id=9, request_id=3, **options)
    return Command(type=Command.PRODUCER, producer=request)


def subscribe(**options: Any) -> Command:
    given = {"subscription": "s", "subType": pb.CommandSubscribe.Shared, **options}
    request = pb.CommandSubscribe(topic="t", consumer_id=9, request_id=3, **given)
    return Command(type=Command.SUBSCRIBE, subscribe=request)


def ids(count: int = 1) -> list[pb.MessageIdData]:
    return [pb.MessageIdData(ledgerId=LEDGER, entryId=entry_id) for entry_id in range(count)]


DEAD_LETTERS = [pb.KeyValue(key="deadLetterPolicy.maxRedeliverCount", value="3")]

ACK = Command(
    type=Command.ACK,
    ack=pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids(), request_id=3),
)
FLOW = Command(type=Command.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=1))
REDELIVER = Command(
    type=Command.REDELIVER_UNACKNOWLEDGED_MESSAGES,
    redeliverUnacknowledgedMessages=pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=ids(3)),
)
SEEK = Command(type=Command.SEEK, seek=pb.CommandSeek(consumer_id=1, request_id=3, message_publish_time=5))
LAST_ID = Command(
    type=Command.GET_LAST_MESSAGE_ID, getLastMessageId=pb.CommandGetLastMessageId(consumer_id=1, request_id=3)
)
STATS = Command(type=Command.CONSUMER_STATS, consumerStats=pb.CommandConsumerStats(consumer_id=1, request_id=3))
UNSUBSCRIBE = Command(
    type=Command.UNSUBSCRIBE, unsubscribe=pb.CommandUnsubscribe(consumer_id=1, request_id=3, force=True)
)
CLOSE_CONSUMER = Command(
    type=Command.CLOSE_CONSUMER, close_consumer=pb.CommandCloseConsumer(consumer_id=1, request_id=3)
)
CLOSE_PRODUCER = Command(
    type=Command.CLOSE_PRODUCER, close_producer=pb.CommandCloseProducer(producer_id=1, request_id=3)
)
LOOKUP = Command(type=Command.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic="t", request_id=3))
PARTITIONS = Command(
    type=Command.PARTITIONED_METADATA,
    partitionMetadata=pb.CommandPartitionedTopicMetadata(topic="t", request_id=3),
)
TOPICS = Command(
    type=Command.GET_TOPICS_OF_NAMESPACE,
    getTopicsOfNamespace=pb.CommandGetTopicsOfNamespace(namespace="public/default", request_id=3),
)
GET_SCHEMA = Command(type=Command.GET_SCHEMA, getSchema=pb.CommandGetSchema(topic="t", request_id=3))
CREATE_SCHEMA = Command(
    type=Command.GET_OR_CREATE_SCHEMA,
    getOrCreateSchema=pb.CommandGetOrCreateSchema(
        topic="t", request_id=3, schema=pb.Schema(name="t", schema_data=b"", type=pb.Schema.String)
    ),
)

PLANTS = [
    (producer(), Broker, "topic"),
    (producer(), producing, "admit_producer"),
    (producer(), PersistentTopic, "add_producer"),
    (producer(), Producers, "add"),
    (producer(initial_subscription_name="i"), PersistentTopic, "create_subscription"),
    (producer(initial_subscription_name="i"), Cursor, "create"),
    (producer(), PersistentTopic, "last_sequence_id"),
    (producer(), Session, "send_when_durable"),
    (subscribe(), TopicName, "parse"),
    (subscribe(), Broker, "topic"),
    (subscribe(), DeclaredRoutes, "admits_consumer"),
    (subscribe(), PersistentTopic, "subscribe"),
    (subscribe(), Topic, "_check_consumer_limits"),
    (subscribe(), PersistentTopic, "_find_or_create"),
    (subscribe(subscription="other"), PersistentTopic, "_create"),
    (subscribe(), Subscription, "add_consumer"),
    (subscribe(subscription="other"), Subscription, "_begin"),
    (subscribe(metadata=DEAD_LETTERS), Subscription, "set_dead_letter_policy"),
    (subscribe(metadata=DEAD_LETTERS), PersistentTopic, "save_subscription"),
    (subscribe(), Session, "reply_success"),
    (ACK, Subscription, "ack"),
    (ACK, Cursor, "ack"),
    (ACK, Session, "send_when_durable"),
    (FLOW, Subscription, "flow"),
    (REDELIVER, Subscription, "redeliver"),
    (SEEK, Log, "first_published_from"),
    (SEEK, Subscription, "seek"),
    (LAST_ID, Log, "read_one"),
    (STATS, Cursor, "holes"),
    (UNSUBSCRIBE, Topic, "unsubscribe"),
    (UNSUBSCRIBE, Topic, "check_not_internal"),
    (CLOSE_CONSUMER, Topic, "remove_consumer"),
    (CLOSE_CONSUMER, Session, "reply_success"),
    (CLOSE_PRODUCER, Producers, "remove"),
    (LOOKUP, TopicName, "parse"),
    (LOOKUP, Session, "send"),
    (PARTITIONS, creation, "partitions"),
    (TOPICS, Session, "send"),
    (GET_SCHEMA, SchemaRegistry, "latest"),
    (CREATE_SCHEMA, Broker, "topic"),
    (CREATE_SCHEMA, schemas, "admit_producer"),
]


def _name(value: object) -> str:
    if isinstance(value, Command):
        return Command.Type.Name(value.type)
    return value.rpartition(".")[2] if isinstance(value, str) else getattr(value, "__name__", "").rpartition(".")[2]


@pytest.mark.parametrize(("command", "owner", "method"), PLANTS, ids=_name)
def test_fault_bug_in_a_handler(command: Command, owner: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    plant = Once(monkeypatch, owner, method, RuntimeError("planted"))
    scene.offender.send(command)
    monkeypatch.undo()
    assert plant.was_called
    ((kind, where),) = scene.faults.met
    assert kind == "command"
    assert where.startswith(f"10.0.0.9:1 {Command.Type.Name(command.type)}")
    if command.type != Command.GET_TOPICS_OF_NAMESPACE and (command, method) != (CLOSE_CONSUMER, "reply_success"):
        assert where.rpartition(" ")[2].rpartition("/")[2] == "t"
    errors = [said.error for said in scene.offender.said() if said.type == Command.ERROR]
    if command.type not in (Command.FLOW, Command.REDELIVER_UNACKNOWLEDGED_MESSAGES):
        assert [(error.request_id, error.message) for error in errors] == [
            (3, "unexpected RuntimeError: see the broker's log")
        ]
    if command is UNSUBSCRIBE:
        scene.bystander.said()
        scene.bystander.subscribe(consumer_name="bystander", consumer_id=2)  # it was disconnected by force
    scene.check_the_others()


@pytest.mark.parametrize(
    ("owner", "name"),
    [(PersistentTopic, "publish"), (PersistentTopic, "append"), (PersistentTopic, "_is_read"), (Group, "grow")],
)
def test_fault_bug_in_a_publish(owner: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    Once(monkeypatch, owner, name, RuntimeError("planted"))
    scene.offender.session.receive(send_frame(1) + send_frame(2))
    monkeypatch.undo()
    assert scene.faults.met == [("publish", "10.0.0.9:1 persistent://public/default/t")]
    assert [said.type for said in scene.offender.said() if said.type == Command.SEND_RECEIPT] == []
    scene.check_the_others()


def test_the_rest_of_a_read_is_dropped_after_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    topic = scene.world.topic()
    last = topic.log.last
    Once(monkeypatch, Subscription, "ack", RuntimeError("planted"))
    scene.offender.session.receive(encode_frame(ACK) + send_frame(1) + encode_frame(producer()))
    assert topic.log.last == last
    scene.check_the_others()


def test_a_bug_in_repeated_dead_letters_ends_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.offender.produce("s-DLQ", producer_id=5, producer_name="letters")
    Once(monkeypatch, repeated_dead_letters, "_holds_any", RuntimeError("planted"))
    scene.offender.session.receive(send_frame(1, producer_id=5))
    assert [kind for kind, _ in scene.faults.met] == ["publish"]
    scene.check_the_others()
    assert not scene.world.topic("s-DLQ").producers.by_name


READ_ERROR = StorageError("block 7 of 000012.sst is damaged")


@pytest.mark.parametrize(
    ("command", "owner", "method", "reply"),
    [
        (producer(), PersistentTopic, "last_sequence_id", "error"),
        (producer(initial_subscription_name="i"), PersistentTopic, "create_subscription", "error"),
        (subscribe(), PersistentTopic, "subscribe", "error"),
        (subscribe(metadata=DEAD_LETTERS), Subscription, "set_dead_letter_policy", "error"),
        (ACK, Subscription, "ack", "ackResponse"),
        (LAST_ID, Log, "read_one", "error"),
        (SEEK, Log, "first_published_from", "error"),
        (PARTITIONS, creation, "partitions", "partitionMetadataResponse"),
        (GET_SCHEMA, SchemaRegistry, "latest", "getSchemaResponse"),
        (CREATE_SCHEMA, Broker, "topic", "getOrCreateSchemaResponse"),
    ],
    ids=_name,
)
def test_fault_read_error_in_a_handler(
    command: Command, owner: Any, method: str, reply: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request fails with the reason, and the connection and all else of it stay."""
    scene = Scene()
    Once(monkeypatch, owner, method, READ_ERROR)
    said = scene.offender.ask(command)
    text = "".join(str(value) for _, value in said.ListFields())
    assert "ServiceNotReady" in text
    assert "the broker cannot read what this request needs: block 7 of 000012.sst is damaged" in text
    assert said.HasField(reply)  # type: ignore[arg-type]
    assert [kind for kind, _ in scene.faults.met] == ["command"]
    assert scene.offender.session.state is SessionState.CONNECTED
    assert list(scene.offender.session.producers) == [1] and list(scene.offender.session.consumers) == [1]
    assert sorted(scene.world.topic().producers.by_name) == ["bystander", "offender"]
    assert len(scene.world.subscription().consumers) == 2
    # The same request succeeds when the disk does.
    again = scene.offender.ask(command)
    assert "cannot read" not in str(again)


def test_a_nack_that_meets_a_read_error_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    Once(monkeypatch, Subscription, "redeliver", READ_ERROR)
    scene.offender.send(REDELIVER)
    assert [kind for kind, _ in scene.faults.met] == ["command"]
    scene.check_the_others()


@pytest.mark.parametrize(("owner", "method"), [(Producers, "remove"), (PersistentTopic, "remove_consumer")], ids=_name)
def test_fault_bug_in_a_disconnect(owner: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each producer and consumer of the connection is removed by itself, and what raised is removed again."""
    scene = Scene()
    for number in range(2, 5):
        scene.offender.produce(producer_id=number, producer_name=f"offender-{number}")
        scene.offender.subscribe(consumer_id=number, consumer_name=f"offender-{number}")
    Once(monkeypatch, owner, method, RuntimeError("planted"))
    scene.offender.session.connection_lost()
    assert scene.faults.met == [("disconnect", "10.0.0.9:1 persistent://public/default/t")]
    topic, subscription = scene.world.topic(), scene.world.subscription()
    producers = [name for name in topic.producers.by_name if name != "bystander"]
    consumers = [consumer.name for consumer in subscription.consumers if consumer.name != "bystander"]
    assert producers + consumers == []


def test_a_dead_letter_that_fails_in_a_disconnect_leaves_no_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.offender.subscribe(consumer_id=2, consumer_name="second")
    Once(monkeypatch, Subscription, "_settle", RuntimeError("planted"))
    scene.offender.session.connection_lost()
    scene.offender.closed = True
    scene.check_the_others()


@pytest.mark.parametrize(
    ("owner", "method", "kind"),
    [(SendReceiptEncoder, "encode", "completion"), (MessageEncoder, "encode", "dispatch")],
    ids=_name,
)
def test_fault_bug_in_a_callback(owner: Any, method: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Receipts or messages that cannot be encoded end the connection of their client, after the caller has finished."""
    scene = Scene()
    if kind == "dispatch":
        scene.bystander.send(CLOSE_CONSUMER)
        scene.bystander.said()
    Once(monkeypatch, owner, method, RuntimeError("planted"))
    scene.offender.publish(1)
    scene.world.settle()
    assert [met[0] for met in scene.faults.met] == [kind]
    scene.world.advance(milliseconds=1)
    monkeypatch.undo()
    if kind == "dispatch":
        scene.bystander.subscribe(consumer_name="bystander", consumer_id=2)
    scene.check_the_others()


def _call(name: str) -> Callable[[Session], None]:
    def call(session: Session) -> None:
        consumer, producer = session.consumers[1].consumer, session.producers[1].producer
        arguments: dict[str, tuple[Any, ...]] = {
            "send_error": (producer, 1, RuntimeError()),
            "active_changed": (consumer, True),
            "end_of_topic": (consumer,),
            "close_consumer": (consumer,),
            "close_producer": (producer,),
        }
        getattr(session, name)(*arguments[name])

    return call


@pytest.mark.parametrize("name", ["send_error", "active_changed", "end_of_topic", "close_consumer", "close_producer"])
def test_a_callback_never_raises(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    for planted in ("send", "send_when_durable"):
        monkeypatch.setattr(Session, planted, lambda *_: 1 / 0)
    scene.offender.session.consumers[1].is_known = True
    _call(name)(scene.offender.session)
    assert scene.faults.met == [("command", f"10.0.0.9:1 {name}")]
    monkeypatch.undo()
    scene.world.broker.tick()
    assert scene.offender.session.state is SessionState.CLOSED


def test_a_turn_that_cannot_be_announced_is_not_the_fault_of_the_producer_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    faults = Faults(world)
    first, second = Talk(world, "10.0.0.1:1"), Talk(world)
    exclusive = AccessMode.WaitForExclusive.value
    first.produce(producer_name="first", producer_access_mode=exclusive)
    assert not second.produce(producer_name="second", producer_access_mode=exclusive).producer_success.producer_ready
    Once(monkeypatch, PersistentTopic, "last_sequence_id", RuntimeError("planted"))
    first.send(CLOSE_PRODUCER)
    world.advance(milliseconds=1)
    assert [command.type for command in first.said()] == [Command.SUCCESS]
    assert first.session.state is SessionState.CONNECTED
    assert second.session.state is SessionState.CLOSED
    assert faults.met == [("command", "10.0.0.9:1 persistent://public/default/t")]
    assert not world.topic().producers.by_name


def test_a_refused_initial_subscription_leaves_no_producer() -> None:
    world = World(allowAutoSubscriptionCreation=False)
    talk = Talk(world)
    reply = talk.produce(producer_name="p", initial_subscription_name="i")
    assert reply.type == Command.ERROR
    assert not world.topic().producers.by_name
    assert not talk.session.producers


def test_a_refused_dead_letter_policy_leaves_no_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    Once(monkeypatch, Subscription, "set_dead_letter_policy", NotAllowed("no"))
    scene.offender.send(subscribe(metadata=DEAD_LETTERS))
    assert list(scene.offender.session.consumers) == [1]
    assert len(scene.world.subscription().consumers) == 2


def test_catalog_is_as_before_when_a_subscribe_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    Once(monkeypatch, Catalog, "policies_of_topic", RuntimeError("planted"))
    scene.offender.send(subscribe(subscription="other"))
    assert "other" not in scene.world.topic().subscriptions
    scene.check_the_others()

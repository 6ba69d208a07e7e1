"""Events that the broker reports to its host for the log, and their fields."""

from __future__ import annotations

from pathlib import Path

import msgspec

from magnetar.broker.catalog.failure_policy import BreakerPolicy, DeadLetterPolicy
from magnetar.broker.subscription.consumer import Consumer
from magnetar.log import events
from magnetar.names import TopicName
from magnetar.session.handles import ClientAddress
from magnetar.session.session import Session
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import FrameDecoder, encode_frame
from tests.admin.driver import Admin
from tests.broker.dead_letters import configure, fail, with_policy
from tests.broker.world import World

T = "persistent://public/default/t"
Command = pb.BaseCommand


def check(values: dict[str, object], event: events.Event) -> dict[str, object]:
    """Every field of the sentence has a value."""
    assert set(values) == set(event.fields), event.name
    return values


def test_topics_are_logged_when_they_are_created_and_deleted() -> None:
    world = World()
    world.topic()
    world.broker.catalog.create(TopicName.parse("made"), {})
    created = [check(values, events.TOPIC_CREATED) for values in world.logged(events.TOPIC_CREATED)]
    assert created == [
        {"topic": T, "origin": "auto-created"},
        {"topic": "persistent://public/default/made", "origin": "explicit"},
    ]
    world.broker.delete_topic(TopicName.parse("t"))
    assert world.logged(events.TOPIC_DELETED) == [{"topic": T}]
    again = world.restart()
    assert again.logged(events.TOPIC_CREATED) == [], "what is read from disk is not created"


def test_nothing_is_logged_per_message() -> None:
    world = World()
    consumer = world.consumer()
    before = len(world.host.events)
    world.publish(100)
    world.subscription().redeliver(consumer, world.client.take())
    world.settle()
    for entry in world.client.take():
        world.subscription().ack(entry)
    world.settle()
    assert len(world.host.events) == before


def test_a_circuit_breaker_is_logged_when_it_opens_and_when_it_is_closed() -> None:
    world = World()
    world.publish(20)
    consumer = world.consumer()
    with_policy(world, 1)
    configure(world, breaker=BreakerPolicy(percent=50, window_s=60, minimum=4))
    fail(world, consumer)
    fail(world, consumer)
    (paused,) = world.logged(events.SUBSCRIPTION_PAUSED)
    check(paused, events.SUBSCRIPTION_PAUSED)
    assert (paused["topic"], paused["reason"]) == (T, world.subscription().record.paused)
    world.subscription().resume()
    (resumed,) = world.logged(events.SUBSCRIPTION_RESUMED)
    assert resumed == paused


def test_dl13_an_attributed_crash_names_message_and_consumer() -> None:
    world = World()
    world.publish(1)
    consumer: Consumer = world.consumer(name="c")
    for _ in range(4):
        world.topic().remove_consumer(consumer, vanished=True)
        world.settle()
        consumer = world.consumer(name="c")
    crash = world.logged(events.CRASH_ATTRIBUTED)[0]
    check(crash, events.CRASH_ATTRIBUTED)
    assert crash["position"] == f"{world.topic().ledger_id}:0"
    assert (crash["consumer"], crash["subscription"]) == ("c", world.subscription().name)


def test_a_dead_letter_policy_is_logged_when_it_changes() -> None:
    world = World()
    world.consumer()
    for _ in range(2):
        world.subscription().set_dead_letter_policy(DeadLetterPolicy(3), "consumer c")
    (changed,) = world.logged(events.DEAD_LETTER_POLICY)
    check(changed, events.DEAD_LETTER_POLICY)
    assert changed["policy"] == "to the default topic after 3 redeliveries"
    catalog = world.broker.catalog
    before = catalog.namespaces["public/default"]
    overrides = msgspec.structs.replace(before.overrides, dead_letters=DeadLetterPolicy(5, "public/default/dead"))
    catalog.save_namespace("public/default", msgspec.structs.replace(before, overrides=overrides))
    assert world.logged(events.DEAD_LETTER_POLICY)[1:] == [
        {
            "topic": "public/default/*",
            "subscription": "*",
            "policy": "to public/default/dead after 5 redeliveries",
            "source": "namespace",
        }
    ]


# -- clients


def refused(world: World, *commands: Command) -> tuple[list[tuple[events.Event, dict[str, object]]], list[Command]]:
    """The events that these commands cause, and the replies."""
    address = ClientAddress("10.0.0.9:1234", "pulsar://here:6650", "http://here:8080")
    session = Session(world.broker, address, lambda: None, lambda: None)
    connect = pb.CommandConnect(client_version="Pulsar-Go-1", protocol_version=21)
    world.host.events.clear()
    for command in (Command(type=Command.CONNECT, connect=connect), *commands):
        session.receive(encode_frame(command))
    world.settle()
    replies = FrameDecoder(1 << 20).receive_data(b"".join(session.take_output()))
    return list(world.host.events), [command for command, _ in replies if command is not None]


def test_a_refused_subscribe_is_logged_with_the_reason_that_the_client_got() -> None:
    world = World(subscriptionTypesEnabled=frozenset({"Shared"}))
    subscribe = pb.CommandSubscribe(
        topic=T, subscription="s", subType=pb.CommandSubscribe.Exclusive, consumer_id=1, request_id=7
    )
    ((event, values),), replies = refused(world, Command(type=Command.SUBSCRIBE, subscribe=subscribe))
    assert event is events.SUBSCRIBE_REFUSED
    check(values, event)
    assert values["reason"] == replies[-1].error.message
    assert (values["error"], values["client"], values["version"]) == ("NotAllowedError", "10.0.0.9:1234", "Pulsar-Go-1")


def test_refused_producers_and_lookups_are_logged() -> None:
    producer = pb.CommandProducer(topic="public/none/t", producer_id=1, request_id=1)
    lookup = pb.CommandLookupTopic(topic="bad://x", request_id=2)
    metadata = pb.CommandPartitionedTopicMetadata(topic="public/none/t", request_id=3)
    seek = pb.CommandSeek(consumer_id=5, request_id=4)
    logged, _ = refused(
        World(),
        Command(type=Command.PRODUCER, producer=producer),
        Command(type=Command.LOOKUP, lookupTopic=lookup),
        Command(type=Command.PARTITIONED_METADATA, partitionMetadata=metadata),
        Command(type=Command.SEEK, seek=seek),
    )
    assert [event for event, _ in logged] == [
        events.PRODUCER_REFUSED,
        events.LOOKUP_REFUSED,
        events.LOOKUP_REFUSED,
        events.REQUEST_REFUSED,
    ]
    for event, values in logged:
        check(values, event)


def test_a_refused_connection_is_logged() -> None:
    world = World()
    address = ClientAddress("10.0.0.9:1234", "pulsar://here:6650", "http://here:8080")
    session = Session(world.broker, address, lambda: None, lambda: None)
    session.receive(b"GET / HTTP/1.1\r\n\r\n")
    ((event, values),) = world.host.events
    assert event is events.CONNECT_REFUSED
    check(values, event)
    again = Command(type=Command.CONNECT, connect=pb.CommandConnect(client_version=""))
    ((event, values),), _ = refused(World(), again)
    assert event is events.CONNECTION_FAILED
    check(values, event)


# -- administration


def test_an_admin_change_is_logged_with_its_result_and_a_query_is_not() -> None:
    admin = Admin()
    path = "/admin/v2/persistent/public/default/t"
    admin.host.events.clear()
    admin.done("PUT", path)
    admin("PUT", path)
    admin("GET", path + "/stats")
    admin("GET", path + "/partitions")
    changes = [check(values, event) for event, values in admin.host.events if event is events.ADMIN_CHANGE]
    assert [(change["method"], change["path"], change["status"]) for change in changes] == [
        ("PUT", path, 204),
        ("PUT", path, 409),
    ]
    assert (changes[0]["reason"], changes[1]["reason"]) == ("", "This topic already exists")
    assert str(changes[0]["client"]).startswith("127.0.0.1:")


def test_core_modules_do_not_log_by_themselves() -> None:
    """They report to the host: a simulation stays the same whatever is logged."""
    source = Path(__file__).parents[2] / "src" / "magnetar"
    for room in ("wire", "storage", "broker", "session"):
        for path in (source / room).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            assert "import logging" not in text and "import emit" not in text, path

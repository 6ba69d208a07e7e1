"""A permission that is taken away closes what it had opened, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from magnetar.broker.catalog import permissions
from magnetar.broker.catalog.policies import Overrides
from magnetar.names import TopicName
from magnetar.wire import schema_pb2 as pb
from tests.session.rights.roles import NAMESPACE, Guarded
from tests.session.talk import Command, Talk

TOPIC = TopicName.parse("t")


def opened(world: Guarded, role: str = "app") -> Talk:
    """A client of the role with a producer and a consumer."""
    talk = world.talk(role)
    assert talk.produce().type == Command.PRODUCER_SUCCESS
    assert talk.subscribe().type == Command.SUCCESS
    talk.said()
    return talk


def kinds(talk: Talk) -> list[int]:
    return [command.type for command in talk.said() if command.type != Command.ACTIVE_CONSUMER_CHANGE]


def test_only_what_the_right_had_opened_is_closed() -> None:
    world = Guarded()
    world.grant("app", "produce", "consume")
    world.grant("other", "produce", "consume")
    app, other = opened(world), opened(world, "other")
    world.grant("app", "consume")
    assert kinds(app) == [Command.CLOSE_PRODUCER] and kinds(other) == []
    world.grant("app")
    assert kinds(app) == [Command.CLOSE_CONSUMER] and kinds(other) == []
    assert app.produce().error.error == app.subscribe().error.error == pb.AuthorizationError
    assert not app.closed and list(other.session.producers) == list(other.session.consumers) == [1]
    assert len(world.broker.topic(TOPIC).producers) == 1


def test_what_the_consumer_held_is_delivered_to_another_one() -> None:
    world = Guarded()
    world.grant("app", "produce", "consume")
    world.grant("other", "consume")
    app = opened(world)
    app.publish()
    assert Command.MESSAGE in kinds(app)
    other = world.talk("other")
    other.subscribe()
    assert Command.MESSAGE not in kinds(other)
    world.grant("app", "produce")
    assert Command.MESSAGE in kinds(other)


def test_a_message_on_its_way_when_the_producer_was_closed_is_not_stored() -> None:
    world = Guarded()
    world.grant("app", "produce", "consume")
    app = opened(world)
    world.grant("app", "consume")
    app.publish()
    assert kinds(app) == [Command.CLOSE_PRODUCER] and not app.closed


def test_a_producer_whose_turn_has_come_is_opened_before_it_is_closed() -> None:
    """The close came first, for a producer that the client did not know to be open: it stayed so for ever."""
    world = Guarded()
    world.grant("app", "produce")
    modes = pb.ProducerAccessMode
    first, second = world.talk("app"), world.talk("app")
    assert first.produce(producer_access_mode=modes.Exclusive).producer_success.producer_ready
    assert not second.produce(producer_access_mode=modes.WaitForExclusive).producer_success.producer_ready
    world.grant("app", "consume")
    assert kinds(first) == [Command.CLOSE_PRODUCER]
    assert kinds(second) == [Command.PRODUCER_SUCCESS, Command.CLOSE_PRODUCER]
    assert not world.broker.topic(TOPIC).producers


def test_what_was_just_opened_is_closed_after_its_reply() -> None:
    world = Guarded()
    world.grant("app", "produce", "consume")
    app = world.talk("app")
    app.send(
        Command(type=Command.PRODUCER, producer=pb.CommandProducer(topic="t", producer_id=1, request_id=1)),
        Command(
            type=Command.SUBSCRIBE,
            subscribe=pb.CommandSubscribe(
                topic="t", subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=2
            ),
        ),
    )
    world.grant("app")
    assert kinds(app) == [Command.PRODUCER_SUCCESS, Command.SUCCESS, Command.CLOSE_PRODUCER, Command.CLOSE_CONSUMER]


def change_mode(world: Guarded) -> None:
    world.save(overrides=Overrides(subscription_auth_mode="Prefix"))


def change_subscription(world: Guarded) -> None:
    world.save(subscription_permissions={"s": ["other"]})


def change_tenant(world: Guarded) -> None:
    catalog = world.broker.catalog
    catalog.save_tenant("public", msgspec.structs.replace(catalog.tenants["public"], admin_roles=[]))


@pytest.mark.parametrize("change", [change_mode, change_subscription])
def test_changes_of_who_may_use_a_subscription_close_its_consumers(change: object) -> None:
    world = Guarded()
    world.grant("app", "produce", "consume")
    app = opened(world)
    change(world)  # type: ignore[operator]
    assert kinds(app) == [Command.CLOSE_CONSUMER]


def test_an_admin_who_is_none_any_more() -> None:
    world = Guarded()
    catalog = world.broker.catalog
    catalog.save_tenant("public", msgspec.structs.replace(catalog.tenants["public"], admin_roles=["app"]))
    app = opened(world)
    change_tenant(world)
    assert kinds(app) == [Command.CLOSE_PRODUCER, Command.CLOSE_CONSUMER]


def test_a_permission_on_a_topic() -> None:
    world = Guarded()
    catalog = world.broker.catalog
    permissions.set_on_topic(catalog, TOPIC, "app", ["produce", "consume"])
    app = opened(world)
    permissions.set_on_topic(catalog, TOPIC, "app", None)
    assert kinds(app) == [Command.CLOSE_PRODUCER, Command.CLOSE_CONSUMER]


def test_a_right_on_the_dead_letter_topic_of_another_tenant() -> None:
    world = Guarded()
    catalog = world.broker.catalog
    catalog.create_tenant("acme", catalog.tenants["public"])
    catalog.create_namespace("acme/dead")
    world.grant("app", "consume")
    world.grant("app", "produce", namespace="acme/dead")
    app = world.talk("app")
    policy = [
        pb.KeyValue(key="deadLetterPolicy.maxRedeliverCount", value="2"),
        pb.KeyValue(key="deadLetterPolicy.deadLetterTopic", value="persistent://acme/dead/letters"),
    ]
    assert app.subscribe(metadata=policy).type == Command.SUCCESS
    world.grant("app", namespace="acme/dead")
    assert Command.CLOSE_CONSUMER in kinds(app)


def test_a_connection_that_is_gone_is_forgotten() -> None:
    world = Guarded()
    world.grant("app", "produce", "consume")
    app = opened(world)
    app.session.connection_lost()
    watchers = world.broker.authorization._watchers
    assert not watchers
    world.grant("app")
    assert NAMESPACE in world.broker.catalog.namespaces

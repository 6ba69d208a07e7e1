"""SP2, SP3: producers that move messages, by the commands of a client; names, rights, receipts and errors."""

from __future__ import annotations

import pytest

from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.deadletter.properties import ORIGIN_MESSAGE_ID, REAL_TOPIC
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame_with_blob
from magnetar.wire.metadata import build_blob
from magnetar.wire.moves import MOVE_ONLY, MOVE_SUBSCRIPTION, MOVE_TOPIC, MOVED
from tests.broker.world import World
from tests.session.rights.roles import Guarded
from tests.session.talk import Command, Talk

NOWHERE = (1 << 64) - 1
ELSEWHERE = "acme/shop"


def metadata(topic: str = "t", subscription: str = "s", only: str = "") -> list[pb.KeyValue]:
    pairs = {MOVE_TOPIC: topic, MOVE_SUBSCRIPTION: subscription, MOVE_ONLY: only}
    return [pb.KeyValue(key=key, value=value) for key, value in pairs.items() if value]


def prepared(world: World) -> str:
    """Ten messages and a subscription. Returns the ledger with a colon."""
    world.topic().create_subscription(SubscribeRequest("s", from_earliest=True))
    world.publish(10)
    return f"{world.topic().ledger_id}:"


def send(talk: Talk, sequence_id: int, positions: str, producer_id: int = 1, **properties: str) -> None:
    """Sends an entry that moves; `said` has the reply."""
    properties[MOVED] = positions
    described = pb.MessageMetadata(producer_name="m", sequence_id=sequence_id, publish_time=1)
    described.properties.extend(pb.KeyValue(key=key, value=value) for key, value in properties.items())
    command = Command(type=Command.SEND, send=pb.CommandSend(producer_id=producer_id, sequence_id=sequence_id))
    talk.session.receive(encode_frame_with_blob(command, build_blob(described, b"x")))


def receipts(talk: Talk) -> list[tuple[int, int]]:
    """Sequence id and entry id."""
    found = [said.send_receipt for said in talk.said() if said.type == Command.SEND_RECEIPT]
    return [(receipt.sequence_id, receipt.message_id.entryId) for receipt in found]


def test_sp2_receipts_of_moves_and_of_duplicates() -> None:
    world = World(brokerDeduplicationEnabled=True)
    ledger = prepared(world)
    talk = Talk(world)
    for life in range(2):
        opened = talk.produce("out", life, producer_name="same", user_provided_producer_name=True, metadata=metadata())
        assert opened.producer_success.last_sequence_id == -1
        for sequence_id in range(3):
            send(talk, sequence_id, f"{ledger}{sequence_id + life}", life)
        expected = [0, 1, 2] if not life else [NOWHERE, NOWHERE, 3]
        assert receipts(talk) == list(enumerate(expected))
        close = pb.CommandCloseProducer(producer_id=life, request_id=9)
        assert talk.ask(Command(type=Command.CLOSE_PRODUCER, close_producer=close)).type == Command.SUCCESS


def test_sp2_a_refused_move_is_an_error_and_ends_what_is_stored() -> None:
    world = World()
    ledger = prepared(world)
    talk = Talk(world)
    talk.produce("out", metadata=metadata())
    for sequence_id, positions in enumerate(("0", "0-1", "5")):
        send(talk, sequence_id, ledger + positions)
    said = talk.said()
    errors = [one.send_error for one in said if one.type == Command.SEND_ERROR]
    assert [(error.sequence_id, error.error) for error in errors] == [(1, pb.NotAllowedError), (2, pb.NotAllowedError)]
    assert "1 of 2 positions of persistent://public/default/t" in errors[0].message
    assert world.topic("out").log.confirmed == 0
    assert talk.session.pending_publishes == 0


@pytest.mark.parametrize(
    ("target", "given", "code", "text"),
    [
        (
            "out",
            metadata(subscription=""),
            pb.MetadataError,
            "needs magnetar.move.topic and magnetar.move.subscription",
        ),
        ("out", metadata(topic=""), pb.MetadataError, "needs magnetar.move.topic and magnetar.move.subscription"),
        ("out", metadata("", "", "a"), pb.MetadataError, "needs magnetar.move.topic and magnetar.move.subscription"),
        ("out", metadata("a://b"), pb.InvalidTopicName, "a://b"),
        ("out", metadata("none"), pb.TopicNotFound, "topic persistent://public/default/none, which messages"),
        ("out", metadata(subscription="none"), pb.SubscriptionNotFound, "subscription 'none' not found"),
        ("out", metadata(only="none"), pb.SubscriptionNotFound, "subscription 'none' not found"),
        ("out", metadata("out", "*"), pb.NotAllowedError, "has no durable subscription"),
        ("non-persistent://public/default/n", metadata(), pb.NotAllowedError, "which is not persistent"),
    ],
)
def test_sp2_what_cannot_be_moved_is_refused_at_once(
    target: str, given: list[pb.KeyValue], code: pb.ServerError.ValueType, text: str
) -> None:
    world = World()
    prepared(world)
    talk = Talk(world)
    reply = talk.produce(target, metadata=given)
    assert reply.type == Command.ERROR and reply.error.error == code, reply
    assert text in reply.error.message
    assert not talk.session.producers and not talk.closed


def test_sp2_a_replicator_moves_nothing() -> None:
    world = World()
    prepared(world)
    reply = Talk(world).produce("out", producer_name="magnetar.repl.east/t/1", metadata=metadata())
    assert "replicates: it cannot move messages too" in reply.error.message


def test_sp2_a_dead_letter_that_is_moved_is_never_taken_for_a_repeated_one() -> None:
    """Its connection holds the message that it names, and published a dead letter for it before."""
    world = World()
    ledger = prepared(world)
    talk = Talk(world)
    talk.subscribe("t")
    talk.produce("t-s-DLQ", 1)
    talk.produce("t-s-DLQ", 2, metadata=metadata())
    origin = {REAL_TOPIC: "t", ORIGIN_MESSAGE_ID: f"{ledger}3:-1"}
    talk.said()
    for producer_id in (1, 1, 2, 2):
        send(talk, 0, f"{ledger}3", producer_id, **origin)
    assert [entry_id for _, entry_id in receipts(talk)] == [0, NOWHERE, 1, NOWHERE]
    assert world.subscription().cursor.is_acked(3)


# -- rights


@pytest.fixture
def world() -> Guarded:
    """`app` may publish to `out`, and may do nothing with `t`, which is in another tenant."""
    world = Guarded()
    catalog = world.broker.catalog
    catalog.create_tenant("acme", catalog.tenants["public"])
    catalog.create_namespace(ELSEWHERE)
    world.grant("app", "produce")
    world.topic(f"{ELSEWHERE}/t").create_subscription(SubscribeRequest("s", from_earliest=True))
    world.publish(10, f"{ELSEWHERE}/t")
    world.settle()
    return world


SOURCE = f"persistent://{ELSEWHERE}/t"


@pytest.mark.parametrize("subscription", ["s", "*"])
def test_sp2_moving_needs_consume_on_the_source(world: Guarded, subscription: str) -> None:
    app, given = world.talk("app"), metadata(SOURCE, subscription)
    refused = app.produce("out", metadata=given).error
    assert (refused.error, refused.message.startswith("role 'app' may not do this with " + SOURCE)) == (4, True)
    world.grant("app", "consume", namespace=ELSEWHERE)
    assert app.produce("out", metadata=given).type == Command.PRODUCER_SUCCESS


def test_sp2_a_right_that_is_taken_away_closes_the_producer(world: Guarded) -> None:
    world.grant("app", "consume", namespace=ELSEWHERE)
    app = world.talk("app")
    app.produce("out", metadata=metadata(SOURCE))
    world.grant("app", namespace=ELSEWHERE)
    assert [said.type for said in app.said()] == [Command.CLOSE_PRODUCER]
    send(app, 0, f"{world.topic(SOURCE).ledger_id}:0")
    assert app.said() == []
    assert world.subscription("s", SOURCE).backlog == 10


def test_sp3_a_move_for_all_needs_the_right_to_each_also_to_later_ones(world: Guarded) -> None:
    world.grant("app", "consume", namespace=ELSEWHERE)
    app = world.talk("app")
    app.produce("out", metadata=metadata(SOURCE, "*"))
    ledger = f"{world.topic(SOURCE).ledger_id}:"
    send(app, 0, ledger + "0")
    assert receipts(app) == [(0, 0)]
    world.topic(SOURCE).create_subscription(SubscribeRequest("private", from_earliest=True))
    world.save(ELSEWHERE, subscription_permissions={"private": ["owner"]})
    send(app, 1, ledger + "1")
    (error,) = [said.send_error for said in app.said() if said.type == Command.SEND_ERROR]
    assert (error.error, "subscription 'private'" in error.message) == (pb.AuthorizationError, True)
    assert world.subscription("s", SOURCE).backlog == 9


def test_sp2_a_named_subscription_with_own_roles(world: Guarded) -> None:
    world.grant("app", "consume", namespace=ELSEWHERE)
    world.save(ELSEWHERE, subscription_permissions={"s": ["owner"]})
    assert "only for the roles" in world.talk("app").produce("out", metadata=metadata(SOURCE)).error.message


def test_sp3_entries_for_one_subscription_need_no_other_right(world: Guarded) -> None:
    """A role withholds nothing but its own messages, which it need not have published."""
    world.grant("app", "consume", namespace=ELSEWHERE)
    world.grant("app", "produce")
    for name in ("a", "b"):
        world.topic("out").create_subscription(SubscribeRequest(name, from_earliest=True))
    world.settle()
    app = world.talk("app")
    assert app.produce("out", metadata=metadata(SOURCE, "s", "a")).type == Command.PRODUCER_SUCCESS
    send(app, 0, f"{world.topic(SOURCE).ledger_id}:0")
    assert receipts(app) == [(0, 0)]
    assert [world.subscription(name, "out").backlog for name in ("a", "b")] == [1, 0]

"""GR7: Apache Pulsar's replicators as clients of this broker, on the wire."""

from __future__ import annotations

import pytest

from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.catalog.record import ClusterRecord, NamespaceRecord
from magnetar.replication.model import (
    AS_IT_IS,
    ROUTE_FINGERPRINT,
    SOURCE_POSITION,
    Mask,
    RoutePolicy,
    route_fingerprint,
)
from magnetar.replication.route_parts import RouteParts
from magnetar.session.handles import ClientAddress
from magnetar.session.session import Session
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import FrameDecoder, encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob
from tests.broker.world import World

Command = pb.BaseCommand
JAVA_LONG_MIN = 1 << 63  # as the unsigned number of the protocol


class Replicator:
    """A connection with one producer."""

    def __init__(self, world: World, name: str, *, knows_positions: bool) -> None:
        self._world = world
        self.session = Session(
            world.broker,
            ClientAddress("10.0.0.9:1234", "pulsar://here:6650", "http://here:8080"),
            lambda: None,
            lambda: None,
        )
        flags = pb.FeatureFlags(supports_repl_dedup_by_lid_and_eid=knows_positions)
        connect = pb.CommandConnect(client_version="Pulsar-Java", protocol_version=21, feature_flags=flags)
        producer = pb.CommandProducer(topic="t", producer_id=1, request_id=1, producer_name=name)
        (connected,) = self.request(Command(type=Command.CONNECT, connect=connect))
        assert connected.connected.feature_flags.supports_repl_dedup_by_lid_and_eid
        (success,) = self.request(Command(type=Command.PRODUCER, producer=producer))
        assert success.type == Command.PRODUCER_SUCCESS

    def request(self, command: Command, blob: bytes | None = None) -> list[Command]:
        frame = encode_frame(command) if blob is None else encode_frame_with_blob(command, blob)
        self.session.receive(frame)
        self._world.settle()
        frames = FrameDecoder(1 << 20).receive_data(b"".join(self.session.take_output()))
        return [said for said, _ in frames]

    def send(self, sequence_id: int, position: str = "", marker: int = 0) -> Command:
        metadata = pb.MessageMetadata(producer_name="original", sequence_id=3, publish_time=1)
        if position:
            metadata.properties.append(pb.KeyValue(key=SOURCE_POSITION, value=position))
        if marker:
            metadata.marker_type = marker
        send = pb.CommandSend(producer_id=1, sequence_id=sequence_id, num_messages=1, marker=bool(marker))
        (answer,) = self.request(Command(type=Command.SEND, send=send), build_blob(metadata, b"x"))
        return answer


def receipt(answer: Command) -> tuple[int, int, int, int]:
    """Sequence id, highest sequence id, and the stored position."""
    assert answer.type == Command.SEND_RECEIPT
    said = answer.send_receipt
    return said.sequence_id, said.highest_sequence_id, said.message_id.ledgerId, said.message_id.entryId


NOWHERE = ((1 << 64) - 1, (1 << 64) - 1)


def test_gr7_receipts_are_those_of_apache_pulsar() -> None:
    world = World()
    replicator = Replicator(world, "pulsar.repl.east-->standalone", knows_positions=True)
    ledger = world.topic().ledger_id
    assert receipt(replicator.send(0, "5:9")) == (5, 9, ledger, 0)
    assert receipt(replicator.send(1, "5:9")) == (5, 9, *NOWHERE)
    assert receipt(replicator.send(2, marker=10)) == (2, JAVA_LONG_MIN, *NOWHERE)
    assert receipt(replicator.send(3, "5:10")) == (5, 10, ledger, 1)
    refused = replicator.send(4)
    assert refused.type == Command.SEND_ERROR and refused.send_error.sequence_id == 4
    assert receipt(replicator.send(5, "5:11")) == (5, 11, ledger, 2)


def test_gr7_without_the_feature_flag_receipts_have_sequence_ids() -> None:
    world = World()
    replicator = Replicator(world, "pulsar.repl.east", knows_positions=False)
    ledger = world.topic().ledger_id
    assert receipt(replicator.send(0, "5:9")) == (0, 0, ledger, 0)
    assert receipt(replicator.send(1, marker=12)) == (1, 1, *NOWHERE)


@pytest.mark.parametrize("name", ["someone", "magnetar.repl.east/t/1"])
def test_gr7_other_producers_on_such_a_connection_are_unaffected(name: str) -> None:
    world = World()
    producer = Replicator(world, name, knows_positions=True)
    assert receipt(producer.send(7, "5:9")) == (7, 7, world.topic().ledger_id, 0)


def test_gr6_a_pipeline_receives_its_last_sequence_id() -> None:
    world = World()
    Replicator(world, "magnetar.repl.east/t/1", knows_positions=False).send(7)
    again = world.restart()
    session = Replicator(again, "other", knows_positions=False)
    request = pb.CommandProducer(topic="t", producer_id=2, request_id=2, producer_name="magnetar.repl.east/t/1")
    (success,) = session.request(Command(type=Command.PRODUCER, producer=request))
    assert success.producer_success.last_sequence_id == 7


def test_a_pipeline_may_consume_with_any_allowed_subscription_types() -> None:
    world = World(subscriptionTypesEnabled=frozenset({"Shared"}))
    world.broker.catalog.save_cluster("east", ClusterRecord())
    overrides = Overrides(replication_clusters=["standalone", "east"])
    world.broker.catalog.save_namespace("public/default", NamespaceRecord(overrides=overrides))
    connection = Replicator(world, "p", knows_positions=False)

    def subscribe(name: str, consumer_id: int) -> Command:
        request = pb.CommandSubscribe(
            topic="t", subscription=name, subType=pb.CommandSubscribe.Exclusive, consumer_id=consumer_id, request_id=9
        )
        return connection.request(Command(type=Command.SUBSCRIBE, subscribe=request))[0]

    assert subscribe("pulsar.repl.east", 1).type == Command.SUCCESS
    assert "not enabled" in subscribe("s", 2).error.message
    assert "reserved" in subscribe("pulsar.repl.west", 3).error.message
    unsubscribe = pb.CommandUnsubscribe(consumer_id=1, request_id=10)
    (refused,) = connection.request(Command(type=Command.UNSUBSCRIBE, unsubscribe=unsubscribe))
    assert refused.error.error == pb.NotAllowedError


def test_gr6_nothing_is_stored_after_a_rejected_copy() -> None:
    """Only the last position is remembered: a copy after a gap would make the gap look copied."""
    world = World()
    pipeline = Replicator(world, "magnetar.repl.east/t/1", knows_positions=False)
    ledger = world.topic().ledger_id
    assert receipt(pipeline.send(0)) == (0, 0, ledger, 0)
    broken = pb.CommandSend(producer_id=1, sequence_id=1, num_messages=1)
    (refused,) = pipeline.request(Command(type=Command.SEND, send=broken), b"no metadata at all")
    after = pipeline.send(2)
    assert refused.type == after.type == Command.SEND_ERROR
    assert (after.send_error.sequence_id, after.send_error.error) == (2, refused.send_error.error)
    again = Replicator(world, "magnetar.repl.east/t/1/anew", knows_positions=False)
    assert receipt(again.send(0)) == (0, 0, ledger, 1)
    assert world.topic().last_sequence_id("magnetar.repl.east/t/1") == 0


def test_messages_of_others_after_a_rejection_are_stored() -> None:
    world = World()
    producer = Replicator(world, "someone", knows_positions=False)
    broken = pb.CommandSend(producer_id=1, sequence_id=1, num_messages=1)
    (refused,) = producer.request(Command(type=Command.SEND, send=broken), b"no metadata at all")
    assert refused.type == Command.SEND_ERROR
    assert receipt(producer.send(2)) == (2, 2, world.topic().ledger_id, 0)


def test_sp6_a_consumer_that_copies_under_an_old_route_policy_is_disconnected() -> None:
    """Messages published after a mask was set must not be copied without it."""
    world = World()
    replication = world.broker.replication
    world.broker.catalog.save_cluster("west", ClusterRecord(broker_service_url="pulsar://west:6650"))
    overrides = Overrides(replication_clusters=["standalone", "west"])
    world.broker.catalog.save_namespace("public/default", NamespaceRecord(overrides=overrides))
    world.topic()
    masked = RoutePolicy(masks=(Mask("email"),))
    reader = Replicator(world, "someone", knows_positions=False)

    def subscribe(consumer_id: int, mark: str) -> list[Command]:
        subscribe = pb.CommandSubscribe(
            topic="t", subscription=f"s{consumer_id}", consumer_id=consumer_id, request_id=7, durable=False
        )
        subscribe.subType = pb.CommandSubscribe.Exclusive
        subscribe.metadata.append(pb.KeyValue(key=ROUTE_FINGERPRINT, value=mark))
        return reader.request(Command(type=Command.SUBSCRIBE, subscribe=subscribe))

    assert [said.type for said in subscribe(1, route_fingerprint("west", AS_IT_IS))] == [Command.SUCCESS]
    (refused,) = subscribe(2, route_fingerprint("west", masked))
    assert refused.error.error == pb.ConsumerAssignError

    replication.set_route("west", "public/default/t", RouteParts(masks=masked.masks))
    world.settle()
    (closed,) = [said for said, _ in FrameDecoder(1 << 20).receive_data(b"".join(reader.session.take_output()))]
    assert closed.type == Command.CLOSE_CONSUMER and closed.close_consumer.consumer_id == 1
    assert "s1" not in world.topic().subscriptions
    (refused,) = subscribe(3, route_fingerprint("west", AS_IT_IS))
    assert refused.type == Command.ERROR
    assert [said.type for said in subscribe(4, route_fingerprint("west", masked))] == [Command.SUCCESS]

    world.broker.catalog.save_namespace("public/default", NamespaceRecord())
    world.settle()
    assert "s4" not in world.topic().subscriptions, "it is not replicated any more"

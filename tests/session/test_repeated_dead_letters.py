"""DL12: a dead letter that a client publishes twice, because its ack was lost, is stored once."""

from __future__ import annotations

from itertools import count

import pytest

from magnetar.deadletter.properties import Origin, read_origin
from magnetar.session.handles import ClientAddress
from magnetar.session.session import Session
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.batch import build_batch
from magnetar.wire.compression import compress
from magnetar.wire.entry import messages_of
from magnetar.wire.frames import FrameDecoder, encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob, split_blob
from tests.broker.world import World

Command = pb.BaseCommand
DLQ = "t-s-DLQ"


class Connection:
    """A client with a consumer of `t` and a producer of the dead letter topic."""

    def __init__(self, world: World, target: str = DLQ, *, subscribes: bool = True) -> None:
        self.world = world
        address = ClientAddress("10.0.0.9:1234", "pulsar://here:6650", "http://here:8080")
        self.session = Session(world.broker, address, lambda: None, lambda: None)
        self._ids = count()
        self.target = target
        self.request(Command(type=Command.CONNECT, connect=pb.CommandConnect(client_version="t", protocol_version=21)))
        if subscribes:
            subscribe = pb.CommandSubscribe(
                topic="t", subscription="s", subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=1
            )
            subscribe.initialPosition = pb.CommandSubscribe.Earliest
            self.request(Command(type=Command.SUBSCRIBE, subscribe=subscribe))
            self.request(Command(type=Command.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=100)))
        self.request(
            Command(type=Command.PRODUCER, producer=pb.CommandProducer(topic=target, producer_id=2, request_id=2))
        )

    def request(self, command: Command) -> list[Command]:
        return self._exchange(encode_frame(command))

    def _exchange(self, data: bytes) -> list[Command]:
        self.session.receive(data)
        self.world.settle()
        frames = FrameDecoder(1 << 24).receive_data(b"".join(self.session.take_output()))
        return [command for command, _ in frames if command is not None]

    def send(self, metadata: pb.MessageMetadata, payload: bytes, messages: int = 1) -> pb.CommandSendReceipt:
        sequence_id = next(self._ids)
        metadata.producer_name, metadata.sequence_id, metadata.publish_time = "p", sequence_id, 1
        send = pb.CommandSend(producer_id=2, sequence_id=sequence_id, num_messages=messages)
        blob = build_blob(metadata, payload)
        (reply,) = self._exchange(encode_frame_with_blob(Command(type=Command.SEND, send=send), blob))
        assert reply.type == Command.SEND_RECEIPT and reply.send_receipt.sequence_id == sequence_id
        return reply.send_receipt

    def letter(self, entry_id: int = 0, *, generation: str = "", **ids: str) -> pb.CommandSendReceipt:
        return self.send(self.metadata(entry_id, generation=generation, **ids), b"dead")

    def metadata(self, entry_id: int, *, generation: str = "", **ids: str) -> pb.MessageMetadata:
        metadata = pb.MessageMetadata()
        for key, value in self.properties(entry_id, generation=generation, **ids).items():
            metadata.properties.add(key=key, value=value)
        return metadata

    def properties(self, entry_id: int, *, generation: str = "", batch: int = -1, **ids: str) -> dict[str, str]:
        ledger_id = self.world.topic().ledger_id
        tail = f":{batch}" if batch >= 0 else ""
        ids = ids or {"ORIGIN_MESSAGE_ID": f"{ledger_id}:{entry_id}:-1{tail}"}
        extra = {"REDRIVE_GENERATION": generation} if generation else {}
        return {"REAL_TOPIC": "persistent://public/default/t", **ids, **extra}

    def ack(self, entry_id: int) -> None:
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual)
        ack.message_id.add(ledgerId=self.world.topic().ledger_id, entryId=entry_id)
        self.request(Command(type=Command.ACK, ack=ack))


def stored(world: World, target: str = DLQ) -> int:
    return world.topic(target).log.last + 1


def started(target: str = DLQ) -> Connection:
    world = World()
    world.publish(3)
    return Connection(world, target)


@pytest.mark.parametrize("target", [DLQ, "t-s-RETRY", "graveyard"])
def test_dl12_a_repeated_publish_is_dropped_even_after_a_crash(target: str) -> None:
    client = started(target)
    assert client.letter().message_id.entryId == 0
    assert client.letter().message_id.entryId == (1 << 64) - 1  # stored before: no new position
    again = Connection(client.world.restart(), target)
    again.letter()
    assert stored(again.world, target) == 1
    again.letter(1)
    assert stored(again.world, target) == 2


def test_dl12_acknowledged_messages_are_forgotten() -> None:
    client = started()
    client.letter()
    client.ack(0)
    assert not client.world.subscription().cursor.has_states or client.world.subscription().cursor.state_of(0) is None
    client.letter()  # not in flight: an ordinary message
    assert stored(client.world) == 2


def test_dl12_a_crash_between_publish_and_note_loses_neither() -> None:
    client = started()
    client.world.broker.commits.open().grow(1 << 30)  # the next transaction starts a new group
    client.session.receive(
        encode_frame_with_blob(
            Command(type=Command.SEND, send=pb.CommandSend(producer_id=2, sequence_id=0)),
            build_blob(_stamped(client.metadata(0)), b"dead"),
        )
    )
    world = client.world
    while (group := world.broker.commits.take()) is not None:
        world.storage.write(group.batch)
        world.storage.sync()
        after = world.restart()
        position = after.subscription().cursor.state_of(0)
        assert (position is not None and bool(position.published)) == (stored(after) == 1)


def _stamped(metadata: pb.MessageMetadata) -> pb.MessageMetadata:
    metadata.producer_name, metadata.sequence_id, metadata.publish_time = "p", 0, 1
    return metadata


def test_dl12_a_redriven_message_may_be_dead_lettered_again() -> None:
    client = started()
    client.letter()
    client.letter(generation="1")
    client.letter(generation="1")
    assert stored(client.world) == 2


def test_dl12_other_clients_cannot_cause_a_drop() -> None:
    client = started()
    client.letter()
    stranger = Connection(client.world, subscribes=False)
    stranger.letter()
    stranger.letter()
    assert stored(client.world) == 3


@pytest.mark.parametrize("compression", [pb.NONE, pb.ZSTD])
def test_dl12_of_a_batch_only_new_messages_are_stored(compression: pb.CompressionType.ValueType) -> None:
    client = started()
    client.letter(1)

    def batch(*entries: int) -> pb.CommandSendReceipt:
        singles = []
        for entry_id in entries:
            single = pb.SingleMessageMetadata()
            for key, value in client.properties(entry_id).items():
                single.properties.add(key=key, value=value)
            singles.append((single, b"dead %d" % entry_id))
        content = build_batch(singles)
        metadata = pb.MessageMetadata(num_messages_in_batch=len(entries), uncompressed_size=len(content))
        metadata.compression = compression
        return client.send(metadata, compress(compression, content), len(entries))

    batch(0, 1, 2)
    entry = client.world.topic(DLQ).log.read_one(1)
    assert entry is not None
    assert [payload for _, payload in messages_of(*split_blob(entry[3]))] == [b"dead 0", b"dead 2"]
    assert entry[1] == 2
    batch(0, 1, 2)
    assert stored(client.world) == 2


def test_dl12_messages_of_one_batch_are_dead_lettered_one_by_one() -> None:
    client = started()
    for batch in (0, 1, 0, 1, 2):
        ledger_id = client.world.topic().ledger_id
        client.letter(ORIGIN_MESSAGE_ID=f"{ledger_id}:0:-1:{batch}")
    assert stored(client.world) == 3


@pytest.mark.parametrize(
    ("text", "batch_index"), [("5:7:-1", -1), ("5:7:3", -1), ("5:7:-1:4", 4), ("(5,7,-1,4)", 4), ("(5,7,3,-1)", -1)]
)
@pytest.mark.parametrize("name", ["ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_IDY_TIME"])
def test_dl8_ids_are_read_in_every_spelling(name: str, text: str, batch_index: int) -> None:
    assert read_origin({"REAL_TOPIC": "t", name: text}) == Origin("t", 5, 7, batch_index, "")


@pytest.mark.parametrize("text", ["", "5", "5:7", "a:b:c", "5:7:-1:4:5", "(5,7)", "\u0665:7:-1", "5" * 30 + ":7:-1"])
def test_a_malformed_id_marks_no_dead_letter(text: str) -> None:
    assert read_origin({"REAL_TOPIC": "t", "ORIGIN_MESSAGE_ID": text}) is None


def test_dl7_the_next_retry_of_a_message_with_a_pending_ack_is_no_repetition() -> None:
    """Clients delay acks; a retry may arrive earlier, and every retry has the same origin."""
    client = started("t-s-RETRY")
    origin = {"ORIGIN_MESSAGE_ID": f"{client.world.topic().ledger_id}:0:-1"}
    for retry in ("1", "1", "2", "2", "3"):
        client.letter(**origin, RECONSUMETIMES=retry)
    assert stored(client.world, "t-s-RETRY") == 3


def test_an_id_that_is_not_utf8_marks_no_dead_letter() -> None:
    client = started()
    text = _stamped(client.metadata(0, ORIGIN_MESSAGE_ID="XX"))
    bytes_ = pb.MessageMetadata.FromString(text.SerializeToString().replace(b"XX", b"\xff\xfe"))
    client.send(bytes_, b"dead")
    client.send(bytes_, b"dead")
    assert stored(client.world) == 2


@pytest.mark.parametrize(("delay_ms", "mark"), [(0, "holds_dead_letters"), (60_000, "holds_retries")])
def test_dl10_the_topic_of_a_clients_policy_keeps_its_messages_whatever_its_name(delay_ms: int, mark: str) -> None:
    world = World(ttlDurationDefaultInSeconds=30, delayedDeliveryEnabled=False)
    world.publish(1)
    connection = Connection(world, "graveyard")
    assert world.topic("graveyard").policies.ttl_ms == 30_000
    metadata = connection.metadata(0)
    if delay_ms:
        metadata.deliver_at_time = world.clock.now_ms() + delay_ms
    connection.send(metadata, b"dead")
    for one in (world, world.restart(ttlDurationDefaultInSeconds=30)):
        topic = one.topic("graveyard")
        assert (getattr(topic.record, mark), topic.policies.ttl_ms) == (True, 0)
    assert world.topic("graveyard").has_delayed is bool(delay_ms)


def test_dl10_any_other_message_makes_no_dead_letter_topic() -> None:
    world = World(ttlDurationDefaultInSeconds=30)
    world.publish(1)
    connection = Connection(world, "graveyard", subscribes=False)
    connection.letter()  # of a message that none of its consumers holds
    assert world.topic("graveyard").policies.ttl_ms == 30_000

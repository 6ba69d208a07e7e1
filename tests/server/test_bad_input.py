"""Bad input at the binary port: its sender gets an error or is disconnected, and other clients are unaffected."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import pytest

from magnetar.testing import TestBroker, broker
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame

from .raw_client import Command, RawClient, send_frame

TOPIC = "persistent://public/default/bad-input"


@pytest.fixture
def server() -> Iterator[TestBroker]:
    with broker(maxMessageSize=100_000) as running:
        bystander = RawClient(running)
        bystander.produce_to(TOPIC + "-bystander")
        yield running
        # Other clients can still publish.
        bystander.send(1)
        assert bystander.receive().type == Command.SEND_RECEIPT
        RawClient.close_all()


def test_garbage(server: TestBroker) -> None:
    for seed in range(20):
        client = RawClient(server, connect=False)
        client.send_bytes(random.Random(seed).randbytes(300))
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()


def test_garbage_after_connect(server: TestBroker) -> None:
    client = RawClient(server)
    client.send_bytes(b"\x00\x00\x00\x0a\x00\x00\x00\x06garbage")
    error = client.receive()
    assert error.type == Command.ERROR
    assert "not a protobuf" in error.error.message
    assert client.is_closed()


def test_fault_message_damaged_on_its_way_is_refused(server: TestBroker) -> None:
    client = RawClient(server)
    client.produce_to(TOPIC)
    broken = bytearray(send_frame(1, b"payload"))
    broken[-1] ^= 1
    client.send_bytes(bytes(broken))
    reply = client.receive()
    assert reply.type == Command.SEND_ERROR
    assert reply.send_error.error == pb.ChecksumError
    assert reply.send_error.sequence_id == 1
    client.send(2)
    assert client.receive().send_receipt.sequence_id == 2


def test_bound_message_size_is_named_in_the_refusal(server: TestBroker) -> None:
    client = RawClient(server)
    client.produce_to(TOPIC)
    client.send(1, b"x" * 100_001)
    reply = client.receive()
    assert reply.type == Command.SEND_ERROR
    assert reply.send_error.error == pb.NotAllowedError
    assert "exceeds maxMessageSize 100000" in reply.send_error.message
    client.send(2)
    assert client.receive().send_receipt.sequence_id == 2


def test_an_oversized_frame_closes_the_connection(server: TestBroker) -> None:
    client = RawClient(server)
    client.send_bytes(b"\x7f\xff\xff\xff\x00\x00\x00\x04")
    error = client.receive()
    assert error.type == Command.ERROR
    assert "exceeds the limit of 110240" in error.error.message
    assert client.is_closed()


def test_truncated_protobuf(server: TestBroker) -> None:
    client = RawClient(server)
    whole = encode_frame(Command(type=Command.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=TOPIC, request_id=1)))
    command = whole[8:-3]
    client.send_bytes((len(command) + 4).to_bytes(4) + len(command).to_bytes(4) + command)
    assert client.receive().type == Command.ERROR
    assert client.is_closed()


def test_an_unfinished_frame_leaves_nothing(server: TestBroker) -> None:
    client = RawClient(server)
    client.produce_to(TOPIC)
    client.send_bytes(send_frame(1)[:-1])
    client.close()
    again = RawClient(server)
    again.produce_to(TOPIC)  # no partial producer holds the name
    again.subscribe_to(TOPIC, initialPosition=pb.CommandSubscribe.Earliest)
    again.send(5)
    assert {again.receive().type, again.receive().type} == {Command.SEND_RECEIPT, Command.MESSAGE}


def test_commands_before_connect(server: TestBroker) -> None:
    client = RawClient(server, connect=False)
    client.send_command(Command(type=Command.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=TOPIC, request_id=1)))
    error = client.receive()
    assert error.type == Command.ERROR
    assert error.error.message == "command LOOKUP is not allowed in state start"
    assert client.is_closed()


def test_connect_twice(server: TestBroker) -> None:
    client = RawClient(server)
    client.send_command(
        Command(type=Command.CONNECT, connect=pb.CommandConnect(client_version="t", protocol_version=21))
    )
    assert "not allowed in state connected" in client.receive().error.message
    assert client.is_closed()


def test_a_command_only_brokers_send(server: TestBroker) -> None:
    client = RawClient(server)
    client.send_command(Command(type=Command.SUCCESS, success=pb.CommandSuccess(request_id=3)))
    reply = client.receive()
    assert reply.type == Command.ERROR
    assert reply.error.request_id == 3
    assert "SUCCESS is not supported" in reply.error.message


def test_an_unsupported_command_gets_an_error_and_the_connection_is_kept(server: TestBroker) -> None:
    client = RawClient(server)
    client.send_command(Command(type=Command.NEW_TXN, newTxn=pb.CommandNewTxn(request_id=9)))
    reply = client.receive()
    assert reply.type == Command.ERROR
    assert reply.error.request_id == 9
    assert reply.error.error == pb.NotAllowedError
    client.send_command(Command(type=Command.PING, ping=pb.CommandPing()))
    assert client.receive().type == Command.PONG


def test_send_from_a_producer_that_does_not_exist(server: TestBroker) -> None:
    client = RawClient(server)
    client.send(1, producer_id=99)
    assert "producer 99 does not exist" in client.receive().error.message
    assert client.is_closed()


def test_unknown_consumer(server: TestBroker) -> None:
    client = RawClient(server)
    client.send_command(Command(type=Command.FLOW, flow=pb.CommandFlow(consumer_id=5, messagePermits=10)))
    client.send_command(
        Command(
            type=Command.REDELIVER_UNACKNOWLEDGED_MESSAGES,
            redeliverUnacknowledgedMessages=pb.CommandRedeliverUnacknowledgedMessages(consumer_id=5),
        )
    )
    ack = pb.CommandAck(consumer_id=5, ack_type=pb.CommandAck.Individual, request_id=11)
    ack.message_id.add(ledgerId=1, entryId=1)
    client.send_command(Command(type=Command.ACK, ack=ack))
    reply = client.receive()
    assert reply.type == Command.ACK_RESPONSE
    assert reply.ackResponse.error == pb.ConsumerNotFound
    client.send_command(
        Command(type=Command.SEEK, seek=pb.CommandSeek(consumer_id=5, request_id=12, message_publish_time=1))
    )
    reply = client.receive()
    assert (reply.type, reply.error.error) == (Command.ERROR, pb.ConsumerNotFound)


def test_ack_of_a_missing_message(server: TestBroker) -> None:
    client = RawClient(server)
    client.subscribe_to(TOPIC)
    ledger_id = server.run(lambda: server.server.broker.topics[TOPIC].ledger_id)
    for entry_id, count in ((10**9, 1), (2**64 - 1, 1), (0, 2**31 - 1)):
        ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, request_id=11)
        ack.message_id.add(ledgerId=ledger_id, entryId=entry_id, ack_set=[1, 2, 3], batch_size=count)
        client.send_command(Command(type=Command.ACK, ack=ack))
        reply = client.receive()
        assert reply.ackResponse.error == pb.NotAllowedError
        assert "cannot be acknowledged: the last one is -1" in reply.ackResponse.message


def test_a_wrong_batch_size_is_ignored(server: TestBroker) -> None:
    client = RawClient(server)
    client.produce_to(TOPIC)
    client.subscribe_to(TOPIC)
    client.send(1, b"x" * 50, messages=3)
    assert {client.receive().type, client.receive().type} == {Command.SEND_RECEIPT, Command.MESSAGE}
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, request_id=11)
    ledger_id = server.run(lambda: server.server.broker.topics[TOPIC].ledger_id)
    ack.message_id.add(ledgerId=ledger_id, entryId=0, ack_set=[0b011], batch_size=2**31 - 1)
    client.send_command(Command(type=Command.ACK, ack=ack))
    assert not client.receive().ackResponse.HasField("error")
    subscription = server.server.broker.topics[TOPIC].subscriptions["s"]
    assert server.run(lambda: subscription.consumers[0].unacked) == 2


@pytest.mark.parametrize("topic", ["bad//name", "a/b/c/d/e", "persistent://public/default/", "x" * 2000, "a\x00b"])
def test_illegal_topic_names(server: TestBroker, topic: str) -> None:
    client = RawClient(server)
    producer = pb.CommandProducer(topic=topic, producer_id=1, request_id=1)
    client.send_command(Command(type=Command.PRODUCER, producer=producer))
    reply = client.receive()
    assert (reply.type, reply.error.error) == (Command.ERROR, pb.InvalidTopicName)
    metadata = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=2)
    client.send_command(Command(type=Command.PARTITIONED_METADATA, partitionMetadata=metadata))
    assert client.receive().partitionMetadataResponse.error == pb.InvalidTopicName
    client.send_command(Command(type=Command.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=topic, request_id=3)))
    assert client.receive().lookupTopicResponse.error == pb.InvalidTopicName


@pytest.mark.parametrize("name", ["", "s" * 2000])
def test_illegal_subscription_names(server: TestBroker, name: str) -> None:
    client = RawClient(server)
    request = pb.CommandSubscribe(
        topic=TOPIC, subscription=name, subType=pb.CommandSubscribe.Shared, consumer_id=1, request_id=7
    )
    client.send_command(Command(type=Command.SUBSCRIBE, subscribe=request))
    assert "must be 1 to 1024 bytes" in client.receive().error.message


def test_more_messages_than_bytes(server: TestBroker) -> None:
    client = RawClient(server)
    client.produce_to(TOPIC)
    for messages in (0, -1, 2**31 - 1):
        client.send(1, messages=messages)
        reply = client.receive()
        assert reply.type == Command.SEND_ERROR
        assert reply.send_error.message == f"batch of {messages} messages: must be 1 to 100000"


def test_fault_consumer_that_does_not_read_fills_only_its_buffer(server: TestBroker) -> None:
    publisher, deaf = RawClient(server), RawClient(server)
    publisher.produce_to(TOPIC)
    deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    deaf.subscribe_to(TOPIC, permits=1_000_000)
    payload = b"x" * 90_000
    for sequence_id in range(600):  # 54 MB
        publisher.send(sequence_id, payload)
        assert publisher.receive().type == Command.SEND_RECEIPT
    topic = server.server.broker.topics[TOPIC]
    in_flight = server.run(lambda: len(topic.subscriptions["s"].consumers[0].pending))
    assert 0 < in_flight < 300  # the rest waits in the log, not in memory
    hearing = RawClient(server)
    hearing.subscribe_to(TOPIC, consumer_id=2)
    deaf.close()
    received = {hearing.receive().message.message_id.entryId for _ in range(600)}
    assert received == set(range(600))


def test_bound_pending_publishes_wait_in_the_socket(server: TestBroker) -> None:
    limit = server.server.settings.maxPendingPublishRequestsPerConnection
    client = RawClient(server)
    client.produce_to(TOPIC)
    flood = b"".join(send_frame(sequence_id) for sequence_id in range(30_000))
    client.socket.settimeout(30)
    most = 0
    sent = 0
    received = 0
    while received < 30_000:
        if sent < len(flood):
            sent += client.socket.send(flood[sent : sent + (1 << 18)])
        most = max(most, server.run(lambda: max(c.pending_publishes for c in server.server.connections)))
        while client._frames or sent == len(flood):
            assert client.receive().type == Command.SEND_RECEIPT
            received += 1
            if received == 30_000:
                break
    # One read may exceed the limit, never several.
    assert most <= limit + (1 << 18) // len(send_frame(0))


def test_a_fault_in_one_subscription_affects_no_other(
    server: TestBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, unlucky = RawClient(server), RawClient(server)
    client.produce_to(TOPIC)
    unlucky.subscribe_to(TOPIC, subscription="unlucky")
    client.subscribe_to(TOPIC)
    faulty = server.server.broker.topics[TOPIC].subscriptions["unlucky"]

    def fail() -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(faulty.dispatcher, "pump", fail)  # type: ignore[attr-defined]
    client.send(1)
    assert {client.receive().type, client.receive().type} == {Command.SEND_RECEIPT, Command.MESSAGE}
    assert "planted" in caplog.text

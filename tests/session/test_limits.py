"""The border: texts, numbers, sizes and counts of commands, refused before anything is changed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from magnetar import bounds
from magnetar.session.handles import SessionState
from magnetar.session.table import TABLE
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame, encode_frame_with_blob
from magnetar.wire.metadata import build_blob
from magnetar.wire.varint import encode_varint
from tests.broker.world import World

from .talk import Command, Talk, send_frame

STRING, MESSAGE, BYTES = 9, 11, 12  # types of a FieldDescriptor
SUBSCRIBE_TYPES = pb.CommandSubscribe
LONG_MAX = (1 << 63) - 1


# -- texts


def _paths(descriptor: Descriptor, seen: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The texts of a command, however deep."""
    for field in descriptor.fields:
        if field.type == STRING:
            yield (field.name,)
        elif field.type == MESSAGE and field.message_type.full_name not in seen:
            for path in _paths(field.message_type, (*seen, descriptor.full_name)):
                yield field.name, *path


HANDLED = sorted({kind for commands in TABLE.values() for kind in commands})
TEXTS = [
    (kind, (field.name, *path))
    for kind in HANDLED
    for field in pb.BaseCommand.DESCRIPTOR.fields
    if field.number == kind and field.message_type is not None and kind not in (Command.ACK,)
    for path in _paths(field.message_type)
]


def _required(message: Message) -> None:
    """Fills the required fields, so that nothing but the text can be refused."""
    for name in message.FindInitializationErrors():  # type: ignore[attr-defined]  # the stubs lack it
        field = message.DESCRIPTOR.fields_by_name[name.partition(".")[0]]
        if field.type == STRING:
            setattr(message, field.name, "x")
        elif field.message_type is not None:
            _required(getattr(message, field.name))
            getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, b"" if field.type == BYTES else 1)


def _encoded(message: Message, path: tuple[str, ...], text: bytes) -> bytes:
    """The message, with a text that protobuf itself would not set."""
    field = message.DESCRIPTOR.fields_by_name[path[0]]
    if len(path) == 1:
        value = text
    else:
        nested = getattr(pb, field.message_type.name)()
        _required(nested)
        value = _encoded(nested, path[1:], text)
    return message.SerializePartialToString() + encode_varint(field.number << 3 | 2) + encode_varint(len(value)) + value


@pytest.mark.parametrize(("kind", "path"), TEXTS, ids=lambda part: part if isinstance(part, int) else ".".join(part))
def test_fault_text_not_utf8(kind: int, path: tuple[str, ...]) -> None:
    """Every text of every command that has a handler; the client gets the name of the field."""
    world = World()
    talk = Talk(world, connect=kind != Command.CONNECT)
    command = Command(type=kind)  # type: ignore[arg-type]
    request = getattr(pb, command.DESCRIPTOR.fields_by_name[path[0]].message_type.name)()
    _required(request)
    field = command.DESCRIPTOR.fields_by_name[path[0]]
    inner = _encoded(request, path[1:], b"a\xff\xfe")
    body = command.SerializePartialToString() + encode_varint(field.number << 3 | 2) + encode_varint(len(inner)) + inner
    before = dict(world.broker.catalog.topics)
    talk.session.receive((len(body) + 4).to_bytes(4) + len(body).to_bytes(4) + body)
    (error,) = talk.said()
    assert error.error.message == f"{'.'.join(path[1:])} is not UTF-8, in a command of type {Command.Type.Name(kind)}"  # type: ignore[arg-type]
    assert talk.session.state is SessionState.CLOSED
    assert talk.closed
    assert dict(world.broker.catalog.topics) == before


def test_there_is_a_text_of_each_kind() -> None:
    assert (Command.SUBSCRIBE, ("subscribe", "subscription_properties", "value")) in TEXTS
    assert (Command.PRODUCER, ("producer", "schema", "properties", "key")) in TEXTS
    assert (Command.CONNECT, ("connect", "client_version")) in TEXTS
    assert len(TEXTS) > 40


# -- names, texts and maps


def _pairs(size: int, count: int = 4) -> list[pb.KeyValue]:
    """Pairs whose keys and values have so many bytes together."""
    each = size // count
    pairs = [pb.KeyValue(key=f"{number:04}", value="v" * (each - 4)) for number in range(count)]
    pairs[0].value += "v" * (size - each * count)
    return pairs


def _producer(**options: Any) -> Command:
    return Command(
        type=Command.PRODUCER, producer=pb.CommandProducer(topic="t", producer_id=1, request_id=5, **options)
    )


def _subscribe(**options: Any) -> Command:
    given = {"topic": "t", "subscription": "s", "subType": SUBSCRIBE_TYPES.Shared, **options}
    return Command(type=Command.SUBSCRIBE, subscribe=pb.CommandSubscribe(consumer_id=1, request_id=5, **given))


def _refusal(command: Command) -> str:
    """The error that a client gets, whose connection stays."""
    world = World()
    talk = Talk(world)
    reply = talk.ask(command)
    assert talk.session.state is SessionState.CONNECTED
    assert not talk.session.producers and not talk.session.consumers
    for topic in world.broker.topics.values():
        assert not topic.producers.by_name and not topic.subscriptions
    texts = [
        value for _, message in reply.ListFields() if isinstance(message, Message) for _, value in message.ListFields()
    ]
    return next((text for text in texts if isinstance(text, str)), "")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (_producer(producer_name="n" * 1025), "producer_name"),
        (_producer(initial_subscription_name="é" * 513), "initial_subscription_name"),
        (_subscribe(consumer_name="n" * 1025), "consumer_name"),
        (
            Command(
                type=Command.LOOKUP,
                lookupTopic=pb.CommandLookupTopic(topic="t", request_id=5, advertised_listener_name="n" * 1025),
            ),
            "advertised_listener_name",
        ),
        (
            Command(
                type=Command.GET_TOPICS_OF_NAMESPACE,
                getTopicsOfNamespace=pb.CommandGetTopicsOfNamespace(request_id=5, namespace="n" * 1025),
            ),
            "namespace",
        ),
    ],
)
def test_bound_name_size(command: Command, name: str) -> None:
    refused = _refusal(command)
    assert refused in (f"{name} of 1025 bytes exceeds 1024", f"{name} of 1026 bytes exceeds 1024")


def test_bound_name_size_of_topics_and_subscriptions() -> None:
    assert "1024" in _refusal(_subscribe(subscription="n" * 1025))
    assert "1024" in _refusal(_subscribe(topic="n" * 1025))


def test_bound_name_size_of_a_client_version() -> None:
    talk = Talk(World(), connect=False)
    connect = pb.CommandConnect(client_version="v" * 1025, protocol_version=21)
    reply = talk.ask(Command(type=Command.CONNECT, connect=connect))
    assert reply.error.message == "client_version of 1025 bytes exceeds 1024"
    assert talk.session.state is SessionState.CLOSED


def test_names_of_exactly_the_limit_are_taken() -> None:
    talk = Talk(World())
    assert talk.produce(producer_name="n" * 1024, initial_subscription_name="é" * 512).HasField("producer_success")
    assert talk.subscribe(consumer_name="n" * 1024).type == Command.SUCCESS


def test_bound_text_size() -> None:
    request = pb.CommandGetTopicsOfNamespace(request_id=5, namespace="public/default", topics_pattern="p" * 65_537)
    command = Command(type=Command.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=request)
    assert _refusal(command) == "topics_pattern of 65537 bytes exceeds 65536"
    command.getTopicsOfNamespace.topics_pattern = "p" * 65_536
    assert Talk(World()).ask(command).type == Command.GET_TOPICS_OF_NAMESPACE_RESPONSE


@pytest.mark.parametrize(
    ("field", "name"),
    [("metadata", "metadata"), ("subscription_properties", "subscription_properties"), ("schema", "schema properties")],
)
def test_bound_map_size(field: str, name: str) -> None:
    def request(size: int) -> Command:
        pairs: Any = _pairs(size)
        value = (
            pb.Schema(name="t", schema_data=b"", type=pb.Schema.String, properties=pairs)
            if field == "schema"
            else pairs
        )
        return _subscribe(**{field: value})

    assert _refusal(request(65_537)) == f"{name} of 65537 bytes exceeds 65536"
    assert Talk(World()).ask(request(65_536)).type == Command.SUCCESS
    if field != "subscription_properties":
        producer = pb.CommandProducer(topic="t", producer_id=1, request_id=5)
        producer.MergeFromString(
            pb.CommandProducer(**{field: getattr(request(65_537).subscribe, field)}).SerializePartialToString()
        )  # type: ignore[arg-type]
        assert _refusal(Command(type=Command.PRODUCER, producer=producer)) == f"{name} of 65537 bytes exceeds 65536"


def test_bound_pairs_per_command() -> None:
    talk = Talk(World())
    reply = talk.ask(_subscribe(metadata=[pb.KeyValue(key="", value="")] * 10_001))
    assert reply.error.message == "metadata has 10001 elements, the limit is 10000, in a command of type SUBSCRIBE"
    assert talk.session.state is SessionState.CLOSED


# -- numbers


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (_producer(topic_epoch=1 << 63), "topic_epoch"),
        (_producer(topic_epoch=(1 << 64) - 1), "topic_epoch"),
        (_producer(epoch=1 << 63), "epoch"),
        (_subscribe(start_message_rollback_duration_sec=1 << 63), "start_message_rollback_duration_sec"),
    ],
)
def test_bound_number(command: Command, name: str) -> None:
    refused = _refusal(command)
    assert refused.startswith(f"{name} ") and refused.endswith(f" exceeds {LONG_MAX}")


def test_bound_number_of_exclusive_producers() -> None:
    """An epoch that is taken can be followed by another one."""
    world = World()
    for number, topic_epoch in enumerate(((1 << 64) - 1, (1 << 63), 7)):
        talk = Talk(world)
        talk.produce(producer_name=f"p{number}", producer_access_mode=1, topic_epoch=topic_epoch)
        talk.session.connection_lost()
    world = world.restart()
    reply = Talk(world).produce(producer_name="next", producer_access_mode=1)
    assert reply.producer_success.topic_epoch == 8


def test_any_request_id_is_taken_and_returned() -> None:
    request_id = (1 << 64) - 2
    request = pb.CommandLookupTopic(topic="t", request_id=request_id)
    reply = Talk(World()).ask(Command(type=Command.LOOKUP, lookupTopic=request))
    assert reply.lookupTopicResponse.request_id == request_id


def test_a_consumer_without_an_epoch_may_say_so() -> None:
    assert Talk(World()).subscribe(consumer_epoch=(1 << 64) - 1).type == Command.SUCCESS


def test_a_seek_to_a_negative_time_is_to_the_start() -> None:
    world = World()
    world.publish(5)
    talk = Talk(world)
    talk.subscribe()
    seek = pb.CommandSeek(consumer_id=1, request_id=3, message_publish_time=(1 << 64) - 1)
    assert Command.SUCCESS in [command.type for command in (talk.ask(Command(type=Command.SEEK, seek=seek)),)]
    assert world.subscription().cursor.mark_delete == -1


@pytest.mark.parametrize("options", [{}, {"highest_sequence_id": 1 << 63}], ids=["first", "highest"])
@pytest.mark.parametrize("deduplication", [True, False])
def test_bound_number_of_sequence_ids(options: dict[str, int], deduplication: bool) -> None:
    world = World(brokerDeduplicationEnabled=deduplication)
    talk = Talk(world)
    talk.produce(producer_name="p")
    sequence_id = 5 if options else (1 << 63)
    talk.session.receive(send_frame(1) + send_frame(sequence_id, **options) + send_frame(6))
    error, first, last = talk.said()
    assert first.send_receipt.sequence_id == 1
    assert error.send_error.message == f"sequence id {1 << 63} exceeds {LONG_MAX}"
    assert last.send_receipt.sequence_id == 6
    # Its name can still be used, also after a restart.
    for again in (world, world.restart(brokerDeduplicationEnabled=deduplication)):
        talk.session.connection_lost()
        talk = Talk(again)
        assert talk.produce(producer_name="p").HasField("producer_success")


# -- batches


def test_bound_messages_per_batch() -> None:
    talk = Talk(World())
    talk.produce(producer_name="p")
    talk.session.receive(send_frame(1, num_messages=100_000) + send_frame(2, num_messages=100_001))
    error, receipt = talk.said()
    assert receipt.type == Command.SEND_RECEIPT
    assert error.send_error.message == "batch of 100001 messages: must be 1 to 100000"


@pytest.mark.parametrize("said", [2, 1_000_000])
def test_bound_messages_per_batch_in_metadata(said: int) -> None:
    talk = Talk(World())
    talk.produce(producer_name="p")
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=said)
    send = pb.CommandSend(producer_id=1, sequence_id=1, num_messages=3)
    talk.session.receive(encode_frame_with_blob(Command(type=Command.SEND, send=send), build_blob(metadata, b"x")))
    (error,) = talk.said()
    assert error.send_error.message == "SEND of 3 messages, but its metadata does not have 3 in the batch"


# -- ids


def _ids(world: World, count: int, **options: int) -> list[pb.MessageIdData]:
    ledger_id = world.topic().ledger_id
    return [pb.MessageIdData(ledgerId=ledger_id, entryId=number, **options) for number in range(count)]


@pytest.mark.parametrize("kind", ["ACK", "REDELIVER_UNACKNOWLEDGED_MESSAGES"])
def test_bound_ids_per_command(kind: str) -> None:
    world = World()
    talk = Talk(world)
    talk.subscribe()
    ids = [pb.MessageIdData(ledgerId=1, entryId=1)]
    nack = pb.CommandRedeliverUnacknowledgedMessages
    for count in (100_000, 100_001):
        if kind == "ACK":
            ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual, message_id=ids * count)
            command = Command(type=Command.ACK, ack=ack)
        else:
            command = Command(
                type=Command.REDELIVER_UNACKNOWLEDGED_MESSAGES,
                redeliverUnacknowledgedMessages=nack(consumer_id=1, message_ids=ids * count),
            )
        talk.send(command)
        assert (talk.session.state is SessionState.CONNECTED) == (count == 100_000)
    assert talk.said()[-1].error.message == f"{kind} with 100001 message ids exceeds the limit of 100000"


def test_bound_command_size() -> None:
    talk = Talk(World())
    ack = pb.CommandAck(consumer_id=1, ack_type=pb.CommandAck.Individual)
    frame = encode_frame(Command(type=Command.ACK, ack=ack))
    body = frame[8:] + b"\x32" + encode_varint(2 << 20) + b"\x1a\x00" * (1 << 20)
    talk.session.receive((len(body) + 4).to_bytes(4) + len(body).to_bytes(4) + body)
    assert talk.said()[-1].error.message == f"command of {len(body)} bytes exceeds the limit of 2097152 bytes"
    assert talk.session.state is SessionState.CLOSED


def test_fault_nack_of_what_is_not_held() -> None:
    """40,000 ids with the highest batch index took half a gigabyte; bits are built for held messages only."""
    world = World()
    world.publish(3, messages=2)
    talk = Talk(world)
    talk.subscribe(initialPosition=pb.CommandSubscribe.Earliest)
    world.settle()
    nack = pb.CommandRedeliverUnacknowledgedMessages(consumer_id=1, message_ids=_ids(world, 40_000, batch_index=99_999))
    nack.message_ids.append(pb.MessageIdData(ledgerId=world.topic().ledger_id, entryId=1, batch_index=1))
    frame = encode_frame(Command(type=Command.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=nack))
    tracemalloc.start()
    try:
        talk.session.receive(frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20
    state = world.subscription().cursor.state_of(1)
    assert state is not None
    world.settle()
    assert talk.session.state is SessionState.CONNECTED


def test_bounds_are_those_of_the_table() -> None:
    assert bounds.NAME_SIZE.limit == 1024 and bounds.MAP_SIZE.limit == 64 << 10


# -- producers and consumers


def test_bound_handles_per_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bounds.HANDLES_PER_CONNECTION.limit == 10_000
    monkeypatch.setattr("magnetar.session.limits._HANDLES_MAX", 3)
    talk = Talk(World())
    for number in range(4):
        produced, subscribed = talk.produce(producer_id=number), talk.subscribe(consumer_id=number)
        assert (produced.type, subscribed.type) == (
            (Command.PRODUCER_SUCCESS, Command.SUCCESS) if number < 3 else (Command.ERROR, Command.ERROR)
        )
    assert produced.error.message == "the connection has 3 producers, the limit is 3"
    assert subscribed.error.message == "the connection has 3 consumers, the limit is 3"
    # Who closes one may have another.
    talk.ask(Command(type=Command.CLOSE_PRODUCER, close_producer=pb.CommandCloseProducer(producer_id=1, request_id=9)))
    assert talk.produce(producer_id=8).type == Command.PRODUCER_SUCCESS


def test_bound_handle_bytes() -> None:
    talk = Talk(World())
    taken = 0
    while (reply := talk.produce(f"t{taken}", producer_id=taken, metadata=_pairs(65_000))).type != Command.ERROR:
        taken += 1
        assert taken * 65_000 < bounds.HANDLE_BYTES.limit + 65_000
    assert taken * 65_000 >= bounds.HANDLE_BYTES.limit
    assert reply.error.message.endswith("bytes of metadata, the limit is 16777216")
    for number in range(taken):
        close = pb.CommandCloseProducer(producer_id=number, request_id=9)
        talk.ask(Command(type=Command.CLOSE_PRODUCER, close_producer=close))
    assert talk.session.producers.size == 0
    assert talk.produce(producer_id=1, metadata=_pairs(65_000)).type == Command.PRODUCER_SUCCESS

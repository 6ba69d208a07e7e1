"""Outstanding messages, without connections: each is settled exactly once, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.consume.entry import Entry, EntryDecoder
from magnetar.client.errors import ClientError, MessageTooLarge, NotAllowed, Timeout
from magnetar.client.message import Message, MessageId
from magnetar.client.produce.outbox import Outbox, OutboxOptions, outgoing
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import FrameDecoder

Result = MessageId | ClientError


def pipeline(**options: object) -> Outbox:
    defaults = {"batching": True, "batch_messages_max": 3, "batch_bytes_max": 1000, "compression": pb.NONE}
    made = Outbox(OutboxOptions(**{**defaults, **options}), producer_id=1, partition=-1)  # type: ignore[arg-type]
    made.producer_name, made.message_size_max = "p", 10_000
    return made


class Sent:
    """The broker's end of an outbox: the received SENDs."""

    def __init__(self, made: Outbox) -> None:
        self.made = made
        self.results: list[list[Result]] = []
        self.waiting: list[tuple[int, bytes]] = []  # sequence ids and blobs without a receipt
        self.stored: list[tuple[int, bytes]] = []

    def add(self, value: bytes, **options: int) -> None:
        results: list[Result] = []
        self.results.append(results)
        self.made.add(outgoing(value, **options), results.append, now_ms=1, deadline_s=10.0)  # type: ignore[arg-type]

    def transmit(self) -> None:
        sequence_id = -1
        for command, blob in FrameDecoder(1 << 20).receive_data(b"".join(self.made.take_frames())):
            sequence_id = sequence_id + 1 if command is None else command.send.sequence_id
            assert blob is not None
            self.waiting.append((sequence_id, blob))

    def store(self) -> None:
        sequence_id, blob = self.waiting.pop(0)
        self.stored.append((sequence_id, blob))
        assert self.made.on_receipt(sequence_id, MessageId(7, len(self.stored) - 1))

    def messages(self) -> list[Message]:
        decoder = EntryDecoder()
        entries = [Entry("t", MessageId(7, index), 0, (), blob) for index, (_, blob) in enumerate(self.stored)]
        return [message for entry in entries for message in decoder.decode(entry)[0]]


def test_a_batch_is_sent_when_it_is_full_or_sealed() -> None:
    sent = Sent(pipeline())
    for value in (b"a", b"b"):
        sent.add(value)
    sent.transmit()
    assert not sent.waiting and sent.made.has_open_batch
    sent.add(b"c")
    sent.transmit()
    assert len(sent.waiting) == 1
    sent.add(b"d")
    sent.made.seal(1)
    sent.transmit()
    sent.store()
    sent.store()
    assert [message.value for message in sent.messages()] == [b"a", b"b", b"c", b"d"]
    assert sent.results == [
        [MessageId(7, 0, -1, 0, 3)],
        [MessageId(7, 0, -1, 1, 3)],
        [MessageId(7, 0, -1, 2, 3)],
        [MessageId(7, 1)],
    ]
    assert sent.made.is_empty


def test_a_rejected_message_is_settled_alone() -> None:
    sent = Sent(pipeline(batching=False))
    for value in (b"a", b"b", b"c"):
        sent.add(value)
    sent.transmit()
    sent.made.on_rejected(1, NotAllowed("no"))
    sent.waiting.pop(1)
    sent.store()
    sent.store()
    assert [type(results[0]) for results in sent.results] == [MessageId, NotAllowed, MessageId]


def test_an_oversized_message_is_never_sent() -> None:
    sent = Sent(pipeline(batching=False))
    sent.add(b"x" * 10_001)
    sent.transmit()
    assert not sent.waiting and isinstance(sent.results[0][0], MessageTooLarge)


def test_an_out_of_order_receipt_is_detected_and_a_late_one_is_ignored() -> None:
    sent = Sent(pipeline(batching=False))
    for value in (b"a", b"b"):
        sent.add(value)
    sent.transmit()
    assert not sent.made.on_receipt(1, MessageId(7, 1))
    assert sent.made.on_receipt(99, MessageId(7, 1))
    assert not any(sent.results)


def test_a_timed_out_message_fails_and_its_receipt_is_ignored() -> None:
    sent = Sent(pipeline(batching=False))
    sent.add(b"a")
    sent.transmit()
    sent.made.expire(9.9, Timeout("late"))
    assert not sent.results[0]
    sent.made.expire(10.0, Timeout("late"))
    assert isinstance(sent.results[0][0], Timeout)
    sent.store()
    assert len(sent.results[0]) == 1
    assert sent.made.next_deadline_s is None


def test_an_open_batch_times_out_too() -> None:
    sent = Sent(pipeline())
    sent.add(b"a")
    assert sent.made.next_deadline_s == 10.0
    sent.made.expire(10.0, Timeout("late"))
    assert isinstance(sent.results[0][0], Timeout) and sent.made.is_empty


@given(
    st.lists(st.sampled_from(["add", "delayed", "large", "seal", "transmit", "store", "lose"]), max_size=60),
    st.sampled_from([pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY]),
    st.booleans(),
)
def test_nothing_is_lost_or_reordered(
    steps: list[str], compression: pb.CompressionType.ValueType, batching: bool
) -> None:
    sent = Sent(pipeline(compression=compression, batching=batching))
    number = 0
    for step in [*steps, "seal", "lose", "transmit"]:
        if step in ("add", "delayed", "large"):
            value = b"%d" % number + b"x" * (600 if step == "large" else 0)
            sent.add(value, **({"deliver_at_ms": 1} if step == "delayed" else {}))
            number += 1
        elif step == "seal":
            sent.made.seal(1)
        elif step == "transmit":
            sent.transmit()
        elif step == "store" and sent.waiting:
            sent.store()
        elif step == "lose":  # a lost connection, with all messages without a receipt
            sent.waiting.clear()
            sent.made.rewind()
    while sent.waiting:
        sent.store()
    messages = sent.messages()
    assert [int(message.value.rstrip(b"x")) for message in messages] == list(range(number))
    assert [message.sequence_id for message in messages] == list(range(number))
    assert sent.results == [[message.id] for message in messages]
    assert sent.made.is_empty

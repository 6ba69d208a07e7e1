"""Rows for failing messages on Magnetar alone: dead letters under the broker's policy, and a million redeliveries.

A million messages fail once each and back off until all have failed, so that all wait at the same time. They fail in
turns, because a consumer may hold only a limited number. The second row sends raw frames. Does not know how the values
are judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from contestant import Contestant, Running
from dead_letters import by_broker
from raw_connection import RawConnection
from scale import (
    SUBSCRIPTION,
    Log,
    Scale,
    ScaleFailed,
    Values,
    expect,
    grant,
    open_producer,
    send_entry,
    subscribe,
    topic_name,
)

from magnetar.wire.frames import PING, encode_frame
from magnetar.wire.metadata import build_blob
from magnetar.wire.schema_pb2 import (
    BaseCommand,
    CommandAck,
    CommandRedeliverUnacknowledgedMessages,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
)

_TOPIC = "failed"
_PATH = f"/admin/v2/{topic_name(_TOPIC).replace('://', '/')}"
_TURN = 1_000  # messages nacked or acknowledged by one command
_TURNS_UNDER_WAY = 4
_PAYLOAD = b"x" * 100
_LOOKED_AT_MESSAGES = 50_000  # memory is the mean of several samples near the end
_LOOK_EVERY = 5_000
_DONE_WITHIN_S = 30.0

Answer = Callable[[list[MessageIdData]], bytes]


def dead_letters_by_broker(contestant: Contestant, scale: Scale, log: Log) -> Values:
    """Measures the broker's policy, which the consumer requests in its properties."""
    with contestant.started() as broker:
        rate = by_broker(broker.service_url, scale.dead_letters)
    log(f"{contestant.name}: {rate:,.0f} dead letters per second under the broker's policy")
    return {"dead-letters-by-broker": rate}


def redelivery(contestant: Contestant, scale: Scale, log: Log) -> Values:
    """Memory while all messages wait, and while they are redelivered."""
    values: Values = {}
    count = scale.failed[-1]
    with contestant.started() as broker, RawConnection(broker.port) as connection:
        failing = _FailingConsumer(broker, connection)
        failing.publish(count)
        failing.back_off(scale.backoff_s)
        began = time.monotonic()
        for more, size in zip(_steps(scale.failed), scale.failed, strict=True):
            values[f"redelivery-memory {size}"] = memory_mb = failing.take(more, 0, _nack)
            took_s = time.monotonic() - began
            log(f"{contestant.name}: {size:,} messages failed after {took_s:.0f} s, {memory_mb:.1f} MB")
        if took_s > scale.backoff_s:
            raise ScaleFailed(
                f"it took {took_s:.0f} s until {count} messages failed, but the back-off is {scale.backoff_s} s"
            )
        failing.wait_until(began + took_s + scale.backoff_s)
        began = time.monotonic()
        halves = (count // 2, count)
        for more, size in zip(_steps(halves), halves, strict=True):
            values[f"redelivered-memory {size}"] = memory_mb = failing.take(more, 1, _acknowledge)
            took_s = time.monotonic() - began
            log(f"{contestant.name}: {size:,} of them redelivered within {took_s:.0f} s, {memory_mb:.1f} MB")
        values["redelivery-rate"] = count / took_s
        failing.check_done()
    return values


def _steps(sizes: Sequence[int]) -> list[int]:
    return [size - before for size, before in zip(sizes, (0, *sizes), strict=False)]


class _FailingConsumer:
    """A Shared consumer and its handling of one topic's messages, each in its own entry."""

    def __init__(self, broker: Running, connection: RawConnection) -> None:
        self._broker = broker
        self._connection = connection
        self._answers = connection.answers()
        connection.send(subscribe(0, _TOPIC, CommandSubscribe.Shared) + open_producer(0, _TOPIC))
        expect(self._answers, {BaseCommand.SUCCESS: 1, BaseCommand.PRODUCER_SUCCESS: 1})

    def publish(self, count: int) -> None:
        blob = build_blob(MessageMetadata(producer_name="bench", sequence_id=0, publish_time=0), _PAYLOAD)
        for start in range(0, count, _TURN):
            numbers = range(start, min(start + _TURN, count))
            self._connection.send(b"".join(send_entry(0, number, 1, blob) for number in numbers))
            expect(self._answers, {BaseCommand.SEND_RECEIPT: len(numbers)})

    def back_off(self, seconds: int) -> None:
        self._broker.post(f"{_PATH}/subscription/{SUBSCRIPTION}/redeliveryBackoff", [seconds * 1000])

    def take(self, count: int, redeliveries: int, answer: Answer) -> float:
        """Receives `count` messages with this redelivery count. Returns the mean memory in MB near the end."""
        granted = min(_TURN * _TURNS_UNDER_WAY, count)
        self._connection.send(grant(0, granted))
        looks_mb: list[float] = []
        for start in range(0, count, _TURN):
            wanted = min(_TURN, count - start)
            came = [command.message for command, _ in expect(self._answers, {BaseCommand.MESSAGE: wanted})]
            wrong = next((each for each in came if each.redelivery_count != redeliveries), None)
            if wrong is not None:
                raise ScaleFailed(f"a message that failed {redeliveries} times arrived as {wrong}".replace("\n", " "))
            more = min(wanted, count - granted)
            granted += more
            self._connection.send(answer([each.message_id for each in came]) + (grant(0, more) if more else b""))
            if count - start <= _LOOKED_AT_MESSAGES and (count - start) % _LOOK_EVERY == 0:
                looks_mb.append(self._broker.memory_mb())
        return sum(looks_mb) / len(looks_mb)

    def wait_until(self, time_s: float) -> None:
        """Waits, with pings: a broker disconnects a silent client."""
        while time.monotonic() < time_s:
            self._connection.send(PING)
            expect(self._answers, {BaseCommand.PONG: 1})
            time.sleep(min(5.0, max(0.0, time_s - time.monotonic())))

    def check_done(self) -> None:
        """Waits until everything is acknowledged, which plain acks do not confirm."""
        began = time.monotonic()
        while backlog := self._backlog():
            if time.monotonic() - began > _DONE_WITHIN_S:
                raise ScaleFailed(f"{backlog} messages are still unacknowledged")
            time.sleep(0.1)

    def _backlog(self) -> int:
        return int(self._broker.get(f"{_PATH}/stats")["subscriptions"][SUBSCRIPTION]["msgBacklog"])


def _nack(ids: list[MessageIdData]) -> bytes:
    command = CommandRedeliverUnacknowledgedMessages(consumer_id=0, message_ids=ids)
    return encode_frame(
        BaseCommand(type=BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliverUnacknowledgedMessages=command)
    )


def _acknowledge(ids: list[MessageIdData]) -> bytes:
    command = CommandAck(consumer_id=0, ack_type=CommandAck.Individual, message_id=ids)
    return encode_frame(BaseCommand(type=BaseCommand.ACK, ack=command))

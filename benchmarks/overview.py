"""Rows for the overview of Magnetar, which `magnetar top` and consoles ask for, with many topics.

The first answer is timed once all topics are connected. Then one producer publishes without a pause, in turns alone and
while five clients ask for the overview and a page of topics every two seconds, from a process of their own. The ratio
compares each turn with the quiet ones around it, so that a machine that changes its speed does not decide.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from contestant import Contestant, Running
from raw_connection import HOST, RawConnection
from scale import Log, Scale, ScaleFailed, Values, expect, open_producer, send_entry, use_topics

from magnetar.wire.metadata import build_blob
from magnetar.wire.schema_pb2 import BaseCommand, MessageMetadata

OVERVIEW = "/admin/v2/brokers/overview"
PATHS = (OVERVIEW, "/admin/v2/brokers/topics?sort=rateIn&limit=50")
CLIENTS = 5
POLL_EVERY_S = 2.0

_PRODUCER = 1_000_000  # its number: above those of the idle topics
_PAYLOAD = b"x" * 1024
_AT_A_TIME = 100
_UNDER_WAY_MAX = 1000
_WARMUP_S = 3.0


def overview(contestant: Contestant, scale: Scale, log: Log) -> Values:
    """Runs with the largest number of topics, each with a connected producer and consumer."""
    count = scale.topics[-1]
    with contestant.started() as broker, RawConnection(broker.port) as idle:
        use_topics(idle, count)
        time.sleep(scale.settle_s)
        first_s = _first_s(broker, count)
        quiet, polled = _rates(broker, scale.overview_turns, scale.overview_turn_s)
    ratios = [rate / ((before + after) / 2) for before, rate, after in zip(quiet, polled, quiet[1:], strict=False)]
    log(
        f"{contestant.name}: first overview of {count:,} topics after {first_s:.2f} s; published"
        f" {median(quiet):,.0f} msg/s alone, {median(polled):,.0f} with {CLIENTS} clients that poll every"
        f" {POLL_EVERY_S:g} s: ratios {', '.join(f'{ratio:.3f}' for ratio in ratios)}"
    )
    return {f"overview-first {count}": first_s, f"overview-publish {count}": median(ratios)}


def _first_s(broker: Running, count: int) -> float:
    connection = http.client.HTTPConnection(HOST, broker.http_port, timeout=60.0)
    began = time.perf_counter()
    try:
        connection.request("GET", OVERVIEW)
        response = connection.getresponse()
        body = response.read()
    finally:
        connection.close()
    took_s = time.perf_counter() - began
    if response.status != 200 or f'"topics":{count},'.encode() not in body:
        raise ScaleFailed(f"the overview of {count} topics returned status {response.status}: {body[:300]!r}")
    return took_s


def _rates(broker: Running, turns: int, turn_s: float) -> tuple[list[float], list[float]]:
    """Messages a second, alone and polled; there is one more turn alone, so that each other one is between two."""
    quiet, polled = [], []
    with RawConnection(broker.port) as connection:
        publisher = _Publisher(connection)
        publisher.rate(_WARMUP_S)
        for _ in range(turns):
            quiet.append(publisher.rate(turn_s))
            with _polling(broker.http_port):
                polled.append(publisher.rate(turn_s))
        quiet.append(publisher.rate(turn_s))
    return quiet, polled


class _Publisher:
    """Keeps a number of unbatched messages under way."""

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection
        self._answers = connection.answers()
        self._sequence_id = 0
        metadata = MessageMetadata(producer_name="bench", sequence_id=0, publish_time=0)
        self._blob = build_blob(metadata, _PAYLOAD)
        connection.send(open_producer(_PRODUCER, "published"))
        expect(self._answers, {BaseCommand.PRODUCER_SUCCESS: 1})

    def rate(self, seconds: float) -> float:
        began, sent, under_way = time.perf_counter(), 0, 0
        while (took_s := time.perf_counter() - began) < seconds:
            numbers = range(self._sequence_id, self._sequence_id + _AT_A_TIME)
            self._sequence_id = numbers.stop
            self._connection.send(b"".join([send_entry(_PRODUCER, number, 1, self._blob) for number in numbers]))
            sent += _AT_A_TIME
            under_way += _AT_A_TIME
            if under_way > _UNDER_WAY_MAX:
                expect(self._answers, {BaseCommand.SEND_RECEIPT: _AT_A_TIME})
                under_way -= _AT_A_TIME
        expect(self._answers, {BaseCommand.SEND_RECEIPT: under_way})
        return sent / took_s


@contextmanager
def _polling(http_port: int) -> Iterator[None]:
    """Clients in another process, whose interpreter does not delay the publisher's."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(http_port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        if process.stdout.readline() != b"polling\n":
            raise ScaleFailed("the clients that poll ended")
        yield
        if process.poll() is not None:
            raise ScaleFailed("the clients that poll ended")
    finally:
        process.stdin.close()  # their end
        process.wait()
        process.stdout.close()


def _poll(http_port: int, over: threading.Event) -> None:
    connection = http.client.HTTPConnection(HOST, http_port, timeout=30.0)
    while not over.is_set():
        for path in PATHS:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            assert response.status == 200, response.status
        over.wait(POLL_EVERY_S)
    connection.close()


def main() -> None:
    over = threading.Event()
    threads = [threading.Thread(target=_poll, args=(int(sys.argv[1]), over)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
        time.sleep(POLL_EVERY_S / CLIENTS)  # as consoles do, they do not ask at the same time
    print("polling", flush=True)
    sys.stdin.read()
    over.set()


if __name__ == "__main__":
    main()

"""Rows for Magnetar's HTTP port with many topics: listing, stats of one topic, and a scrape of `/metrics`.

During a scrape, a client of the binary protocol pings without a pause: the longest ping shows how long the broker's
loop was blocked, plus the noise of the machine. Pings without a scrape measure that noise.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from contestant import Contestant, Running
from raw_connection import HOST, RawConnection
from scale import Log, Scale, ScaleFailed, Values, topic_name, use_topics

from magnetar.wire.frames import encode_frame
from magnetar.wire.schema_pb2 import BaseCommand, CommandPing

_NAMESPACE = "/admin/v2/persistent/public/default"
_LISTINGS = 20
_STATS = 200
_SCRAPES = 5
_QUIET_S = 2.0
_SEED = 7

_PING = encode_frame(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))


def administration(contestant: Contestant, scale: Scale, log: Log) -> Values:
    """Runs with the largest number of topics, each with a connected producer and consumer."""
    count = scale.topics[-1]
    with contestant.started() as broker, RawConnection(broker.port) as connection:
        use_topics(connection, count)
        time.sleep(scale.settle_s)
        list_ms = _list_ms(broker, count)
        stats_ms = _stats_ms(broker, count)
        with _pinging(broker.port) as quiet:
            time.sleep(_QUIET_S)
        scrapes, size = [], 0
        with _pinging(broker.port) as scraped:
            for _ in range(_SCRAPES):
                took_s, size = _scrape(broker.http_port, count)
                scrapes.append(took_s)
    log(
        f"{contestant.name}: {count:,} topics listed in {list_ms:.1f} ms, stats of one in {median(stats_ms):.2f} ms "
        f"(longest of {len(stats_ms)}: {max(stats_ms):.1f} ms)"
    )
    log(
        f"{contestant.name}: /metrics of {size / 1e6:.1f} MB in {median(scrapes):.2f} s; longest pause of the loop "
        f"during a scrape {scraped.longest_ms:.1f} ms of {scraped.count:,} pings, idle {quiet.longest_ms:.1f} ms"
    )
    return {
        f"admin-list {count}": list_ms,
        f"admin-stats {count}": max(stats_ms),
        f"admin-metrics {count}": median(scrapes),
        f"admin-pause {count}": scraped.longest_ms,
    }


def _list_ms(broker: Running, count: int) -> float:
    times_ms = []
    connection = http.client.HTTPConnection(HOST, broker.http_port, timeout=30.0)
    with contextlib.closing(connection):
        for _ in range(_LISTINGS):
            took_ms, body = _timed_get(connection, _NAMESPACE)
            times_ms.append(took_ms)
    if body.count(b'"persistent://') != count:
        raise ScaleFailed(f"the list of a namespace with {count} topics has {body.count(b'persistent://')}")
    return median(times_ms)


def _stats_ms(broker: Running, count: int) -> list[float]:
    """Times requests for stats of topics across the list, on one open connection, as a console uses it."""
    chosen = random.Random(_SEED).sample(range(count), _STATS)
    connection = http.client.HTTPConnection(HOST, broker.http_port, timeout=30.0)
    with contextlib.closing(connection):
        local_names = [topic_name(f"many-{each}").rpartition("/")[2] for each in chosen]
        return [_timed_get(connection, f"{_NAMESPACE}/{name}/stats")[0] for name in local_names]


def _timed_get(connection: http.client.HTTPConnection, path: str) -> tuple[float, bytes]:
    began = time.perf_counter()
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    took_ms = (time.perf_counter() - began) * 1000
    if response.status != 200:
        raise ScaleFailed(f"GET {path} returned status {response.status}: {body[:200]!r}")
    return took_ms, body


def _scrape(http_port: int, count: int) -> tuple[float, int]:
    """Returns seconds and bytes. Reads raw into one buffer, so that this process does not delay the pings."""
    request = f"GET /metrics/ HTTP/1.1\r\nHost: {HOST}:{http_port}\r\nConnection: close\r\n\r\n"
    buffer = bytearray(1 << 20)
    began, size, topics = time.perf_counter(), 0, 0
    with socket.create_connection((HOST, http_port), 60.0) as connection:
        connection.sendall(request.encode())
        while received := connection.recv_into(buffer):
            if size == 0 and not buffer.startswith(b"HTTP/1.1 200"):
                raise ScaleFailed(f"/metrics returned {bytes(buffer[:100])!r}")
            size += received
            topics += buffer.count(b"\npulsar_msg_backlog{", 0, received)
    if topics < count * 0.9:  # the end of a buffer may cut one
        raise ScaleFailed(f"/metrics shows {topics} of {count} topics")
    return time.perf_counter() - began, size


@dataclass(slots=True)
class _Pings:
    longest_ms: float = 0.0
    count: int = 0
    enough: threading.Event = field(default_factory=threading.Event)
    failure: OSError | None = None

    def run(self, port: int) -> None:
        """Sends pings one after the other until stopped."""
        try:
            with RawConnection(port) as connection:
                pongs = self._pongs(connection)
                while not self.enough.is_set():
                    began = time.perf_counter()
                    connection.send(_PING)
                    next(pongs)
                    self.longest_ms = max(self.longest_ms, (time.perf_counter() - began) * 1000)
                    self.count += 1
        except OSError as error:
            self.failure = error

    def _pongs(self, connection: RawConnection) -> Iterator[None]:
        for command, _ in connection.answers():
            if command.type == BaseCommand.PONG:
                yield


@contextlib.contextmanager
def _pinging(port: int) -> Iterator[_Pings]:
    """Pings while the block runs."""
    pings = _Pings()
    thread = threading.Thread(target=pings.run, args=(port,))
    thread.start()
    try:
        yield pings
    finally:
        pings.enough.set()
        thread.join()
    if pings.failure is not None:
        raise pings.failure

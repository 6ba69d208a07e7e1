"""A byte of the log is damaged after a crash: the broker refuses to start in silence, and never gives an id twice."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pulsar

from magnetar.storage.sequence_mark import FILE_NAME

from .killable import KillableBroker

_COUNT = 300
Position = tuple[int, int]


@contextlib.contextmanager
def client_of(broker: KillableBroker) -> Iterator[pulsar.Client]:
    client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with contextlib.closing(client):
        yield client


def publish(broker: KillableBroker, numbers: range) -> list[Position]:
    with client_of(broker) as client:
        producer = client.create_producer("t")
        ids = [producer.send(b"%d" % number) for number in numbers]
    return [(message_id.ledger_id(), message_id.entry_id()) for message_id in ids]


def read_from(broker: KillableBroker, start: pulsar.MessageId) -> dict[bytes, Position]:
    """Every message after `start`."""
    found: dict[bytes, Position] = {}
    with client_of(broker) as client:
        reader = client.create_reader("t", start)
        while reader.has_message_available():
            message = reader.read_next(10_000)
            found[message.data()] = (message.message_id().ledger_id(), message.message_id().entry_id())
    return found


def wait_for_mark(data: Path) -> None:
    """Until the record of what is synced has stayed the same for longer than it is ever behind."""
    deadline_s = time.monotonic() + 60
    content, since_s = b"", time.monotonic()
    while time.monotonic() - since_s < 2:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
        if (data / FILE_NAME).read_bytes() != content:
            content, since_s = (data / FILE_NAME).read_bytes(), time.monotonic()


def damage_log(data: Path) -> Path:
    log = max(data.glob("*.log"), key=lambda path: path.read_bytes().count(b"0:standalone"))
    content = bytearray(log.read_bytes().rstrip(b"\0"))
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    return log


def refused_start(data: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "magnetar", "standalone", "--data", str(data), "--port", "0", "--http-port", "0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_fault_flipped_log_byte_refuses_the_start_until_the_loss_is_accepted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = KillableBroker(data)
    broker.start()
    try:
        before = publish(broker, range(_COUNT))
        wait_for_mark(data)
        broker.kill()
        damaged = damage_log(data).read_bytes()
        # refused, twice, with the reason and nothing changed
        for _ in range(2):
            refused = refused_start(data)
            assert refused.returncode == 1
            assert "ready" not in refused.stdout
            assert "changes or more that were on disk and acknowledged" in refused.stderr
            assert "--accept-loss" in refused.stderr
        # accepted
        broker.options = ["--accept-loss"]
        broker.start()
        broker.options = []
        left = read_from(broker, pulsar.MessageId.earliest)
        assert 0 < len(left) < _COUNT
        assert list(left) == [b"%d" % number for number in range(len(left))]
        assert damaged in [path.read_bytes() for path in (data / "damaged-log-1").iterdir()]
        after = publish(broker, range(_COUNT, _COUNT + 20))
        assert min(after) > max(before)
        # the id of a lost message is the end of what is left, and never another message
        lost = pulsar.MessageId(-1, before[-1][0], before[-1][1], -1)
        assert list(read_from(broker, lost)) == [b"%d" % number for number in range(_COUNT, _COUNT + 20)]
        # from a message that is left, a reader goes on; that message has another id now, and is read again
        known = pulsar.MessageId(-1, *before[len(left) - 2], -1)
        assert list(read_from(broker, known))[:2] == [b"%d" % (len(left) - 2), b"%d" % (len(left) - 1)]
        # and the next start is like any other
        wait_for_mark(data)
        broker.kill()
        broker.start()
        assert len(read_from(broker, pulsar.MessageId.earliest)) == len(left) + 20
        assert publish(broker, range(1))[0] > max(after)
    finally:
        broker.kill()

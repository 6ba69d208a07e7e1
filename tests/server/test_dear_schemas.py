"""A schema that takes long to check, over real sockets: the thread is held by the test."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

import magnetar.testing
from magnetar.broker.schema.examination import Examination
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import encode_frame
from tests.session.talk import send_frame

from .raw_client import Command, RawClient

WAIT_S = 60
FIELDS = [{"name": f"field{number}", "type": "string"} for number in range(300)]
LARGE = json.dumps({"type": "record", "name": "R", "fields": FIELDS}).encode()


def test_fault_schema_that_takes_long_holds_up_no_other_client(monkeypatch: pytest.MonkeyPatch) -> None:
    started, released = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []
    original = Examination.find_or_check

    def held(examination: Examination, strategy: str) -> Any:
        threads.append(threading.current_thread())
        if len(threads) == 1:
            started.set()
            assert released.wait(WAIT_S)
        return original(examination, strategy)

    monkeypatch.setattr(Examination, "find_or_check", held)
    schema = pb.Schema(name="R", type=pb.Schema.Type.Avro, schema_data=LARGE)
    request = pb.CommandProducer(topic="t", producer_id=1, request_id=1, schema=schema)
    with magnetar.testing.broker() as running:
        first, second, third = RawClient(running), RawClient(running), RawClient(running)
        producer = encode_frame(Command(type=Command.PRODUCER, producer=request))
        first.send_bytes(producer + b"".join(send_frame(number) for number in range(50)))
        third.send_bytes(producer)
        assert started.wait(WAIT_S)
        first.send_bytes(b"".join(send_frame(number) for number in range(50, 100)))
        third.close()
        second.produce_to("other")
        second.send_bytes(send_frame(7))
        assert second.receive().send_receipt.sequence_id == 7
        released.set()
        assert first.receive().type == Command.PRODUCER_SUCCESS
        assert [first.receive().send_receipt.sequence_id for _ in range(100)] == list(range(100))
        assert len(set(threads)) == 2  # the command itself is handled in the loop
        first.close()
        second.close()

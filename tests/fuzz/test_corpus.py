"""Inputs that once failed are harmless: each is played in a process with limits of memory and CPU time."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import corpus
from .attacks import ATTACKS
from .worker import Worker

OPEN: dict[str, str] = {
    "get_schema/answers-that-are-not-read": "answers that are not read have no bound",
    "producer/largest-topic-epoch": "numbers beyond 63 bits are accepted",
    "producer/names-of-four-megabytes": "names have no bound",
    "producer/schema-property-not-utf8": "text that is not UTF-8 is accepted",
    "redeliver_unacknowledged_messages/indexes-of-entries-not-held": "indexes of entries not held take memory",
    "send/five-million-messages-in-a-byte": "the number of messages in a batch has no bound",
    "send/sequence-id-beyond-63-bits": "numbers beyond 63 bits are accepted",
    "subscribe/failover-name-not-utf8": "text that is not UTF-8 is accepted",
    "subscribe/many-failover-consumers": "joining a Failover subscription is quadratic",
    "subscribe/many-sticky-ranges": "comparing sticky ranges is quadratic",
    "subscribe/property-not-utf8": "text that is not UTF-8 is accepted",
}
"""Known failures that are open, with their causes."""


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.gz')}"


@pytest.mark.parametrize("path", corpus.paths(), ids=name_of)
def test_fault_random_bytes_once_failed(request: pytest.FixtureRequest, worker: Worker, path: Path) -> None:
    reason = OPEN.get(name_of(path))
    if reason is not None:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=False))
    failure = worker.replay(path)
    assert failure is None, str(failure)


def test_every_known_attack_is_in_the_corpus() -> None:
    assert {*ATTACKS} <= {name_of(path) for path in corpus.paths()}
    assert {*OPEN} <= {name_of(path) for path in corpus.paths()}


def test_a_conversation_is_cut_into_frames() -> None:
    frames = [(4).to_bytes(4, "big") + b"four", (0).to_bytes(4, "big"), b"\xff\xff\xff\xff rest"]
    assert corpus.frames_in(b"".join(frames)) == frames

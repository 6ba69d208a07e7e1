"""Inputs that once failed are harmless: each is played in a process with limits of memory and CPU time."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import corpus
from .attacks import ATTACKS
from .worker import Worker


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.gz')}"


@pytest.mark.parametrize("path", corpus.paths(), ids=name_of)
def test_fault_random_bytes_once_failed(worker: Worker, path: Path) -> None:
    failure = worker.replay(path)
    assert failure is None, str(failure)


def test_every_known_attack_is_in_the_corpus() -> None:
    assert {*ATTACKS} <= {name_of(path) for path in corpus.paths()}


def test_a_conversation_is_cut_into_frames() -> None:
    frames = [(4).to_bytes(4, "big") + b"four", (0).to_bytes(4, "big"), b"\xff\xff\xff\xff rest"]
    assert corpus.frames_in(b"".join(frames)) == frames

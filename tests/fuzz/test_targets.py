"""Each command and each REST route gets a fixed number of hostile inputs; `make fuzz` goes on for hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.admin.routes import ROUTES
from magnetar.wire import schema_pb2 as pb
from tests.admin.route_requests import key

from . import corpus
from .limits import CPU_MAX_S, slowness
from .targets import decode, encode, targets
from .worker import Worker, seeded

RUNS_PER_COMMAND = 25
RUNS_PER_UNSUPPORTED_COMMAND = 3
RUNS_PER_ROUTE = 2
ROUTES_PER_TEST = 21

COMMANDS = sorted(pb.BaseCommand.Type.keys())
SUPPORTED = [name for name in COMMANDS if targets()[name].folder != "unsupported"]
UNSUPPORTED = [name for name in COMMANDS if name not in SUPPORTED]


@pytest.mark.parametrize("name", SUPPORTED)
def test_fault_random_bytes_in_a_command(worker: Worker, name: str) -> None:
    failure = worker.fuzz(name, 0, RUNS_PER_COMMAND)
    assert failure is None, str(failure)


def test_fault_random_bytes_in_an_unsupported_command(worker: Worker) -> None:
    for name in UNSUPPORTED:
        failure = worker.fuzz(name, 0, RUNS_PER_UNSUPPORTED_COMMAND)
        assert failure is None, str(failure)


@pytest.mark.parametrize("first", range(0, len(ROUTES), ROUTES_PER_TEST))
def test_fault_random_bytes_in_a_request(worker: Worker, first: int) -> None:
    for route in ROUTES[first : first + ROUTES_PER_TEST]:
        failure = worker.fuzz(key(route), 0, RUNS_PER_ROUTE)
        assert failure is None, str(failure)


# -- the instruments themselves


def test_inputs_are_the_same_in_every_run() -> None:
    for name in ("SUBSCRIBE", "SEND", "PUT /admin/v2/tenants/{tenant}"):
        make = targets()[name].make
        made = [make(seeded(name, number)) for number in range(20)]
        assert made == [make(seeded(name, number)) for number in range(20)]
        assert len(set(made)) > 10


def test_a_request_is_a_file() -> None:
    for route in ROUTES[:20]:
        made = targets()[key(route)].make(seeded(key(route), 1))
        assert encode(decode(made)) == made


def test_an_input_that_takes_too_long_or_too_much_fails(worker: Worker, tmp_path: Path) -> None:
    """A bomb that is not the broker's: the worker's own limits, seen from outside."""
    assert slowness() * CPU_MAX_S >= 1
    folder = tmp_path / "planted"
    folder.mkdir()
    for name, reason in (("slow", "TooExpensive"), ("large", "MemoryError"), ("fatal", "ended with code")):
        path = folder / name
        path.write_bytes(name.encode())
        failure = worker.replay(path)
        assert failure is not None and reason in failure.reason, failure
    fine = corpus.CORPUS / "ack" / "empty-ids.gz"
    assert worker.replay(fine) is None, "a new process takes over"

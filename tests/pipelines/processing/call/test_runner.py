"""The runner of functions, without Spark: whatever a call does, only its own row fails."""

from __future__ import annotations

import asyncio
import datetime
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from magnetar.client.message import MessageId
from magnetar.deadletter.properties import Reason
from magnetar.pipelines import Message, Received
from magnetar.pipelines.processing.call.function import Kind, ProcessFunction
from magnetar.pipelines.processing.call.outcome import CallOutcome
from magnetar.pipelines.processing.call.runner import FunctionRunner, RunOptions

LIMIT_S = 0.4
FOREVER_S = 60


def batch_of(count: int) -> pa.RecordBatch:
    """Rows whose value is their number."""
    now = pa.array([datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)] * count, pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([str(row).encode() for row in range(count)]),
            "__key": pa.array([f"k{row % 2}".encode() for row in range(count)]),
            "__messageProperties": pa.array(
                [[("n", str(row))] for row in range(count)], pa.map_(pa.string(), pa.string())
            ),
            "__eventTime": now,
            "__messageId": pa.array([MessageId(7, row).to_bytes() for row in range(count)]),
            "__topic": pa.array(["persistent://public/default/orders"] * count),
            "__publishTime": now,
            "__attempt": pa.array([2] * count, pa.int32()),
            "__row": pa.array(range(count), pa.int32()),
        }
    )


@contextmanager
def runner_of(
    function: Callable[..., Any], kind: Kind = "row", *, limit_s: float = LIMIT_S, concurrency: int = 4
) -> Iterator[FunctionRunner]:
    runner = FunctionRunner(ProcessFunction(kind, function=function), RunOptions(limit_s, concurrency))
    try:
        yield runner
    finally:
        runner.close()


def outcome_of(function: Callable[..., Any], count: int, kind: Kind = "row", **options: Any) -> CallOutcome:
    with runner_of(function, kind, **options) as runner:
        return runner.process(batch_of(count))


def reasons(outcome: CallOutcome) -> dict[int, Reason]:
    return {row: failure.reason for row, failure in sorted(outcome.failures.items())}


# -- rows


def test_sp2_a_row_that_fails_leaves_its_neighbours_alone() -> None:
    def function(message: Received) -> bytes | None:
        number = int(message.value)
        if number == 1:
            raise ValueError("no 1")
        if number == 3:
            os._exit(7)
        if number == 5:
            time.sleep(FOREVER_S)
        if number == 6:
            os.kill(os.getpid(), signal.SIGSEGV)
        if number == 7:
            sys.exit(2)
        return message.value * 2 if number % 2 == 0 else None

    found = outcome_of(function, 12)
    assert found.values == {0: b"00", 2: b"22", 4: b"44", 8: b"88", 10: b"1010"}
    assert reasons(found) == {
        1: Reason.ProcessingFailed,
        3: Reason.ConsumerCrash,
        5: Reason.TimedOut,
        6: Reason.ConsumerCrash,
        7: Reason.ProcessingFailed,
    }
    assert found.failures[3].description == "the process that ran the function exited with code 7"
    assert found.failures[6].description == "the process that ran the function was killed by SIGSEGV"
    assert found.failures[5].description == "the function took longer than 0.4 s for the message"
    raised = found.failures[1].raised
    assert raised is not None
    assert (raised.exception, raised.text) == ("ValueError", "no 1")
    assert raised.stack_trace.startswith("Traceback") and 'raise ValueError("no 1")' in raised.stack_trace
    assert "child.py" not in raised.stack_trace
    assert found.failures[1].classes == ("ValueError", "Exception", "BaseException")


def test_sp2_rows_are_called_once_although_others_kill_the_process(tmp_path: Path) -> None:
    """Also those before the crash, whose results are not lost with the process."""
    calls = tmp_path / "calls"

    def function(message: Received) -> bytes | None:
        with calls.open("ab") as file:
            file.write(message.value + b" ")
        if message.value in (b"4", b"9"):
            os._exit(1)
        return message.value if int(message.value) % 3 else None

    found = outcome_of(function, 12)
    assert calls.read_text().split() == [str(row) for row in range(12)]
    assert sorted(found.values) == [1, 2, 5, 7, 8, 10, 11]
    assert sorted(found.failures) == [4, 9]


def test_sp2_a_row_sees_the_message() -> None:
    def function(message: Received) -> str:
        return repr(
            (
                message.value,
                message.key,
                message.properties,
                message.event_time.isoformat() if message.event_time else None,
                str(message.message_id),
                message.topic,
                message.attempt,
                message.redelivery_count,
                message.publish_time.year,
            )
        )

    found = outcome_of(function, 2)
    assert found.messages[1] == [
        Message(
            "(b'1', 'k1', {'n': '1'}, '2026-01-02T00:00:00+00:00', '7:1:-1',"
            " 'persistent://public/default/orders', 2, 2, 2026)"
        )
    ]


def test_sp2_a_row_returns_nothing_a_value_a_message_or_several() -> None:
    made: list[Any] = [None, b"raw", {"a": 1}, Message("v", key="k", properties={"p": "q"}), [b"x", Message(b"y")], []]

    found = outcome_of(lambda message: made[int(message.value)], len(made))
    assert found.values == {1: b"raw"}
    assert found.messages == {
        2: [Message({"a": 1})],
        3: [Message("v", key="k", properties={"p": "q"})],
        4: [Message(b"x"), Message(b"y")],
    }
    assert not found.failures


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Message(b"", key=5), "key of a message is of type int, not str or bytes"),  # type: ignore[arg-type]
        (Message(b"", properties={"a": 1}), "property 'a' of a message is 1: names and values are texts"),  # type: ignore[dict-item]
        (Message(b"", event_time=12), "event_time of a message is of type int, not datetime"),  # type: ignore[arg-type]
        ([b""] * 10_001, "10001 messages were returned for one: at most 10000 can be"),
        (b"x" * 5_000_000, "a result of 5000000 bytes exceeds the limit of 4194304"),
    ],
)
def test_sp2_a_result_that_cannot_be_published_fails_its_row(result: object, text: str) -> None:
    found = outcome_of(lambda message: result if message.value == b"1" else None, 3)
    assert reasons(found) == {1: Reason.ProcessingFailed}
    assert found.failures[1].description.endswith(text)


def test_sp2_results_larger_than_the_shared_memory_arrive_in_parts() -> None:
    found = outcome_of(lambda message: b"x" * 1_000_000, 11, limit_s=30)
    assert [len(value) for _, value in sorted(found.values.items())] == [1_000_000] * 11


def test_sp2_a_process_is_kept_between_batches_and_ends_with_the_runner() -> None:
    with runner_of(lambda message: str(os.getpid()).encode()) as runner:
        pids = {value for _ in range(3) for value in runner.process(batch_of(3)).values.values()}
    assert len(pids) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.pop()), 0)


def test_sp2_a_process_ends_with_its_parent_even_while_its_function_hangs() -> None:
    program = textwrap.dedent("""
        import os, signal, sys, threading, time
        from tests.pipelines.processing.call.test_runner import batch_of
        from magnetar.pipelines.processing.call.function import ProcessFunction
        from magnetar.pipelines.processing.call.runner import FunctionRunner, RunOptions

        def function(message):
            print(os.getpid(), flush=True)
            time.sleep(600)

        FunctionRunner(ProcessFunction("row", function=function), RunOptions(600)).process(batch_of(1))
    """)
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent, parent.stdout:
        assert int(parent.stdout.readline()) != parent.pid
        parent.kill()
        assert parent.stdout.read() == b""  # returns when the child, which has the other end, is gone


def test_sp2_a_function_inherits_no_connection() -> None:
    def function(message: Received) -> bytes:
        return str(len(os.listdir("/proc/self/fd"))).encode()

    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
    found = outcome_of(function, 1)
    for number in held:
        os.close(number)
    assert int(found.values[0]) <= 6  # three standard ones, the pipe, the lifeline, and the listing itself


# -- coroutines


def test_sp2_coroutines_run_together_and_fail_alone() -> None:
    async def function(message: Received) -> bytes | None:
        number = int(message.value)
        await asyncio.sleep(0.01)
        if number == 3:
            raise ValueError("no 3")
        if number == 5:
            os._exit(7)
        if number == 7:
            await asyncio.sleep(FOREVER_S)
        if number == 9:
            time.sleep(FOREVER_S)  # blocks the loop
        return message.value if number % 2 else None

    found = outcome_of(function, 16, "async")
    assert sorted(found.values) == [1, 11, 13, 15]
    assert reasons(found) == {
        3: Reason.ProcessingFailed,
        5: Reason.ConsumerCrash,
        7: Reason.TimedOut,
        9: Reason.TimedOut,
    }


def test_sp2_concurrency_is_bounded() -> None:
    running = [0, 0]

    async def function(message: Received) -> bytes:
        running[0] += 1
        running[1] = max(running)
        await asyncio.sleep(0.005)
        running[0] -= 1
        return str(running[1]).encode()

    found = outcome_of(function, 40, "async", concurrency=5)
    assert max(int(value) for value in found.values.values()) == 5


# -- batches


def test_sp2_a_bad_batch_is_halved_until_the_bad_rows_are_alone() -> None:
    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = [int(value) for value in batch.column("value").to_pylist()]
        if 5 in numbers:
            os._exit(1)
        if 6 in numbers:
            raise KeyError("6")
        if 7 in numbers:
            time.sleep(FOREVER_S)
        return batch.filter(pa.array([number % 2 == 0 for number in numbers])).select(["value", "__row"])

    found = outcome_of(function, 16, "arrow", limit_s=0.2)
    assert [row for _, rows in found.batches for row in rows] == [0, 2, 4, 8, 10, 12, 14]
    assert reasons(found) == {5: Reason.ConsumerCrash, 6: Reason.ProcessingFailed, 7: Reason.TimedOut}


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda batch: batch.slice(1).select(["value"]), "the function returned 0 rows for 1 and no column __row"),
        (lambda batch: [1], "the function returned list, not a RecordBatch, a Table or None"),
        (
            lambda batch: pa.RecordBatch.from_pydict({"value": [b""], "__row": ["a"]}),
            "column __row has no numbers of rows: keep it as it was",
        ),
    ],
)
def test_sp2_a_batch_that_cannot_be_published_fails_its_rows(function: Callable[..., Any], text: str) -> None:
    found = outcome_of(function, 2, "arrow")
    assert sorted(found.failures) == [0, 1]
    assert text in found.failures[0].description


def test_sp2_a_batch_function_returns_a_table_or_nothing() -> None:
    with runner_of(lambda batch: pa.Table.from_batches([batch.select(["value"])]), "arrow") as runner:
        [(made, rows)] = runner.process(batch_of(3)).batches
        assert (made.num_rows, rows) == (3, [0, 1, 2])
    assert outcome_of(lambda batch: None, 3, "arrow") == CallOutcome()


def test_sp2_a_function_over_pandas() -> None:
    pytest.importorskip("pandas")

    found = outcome_of(lambda frame: frame[frame["__row"] != 1][["value", "__row"]], 3, "pandas", limit_s=30)
    assert [rows for _, rows in found.batches] == [[0, 2]]

"""The runner of a function: batches go to a process of its own, and outcomes come back, whatever that process does.

Owns the process and its time limit: a row whose call kills the process, or takes too long, fails alone, and the next
process goes on with the row after it. A batch that fails as a whole is halved until the rows that cannot be processed
are alone.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from magnetar.pipelines.processing.call import child, shared
from magnetar.pipelines.processing.call.function import ProcessFunction
from magnetar.pipelines.processing.call.message import ROW, Message
from magnetar.pipelines.processing.call.outcome import CallOutcome, Failure, crash, timed_out

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_LOOK_S = 60.0
"""The longest wait for an answer while no row is under way."""

_BLOCKED_S = 1.0
"""Beyond its limit, after which a coroutine that blocks its loop is stopped from outside."""

_NS = 1_000_000_000


@dataclass(frozen=True)
class RunOptions:
    """`limit_s` is for one call: of a row, or of a batch. `concurrency` is that of async functions."""

    limit_s: float
    concurrency: int = 1


class _Died(Exception):
    """The process ended; `rows` were under way, none if it was not calling the function."""

    def __init__(self, rows: list[int], text: str) -> None:
        super().__init__(text)
        self.rows = rows


class _Late(_Died):
    """It was stopped because these rows took too long."""


class FunctionRunner:
    """For one thread. The process is forked by the first batch, or by `start`, and kept."""

    def __init__(self, function: ProcessFunction, options: RunOptions) -> None:
        self._function = function
        self._options = options
        self._state = shared.SharedState(options.concurrency if function.kind == "async" else 1)
        self._hard_limit_s = options.limit_s + (_BLOCKED_S if function.kind == "async" else 0.0)
        self._pid: int | None = None
        self._requests: Connection | None = None
        self._lifeline = -1
        self._loaded = None if function.function is None else function.function

    def start(self) -> None:
        """Forks the process, unless it runs: before the first connection, so that it inherits none."""
        if self._pid is not None:
            return
        if self._loaded is None:
            self._loaded = self._function.load()
        ours, theirs = Pipe()
        lifeline, self._lifeline = os.pipe()
        pid = os.fork()
        if pid == 0:
            limit_s = self._options.limit_s
            child.serve(theirs, lifeline, self._state, self._function.kind, self._loaded, limit_s)
        self._pid, self._requests = pid, ours
        theirs.close()
        os.close(lifeline)

    def process(self, batch: pa.RecordBatch) -> CallOutcome:
        """The outcome of all rows. Never raises for what the function does."""
        outcome = CallOutcome()
        if self._function.is_for_batches:
            self._halve(batch, 0, batch.num_rows, outcome)
        else:
            self._run_rows(_ipc(batch), list(range(batch.num_rows)), outcome)
        return outcome

    def close(self) -> None:
        """Ends the process, at once."""
        if self._pid is not None:
            self._reap(signal.SIGKILL)
        self._state.close()

    # -- rows

    def _run_rows(self, data: pa.Buffer, rows: list[int], outcome: CallOutcome) -> None:
        while rows:
            done: set[int] = set()
            try:
                self._request(data, rows, outcome, done)
                return
            except _Died as death:
                if self._state.is_finished:
                    return
                settle = self._after_coroutines if self._function.kind == "async" else self._after_row
                rows = settle(data, rows, death, outcome, done)

    def _after_row(
        self, data: pa.Buffer, rows: list[int], death: _Died, outcome: CallOutcome, done: set[int]
    ) -> list[int]:
        """The rows that are left. Rows are called in order: all before the one under way were processed."""
        if not death.rows:
            return self._after_unknown(data, rows, death, outcome)
        row = death.rows[0]
        if row not in done:
            outcome.failures[row] = self._death(death)
        return rows[rows.index(row) + 1 :]

    def _after_coroutines(
        self, data: pa.Buffer, rows: list[int], death: _Died, outcome: CallOutcome, done: set[int]
    ) -> list[int]:
        """Any row under way may be the cause: each is run alone."""
        left = [row for row in rows if row not in done]
        suspects = [row for row in death.rows if row not in done]
        if not suspects:
            return self._after_unknown(data, left, death, outcome)
        if len(rows) == 1:
            outcome.failures[rows[0]] = self._death(death)
            return []
        for row in suspects:
            self._run_rows(data, [row], outcome)
        return [row for row in left if row not in suspects]

    def _after_unknown(self, data: pa.Buffer, rows: list[int], death: _Died, outcome: CallOutcome) -> list[int]:
        """The process died without calling the function: the rows are halved until the cause is alone."""
        if len(rows) <= 1:
            outcome.failures.update((row, self._death(death)) for row in rows)
            return []
        half = len(rows) // 2
        self._run_rows(data, rows[:half], outcome)
        return rows[half:]

    def _request(self, data: pa.Buffer, rows: list[int], outcome: CallOutcome, done: set[int]) -> None:
        """Adds results as they come, also when the process dies."""
        try:
            answer = self._ask(data, rows)
            while answer == child.FULL:
                self._collect(outcome, done)
                self._send(child.GO)
                answer = self._answer()
        finally:
            self._collect(outcome, done)

    def _collect(self, outcome: CallOutcome, done: set[int]) -> None:
        found = self._state.take()
        done.update(found.rows.tolist())
        is_value = found.kinds == shared.VALUE
        if is_value.any():
            values = _binary(found)
            rows = found.rows
            if not is_value.all():
                values, rows = values.filter(pa.array(is_value)), rows[is_value]
            outcome.plain.append((rows, values))
        for number in np.flatnonzero(found.kinds > shared.VALUE).tolist():
            row = int(found.rows[number])
            made = pickle.loads(found.data[found.ends[number - 1] if number else 0 : found.ends[number]])
            if found.kinds[number] == shared.MESSAGES:
                outcome.messages[row] = [Message(*fields) for fields in made]
            else:
                outcome.failures[row] = made

    # -- batches

    def _halve(self, batch: pa.RecordBatch, start: int, count: int, outcome: CallOutcome) -> None:
        """The rows from `start`, as numbered in the whole batch."""
        failure = self._run_batch(batch.slice(start, count), start, outcome)
        if failure is None:
            return
        if count == 1:
            outcome.failures[start] = failure
            return
        half = count // 2
        self._halve(batch, start, half, outcome)
        self._halve(batch, start + half, count - half, outcome)

    def _run_batch(self, batch: pa.RecordBatch, start: int, outcome: CallOutcome) -> Failure | None:
        try:
            answer = self._ask(_ipc(batch), list(range(batch.num_rows)))
            if answer == child.BATCH_FAILED:
                failure: Failure = pickle.loads(self._answer())
                return failure
            if answer == child.BATCH:
                with pa.ipc.open_stream(self._answer()) as stream:
                    self._add_batch(stream.read_next_batch(), start, batch.num_rows, outcome)
        except _Died as death:
            return self._death(death)
        return None

    @staticmethod
    def _add_batch(made: pa.RecordBatch, start: int, count: int, outcome: CallOutcome) -> None:
        rows = range(start, start + count) if ROW not in made.schema.names else made.column(ROW).to_pylist()
        outcome.batches.append((made, list(rows)))

    # -- the process

    def _ask(self, data: pa.Buffer, rows: list[int]) -> bytes:
        self.start()
        self._state.clear()
        self._send(pickle.dumps(rows))
        self._send(data)
        return self._answer()

    def _send(self, data: bytes | pa.Buffer) -> None:
        assert self._requests is not None
        try:
            self._requests.send_bytes(data)
        except (BrokenPipeError, ConnectionResetError):
            raise self._dead() from None

    def _answer(self) -> bytes:
        """Stops the process when a row takes longer than its limit."""
        assert self._requests is not None
        while not self._requests.poll(self._wait_s()):
            if late := self._late_rows():
                raise self._stopped(late)
        try:
            return self._requests.recv_bytes()
        except (EOFError, ConnectionResetError):
            raise self._dead() from None

    def _wait_s(self) -> float:
        started = [since for _, since in self._state.under_way()]
        if not started:
            return min(_LOOK_S, self._hard_limit_s)
        return max(0.0, self._hard_limit_s - (time.monotonic_ns() - min(started)) / _NS)

    def _late_rows(self) -> list[int]:
        """The process is suspended for a second look: it may have gone on to the next row just now."""
        if not self._overdue():
            return []
        self._signal(signal.SIGSTOP)
        late = self._overdue()
        if not late:
            self._signal(signal.SIGCONT)
        return late

    def _overdue(self) -> list[int]:
        before_ns = time.monotonic_ns() - int(self._hard_limit_s * _NS)
        return [row for row, since in self._state.under_way() if since <= before_ns]

    def _stopped(self, late: list[int]) -> _Died:
        under_way = [row for row, _ in self._state.under_way()]
        self._reap(signal.SIGKILL)
        # Of coroutines in one loop, any may be the one that blocks it.
        return _Late(late if self._function.kind != "async" else under_way, "")

    def _dead(self) -> _Died:
        under_way = [row for row, _ in self._state.under_way()]
        return _Died(under_way, self._reap(None))

    def _death(self, death: _Died) -> Failure:
        if isinstance(death, _Late):
            return timed_out(self._options.limit_s, "the batch" if self._function.is_for_batches else "the message")
        return crash(f"the process that ran the function {death}")

    def _signal(self, number: int) -> None:
        assert self._pid is not None
        with suppress(ProcessLookupError):
            os.kill(self._pid, number)

    def _reap(self, number: int | None) -> str:
        """How the process ended, as the rest of a sentence."""
        assert self._pid is not None and self._requests is not None
        if number is not None:
            self._signal(number)
        _, status = os.waitpid(self._pid, 0)
        self._requests.close()
        os.close(self._lifeline)
        self._pid = self._requests = None
        code = os.waitstatus_to_exitcode(status)
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"


def _binary(found: shared.Results) -> pa.Array:
    """All results as one column, without an object for each."""
    offsets = np.zeros(len(found.ends) + 1, np.int32)
    offsets[1:] = found.ends
    return pa.Array.from_buffers(pa.binary(), len(found.ends), [None, pa.py_buffer(offsets), pa.py_buffer(found.data)])


def _ipc(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue()

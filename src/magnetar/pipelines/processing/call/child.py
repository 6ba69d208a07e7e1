"""The process that calls the function: serves batches until its pipe is closed.

Owns the calls, and what happens to their results. Whatever the function does ends at worst this process; `runner`
starts the next one. Opens no connection, and closes those that it inherited.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import pyarrow as pa

from magnetar.client.bounded import BoundedLoop, Expired, within_limit
from magnetar.pipelines.processing.call import shared
from magnetar.pipelines.processing.call.message import ROW, Message, Received, ReceivedColumns, WrongResult, outputs_of
from magnetar.pipelines.processing.call.outcome import failure_of, timed_out

if TYPE_CHECKING:
    from magnetar.pipelines.processing.call.function import Function, Kind

DONE, FULL, BATCH, BATCH_FAILED = b"done", b"full", b"batch", b"failed"
GO = b"go"

_STANDARD_FDS = 3
_FDS_MAX = 1 << 20


def serve(
    requests: Connection, lifeline: int, state: shared.SharedState, kind: Kind, function: Function, async_limit_s: float
) -> NoReturn:
    """Never returns: the process has inherited what must not be cleaned up twice."""
    code = 1
    try:
        _forget_parent({requests.fileno(), lifeline})
        _end_with_parent(lifeline)
        _Server(requests, state, kind, function, async_limit_s).run()
        code = 0
    except BaseException:
        with suppress(BaseException):
            traceback.print_exc()
    finally:
        os._exit(code)


def _forget_parent(kept: set[int]) -> None:
    """Signals and connections are the parent's."""
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent decides
    signal.set_wakeup_fd(-1)
    at = _STANDARD_FDS
    for kept_fd in sorted(kept):
        os.closerange(at, kept_fd)
        at = kept_fd + 1
    os.closerange(at, min(os.sysconf("SC_OPEN_MAX"), _FDS_MAX))


def _end_with_parent(lifeline: int) -> None:
    """The parent never writes to it: reading ends when it is gone, however it ended."""

    def wait() -> None:
        os.read(lifeline, 1)
        os._exit(1)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


class _Server:
    def __init__(
        self, requests: Connection, state: shared.SharedState, kind: Kind, function: Function, async_limit_s: float
    ) -> None:
        self._requests = requests
        self._state = state
        self._function = function
        self._limit_s = async_limit_s
        self._loop: BoundedLoop | None = None
        self._call = {
            "row": self._rows,
            "async": self._async_rows,
            "arrow": self._arrow_batch,
            "pandas": self._pandas_batch,
        }[kind]

    def run(self) -> None:
        while True:
            try:
                rows = pickle.loads(self._requests.recv_bytes())
                data = self._requests.recv_bytes()
            except EOFError:
                return
            with pa.ipc.open_stream(data) as stream:
                batch = stream.read_next_batch()
            self._call(batch, rows)

    # -- one row at a time

    def _rows(self, batch: pa.RecordBatch, rows: Sequence[int]) -> None:
        columns = ReceivedColumns(batch)
        begin, function, now_ns = self._state.begin, self._function, time.monotonic_ns
        for row in rows:
            begin(0, row, now_ns())
            try:
                result = function(Received(columns, row))
            except BaseException as error:  # also an exit: only this row fails
                self._add_failure(row, error)
            else:
                self._add_result(row, result)
        self._state.finish()
        self._requests.send_bytes(DONE)

    def _async_rows(self, batch: pa.RecordBatch, rows: Sequence[int]) -> None:
        columns = ReceivedColumns(batch)

        async def one(slot: int, row: int) -> None:
            self._state.begin(slot, row, time.monotonic_ns())
            try:
                result = await within_limit(self._limit_s, self._function(Received(columns, row)))
            except Expired:
                self._add(row, shared.FAILED, pickle.dumps(timed_out(self._limit_s)))
            except BaseException as error:
                self._add_failure(row, error)
            else:
                self._add_result(row, result)
            finally:
                self._state.end(slot)

        if self._loop is None:
            self._loop = BoundedLoop(self._state.slots)
        self._loop.run(one, rows)
        self._state.finish()
        self._requests.send_bytes(DONE)

    def _add_result(self, row: int, result: object) -> None:
        try:
            if result is None:
                if self._loop is not None:  # rows called in order need no record of it
                    self._add(row, shared.NOTHING, b"")
            elif type(result) is bytes:
                self._add(row, shared.VALUE, result)
            elif messages := outputs_of(result):
                self._add(row, shared.MESSAGES, _pickled(messages))
        except Exception as error:
            self._add_failure(row, error)

    def _add_failure(self, row: int, error: BaseException) -> None:
        self._add(row, shared.FAILED, pickle.dumps(failure_of(error)))

    def _add(self, row: int, kind: int, data: bytes) -> None:
        if not self._state.has_room(len(data)):
            if len(data) > shared.RESULTS_BYTES:
                raise WrongResult(f"a result of {len(data)} bytes exceeds the limit of {shared.RESULTS_BYTES}")
            self._requests.send_bytes(FULL)
            self._requests.recv_bytes()
            self._state.has_room(len(data))
        self._state.add(row, kind, data)

    # -- batches

    def _arrow_batch(self, batch: pa.RecordBatch, rows: Sequence[int]) -> None:
        self._batch(lambda: _as_batch(self._function(batch)), len(rows))

    def _pandas_batch(self, batch: pa.RecordBatch, rows: Sequence[int]) -> None:
        def call() -> pa.RecordBatch | None:
            made: Any = self._function(batch.to_pandas())
            if made is None:
                return None
            if type(made).__name__ != "DataFrame":
                raise WrongResult(f"the function returned {type(made).__name__}, not a DataFrame or None")
            return _as_batch(pa.RecordBatch.from_pandas(made, preserve_index=False))

        self._batch(call, len(rows))

    def _batch(self, call: Any, rows: int) -> None:
        self._state.begin(0, 0, time.monotonic_ns())
        try:
            made = call()
            if made is not None:
                _check_rows(made, rows)
            answer = None if made is None else _ipc(made)
        except BaseException as error:
            self._state.end(0)
            self._requests.send_bytes(BATCH_FAILED)
            self._requests.send_bytes(pickle.dumps(failure_of(error)))
            return
        self._state.end(0)
        if answer is None:
            self._requests.send_bytes(DONE)
        else:
            self._requests.send_bytes(BATCH)
            self._requests.send_bytes(answer)


def _pickled(messages: list[Message]) -> bytes:
    return pickle.dumps(
        [(_plain(m.value), m.key, dict(m.properties), m.event_time, m.ordering_key) for m in messages], 5
    )


def _plain(value: Any) -> Any:
    """Objects of classes that only the application has become dicts."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value


def _as_batch(made: Any) -> pa.RecordBatch | None:
    if isinstance(made, pa.Table):
        batches = made.combine_chunks().to_batches()
        return batches[0] if batches else None
    if made is not None and not isinstance(made, pa.RecordBatch):
        raise WrongResult(f"the function returned {type(made).__name__}, not a RecordBatch, a Table or None")
    return made


def _check_rows(made: pa.RecordBatch, rows: int) -> None:
    if ROW not in made.schema.names:
        if made.num_rows != rows:
            raise WrongResult(
                f"the function returned {made.num_rows} rows for {rows} and no column {ROW}: keep that column, which"
                " says which message each row is made of"
            )
        return
    numbers = made.column(ROW)
    if not pa.types.is_integer(numbers.type) or numbers.null_count:
        raise WrongResult(f"column {ROW} has no numbers of rows: keep it as it was")


def _ipc(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())

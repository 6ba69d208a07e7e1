"""Outcomes of rows: what a function made of them, or how it failed. Owns their form between two processes."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from magnetar.deadletter.fingerprint import fingerprint
from magnetar.deadletter.properties import ERROR_MAX, Reason
from magnetar.deadletter.stamp import STACK_TRACE_MAX, Raised

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from magnetar.pipelines.processing.call.message import Message

_MRO_MAX = 20


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a row failed. `classes` are the names of the exception's class and its bases, most specific first. A final
    one is not retried."""

    reason: Reason
    description: str
    raised: Raised | None = None
    classes: tuple[str, ...] = ()
    is_final: bool = False


@dataclass
class CallOutcome:
    """Of a batch, by row. A row in none of them was processed and made nothing.

    `messages` are of a function over rows; `batches` of one over batches, with the input row of each of their rows.
    """

    messages: dict[int, list[Message]] = field(default_factory=dict)
    plain: list[tuple[NDArray[np.int32], pa.Array]] = field(default_factory=list)
    """Rows whose results are just bytes, as columns: most results are."""
    batches: list[tuple[pa.RecordBatch, list[int]]] = field(default_factory=list)
    failures: dict[int, Failure] = field(default_factory=dict)

    @property
    def values(self) -> dict[int, bytes]:
        """The same results by row."""
        return {
            row: value
            for rows, values in self.plain
            for row, value in zip(rows.tolist(), values.to_pylist(), strict=True)
        }

    @property
    def is_empty(self) -> bool:
        return not (self.messages or self.plain or self.batches)


def class_name(kind: type[BaseException]) -> str:
    """As Python prints it: without a module for its own exceptions."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def failure_of(error: BaseException) -> Failure:
    """Of an exception of the application, without the frames that called its function."""
    kind = type(error)
    text = _text(error)
    frames = [
        (frame.f_globals.get("__name__", "?"), frame.f_code.co_name)
        for frame, _ in traceback.walk_tb(error.__traceback__)
    ]
    own = next((index for index, (module, _) in enumerate(frames) if not module.startswith(__package__)), len(frames))
    raised = Raised(
        exception=class_name(kind),
        text=text[:ERROR_MAX],
        stack_trace=_stack_trace(error, own),
        fingerprint=fingerprint(class_name(kind), text, [f"{module}:{name}" for module, name in frames[own:]]),
    )
    classes = tuple(class_name(each) for each in kind.__mro__[:_MRO_MAX] if issubclass(each, BaseException))
    return Failure(
        Reason.ProcessingFailed, f"the function raised {class_name(kind)}: {text}"[:ERROR_MAX], raised, classes
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:
        return f"its text cannot be made: {type(second).__name__}"


def _stack_trace(error: BaseException, skipped: int) -> str:
    below = error.__traceback__
    for _ in range(skipped):
        below = below.tb_next if below is not None else None
    try:
        lines: list[Any] = traceback.format_exception(type(error), error, below)
    except Exception:  # of a __str__ of the application
        lines = traceback.format_tb(below)
    return "".join(lines)[-STACK_TRACE_MAX:]


def crash(text: str, *, is_final: bool = False) -> Failure:
    return Failure(Reason.ConsumerCrash, text, _unraised("ConsumerCrash", text), is_final=is_final)


def timed_out(seconds: float, what: str = "the message") -> Failure:
    text = f"the function took longer than {seconds:g} s for {what}"
    return Failure(Reason.TimedOut, text, _unraised("TimedOut", text))


def unreadable(text: str) -> Failure:
    return Failure(Reason.Unreadable, text, _unraised("Unreadable", text), is_final=True)


def unencodable(text: str) -> Failure:
    """The function's result does not match the schema of the target."""
    return Failure(Reason.ProcessingFailed, text, _unraised("UnencodableValue", text), ("UnencodableValue",))


def _unraised(name: str, text: str) -> Raised:
    """A failure without an exception has a fingerprint too."""
    return Raised(exception="", text=text[:ERROR_MAX], stack_trace="", fingerprint=fingerprint(name, text))

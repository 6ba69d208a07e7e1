"""Copy errors: what ends an assignment, with the state and reason to report. Owns the mapping from errors to states.

The same client error means different things at the source and at the remote cluster: the caller says which it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from magnetar.client.errors import (
    ClientError,
    ConnectionLost,
    ConsumerAssignFailed,
    ConsumerBusy,
    NamespaceNotFound,
    NotFound,
    ProducerBusy,
    ProtocolBroken,
    ServiceNotReady,
    Timeout,
    TooManyRequests,
    WrongPort,
)
from magnetar.replication.model import Problem, State
from magnetar.replication.problems import problem_of

_T = TypeVar("_T")

_UNREACHABLE = (ConnectionLost, Timeout, ServiceNotReady, TooManyRequests)


_EXCLUSIVE_PRODUCER = "Topic has an existing exclusive producer"
"""Apache Pulsar has one code for this and for a producer name in use, so only its text tells them apart. Our broker has
two codes."""


class CopyError(Exception):
    """Ends an assignment. `error` is the client's, if there is one."""

    def __init__(
        self,
        state: State,
        reason: str,
        error: ClientError | None = None,
        *,
        problem: Problem = Problem.OTHER,
    ) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason
        self.error = error
        self.problem = problem

    @property
    def is_timeout(self) -> bool:
        """A cluster did not reply: the next assignment starts with new connections."""
        return isinstance(self.error, Timeout)


class SourceError(CopyError):
    def __init__(self, error: ClientError, doing: str = "") -> None:
        prefix = f"{doing}: " if doing else ""
        if isinstance(error, ConsumerBusy):
            # Another process copies, or the broker has not noticed yet that it is gone.
            super().__init__(State.CATCHING_UP, f"another process still copies the topic: {error.text}", error)
        elif isinstance(error, ConsumerAssignFailed):
            # The next assignment has the new policy.
            super().__init__(State.CATCHING_UP, "the route policy changed", error)
        else:
            super().__init__(State.STOPPED, f"the source cluster: {prefix}{error.text}", error)


class RemoteError(CopyError):
    def __init__(self, error: ClientError) -> None:
        if isinstance(error, ProducerBusy) and _EXCLUSIVE_PRODUCER not in error.text:
            super().__init__(State.CATCHING_UP, f"another process still copies the topic: {error.text}", error)
        else:
            super().__init__(_remote_state(error), error.text, error, problem=problem_of(error))


def _remote_state(error: ClientError) -> State:
    if isinstance(error, WrongPort) or (isinstance(error, _UNREACHABLE) and not isinstance(error, ProtocolBroken)):
        return State.UNREACHABLE
    if isinstance(error, NotFound) and not isinstance(error, NamespaceNotFound):
        return State.WAITING
    return State.REFUSED


@contextmanager
def source_errors(doing: str = "") -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise SourceError(error, doing) from error


@contextmanager
def remote_errors() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise RemoteError(error) from error


async def from_remote(awaited: Awaitable[_T]) -> _T:
    with remote_errors():
        return await awaited

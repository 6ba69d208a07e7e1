"""Failures of a run: whether another attempt may succeed, and the sentence for the operator."""

from __future__ import annotations

from magnetar.client.connection.retry import is_retriable
from magnetar.client.errors import ClientError, Interrupted, NotAuthenticated
from magnetar.errors import MagnetarError
from magnetar.pipelines.jobs import failure_text
from magnetar.pipelines.moving.lock import TopicLocked

ATTEMPTS_MAX = 5
"""Attempts in a row without progress, after an error that should not be passing."""

_TEXT_SIZE_MAX = 2000


def is_transient(error: Exception) -> bool:
    """A broker that is away, or a topic that is in use: these are repeated until it is back, or free. The connection of
    a process whose machine is gone holds its locks until the broker misses its pings."""
    if isinstance(error, TopicLocked):
        return True
    return isinstance(error, ClientError) and (is_retriable(error) or isinstance(error, Interrupted))


def is_final(error: Exception) -> bool:
    """An error that a verb raises for the operator. One of a token is none: a broker that restarts has another. Nor is
    one of Spark, whose jobs fail with the error of a worker, which may be passing."""
    return isinstance(error, MagnetarError) and not is_transient(error) and not isinstance(error, NotAuthenticated)


def text_of(error: Exception) -> str:
    text = str(error) if isinstance(error, MagnetarError) else failure_text(error)
    return (text or repr(error))[:_TEXT_SIZE_MAX]

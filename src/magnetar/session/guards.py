"""Guards: an error that no client caused ends one request or one connection, and is reported with what it met.

Owns the difference between a refusal, which a client gets as it is, a read error of the disk, which it gets as "not
ready", and a bug, after which its connection is closed. Nothing here raises for a bug.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from magnetar.broker.host import FaultKind
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.topic import TopicSubscription
from magnetar.errors import MagnetarError, ServiceNotReady
from magnetar.session.handles import Command, ConsumerHandle, ProducerHandle
from magnetar.storage.api import StorageError

if TYPE_CHECKING:
    from magnetar.session.session import Session

P = ParamSpec("P")

REFUSED = (MagnetarError, StorageError)
"""What a handler may raise for a request that it cannot serve; `refusal_of` has the reply."""


def refusal_of(session: Session, command: Command, error: Exception) -> MagnetarError:
    """The error that the client gets; a read error is reported as a fault of ours too."""
    if isinstance(error, MagnetarError):
        return error
    session.broker.fault("command", error, where_of(session, command))
    return ServiceNotReady(f"the broker cannot read what this request needs: {error}")


def unexpected(error: Exception) -> MagnetarError:
    """The reply to a request that met a bug."""
    return MagnetarError(f"unexpected {type(error).__name__}: see the broker's log")


def where_of(session: Session, command: Command) -> str:
    """Client, command and topic, for the log."""
    return " ".join(
        part for part in (session.address, Command.Type.Name(command.type), _topic_of(session, command)) if part
    )


def _topic_of(session: Session, command: Command) -> str:
    for field, message in command.ListFields():
        if field.name == "type":
            continue
        names = message.DESCRIPTOR.fields_by_name
        if "topic" in names:
            return str(message.topic)
        handle: ConsumerHandle | ProducerHandle | None = None
        if "consumer_id" in names:
            handle = session.consumers.get(message.consumer_id)
        elif "producer_id" in names:
            handle = session.producers.get(message.producer_id)
        if handle is not None:
            return handle.topic.name.full
    return ""


def guarded(callback: Callable[Concatenate[Session, P], None]) -> Callable[Concatenate[Session, P], None]:
    """A callback of the core: an error in it is this client's, and neither the caller's nor another client's."""

    def guarded_callback(session: Session, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            callback(session, *args, **kwargs)
        except Exception as error:
            session.close_later("command", error, callback.__name__)

    update_wrapper(guarded_callback, callback)
    return guarded_callback


def attempt(session: Session, kind: FaultKind, where: str, step: Callable[[], None]) -> bool:
    """Runs one step by itself, see `Broker.attempt`."""
    return session.broker.attempt(kind, f"{session.address} {where}", step)


def remove_producer(session: Session, handle: ProducerHandle) -> None:
    """A second attempt follows a failed one, or its name would be taken by a producer that is not there."""

    def remove() -> None:
        handle.topic.producers.remove(handle.producer)

    if not attempt(session, "disconnect", handle.topic.name.full, remove):
        attempt(session, "disconnect", handle.topic.name.full, remove)


def remove_consumer(session: Session, handle: ConsumerHandle, *, vanished: bool = False) -> None:
    """A second attempt follows a failed one, or the subscription would keep a consumer that is not there."""
    subscription, where = handle.consumer.subscription, handle.topic.name.full
    if not attempt(
        session, "disconnect", where, lambda: handle.topic.remove_consumer(handle.consumer, vanished=vanished)
    ):
        attempt(session, "disconnect", where, lambda: handle.topic.remove_consumer(handle.consumer))
        restore(session, handle, subscription)


def restore(session: Session, handle: ConsumerHandle, subscription: TopicSubscription | None) -> None:
    """After an error in what a consumer asked for: its subscription starts again if that left a half change."""
    if isinstance(subscription, Subscription):
        attempt(session, "disconnect", handle.topic.name.full, lambda: session.broker.restore(subscription))

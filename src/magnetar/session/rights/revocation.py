"""A right that is taken away closes what it had opened: the client's next attempt gets the refusal.

Owns which producers and consumers of a connection end. The rules are in `access.decision`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from magnetar.access.needs import Right
from magnetar.session.guards import remove_consumer, remove_producer

if TYPE_CHECKING:
    from magnetar.session.session import Session


def close_what_is_not_allowed(session: Session, tenant: str) -> None:
    """After a change of permissions in `tenant`; nothing else of the connection notices."""
    authorization, principal = session.broker.authorization, session.principal
    for producer in list(session.producers.values()):
        if _concerns(producer.rights, tenant) and not authorization.allows(principal, producer.rights):
            session.close_producer(producer.producer)
            remove_producer(session, producer)
    for consumer in list(session.consumers.values()):
        if _concerns(consumer.rights, tenant) and not authorization.allows(principal, consumer.rights):
            session.close_consumer(consumer.consumer)
            remove_consumer(session, consumer)


def _concerns(rights: Sequence[Right], tenant: str) -> bool:
    return any(right.tenant == tenant for right in rights)

"""From a client error to the state of a route: by the class of the error, never by its text."""

from __future__ import annotations

import pytest

from magnetar.client.errors import (
    ClientError,
    ConnectionLost,
    ConsumerBusy,
    NamespaceNotFound,
    NotAllowed,
    NotFound,
    ProducerBusy,
    ProducerFenced,
    ProtocolBroken,
    of_code,
)
from magnetar.errors import ProducerFenced as BrokerProducerFenced
from magnetar.errors import RouteChanged
from magnetar.pipelines.copy.errors import RemoteError, SourceError
from magnetar.replication.model import State


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (of_code(RouteChanged.wire_code, "any text"), State.CATCHING_UP),
        (ConsumerBusy("any text"), State.CATCHING_UP),
        (NotAllowed("the route policy changed"), State.STOPPED),
        (NotFound("no topic"), State.STOPPED),
    ],
)
def test_errors_of_the_source(error: ClientError, state: State) -> None:
    assert SourceError(error).state is state


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (of_code(BrokerProducerFenced.wire_code, "any text"), State.REFUSED),
        (ProducerFenced("any text"), State.REFUSED),
        (ProducerBusy("the name exclusive-orders is in use"), State.CATCHING_UP),
        (ProducerBusy("Topic has an existing exclusive producer: billing"), State.REFUSED),  # Apache Pulsar's text
        (ConnectionLost("gone"), State.UNREACHABLE),
        (ProtocolBroken("not Pulsar"), State.REFUSED),
        (NotFound("no topic"), State.WAITING),
        (NamespaceNotFound("no namespace"), State.REFUSED),
    ],
)
def test_errors_of_the_remote_cluster(error: ClientError, state: State) -> None:
    assert RemoteError(error).state is state

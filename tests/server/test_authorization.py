"""A real broker with authorization, and the official client with roles."""

from __future__ import annotations

from typing import Any

import msgspec
import pulsar
import pytest

import magnetar.testing
from magnetar.errors import InvalidSetting
from magnetar.settings.settings import Settings
from magnetar.storage.memory import MemoryStorage
from magnetar.testing import TestBroker
from tests.access.keys import SECRET_SETTING, token
from tests.server.test_authentication import wait_until

NAMESPACE = "public/default"


def test_authorization_without_authentication_ends_the_start() -> None:
    with pytest.raises(InvalidSetting, match="needs authenticationEnabled=true"):
        TestBroker(MemoryStorage(), Settings(authorizationEnabled=True))


def guarded() -> Any:
    return magnetar.testing.broker(
        authenticationEnabled=True,
        authenticationProviders="token",
        tokenSecretKey=SECRET_SETTING,
        authorizationEnabled=True,
        superUserRoles="root",
    )


def client(broker: TestBroker, role: str) -> pulsar.Client:
    login = pulsar.AuthenticationToken(token(sub=role).decode())
    return pulsar.Client(broker.service_url, authentication=login, operation_timeout_seconds=5)


def permit(broker: TestBroker, **actions: list[str]) -> None:
    def save() -> None:
        catalog = broker.server.broker.catalog
        catalog.save_namespace(NAMESPACE, msgspec.structs.replace(catalog.namespaces[NAMESPACE], permissions=actions))

    broker.run(save)


def test_the_official_client_does_what_its_role_may_and_hears_why_not() -> None:
    with guarded() as broker:
        permit(broker, app=["produce"])
        app, root = client(broker, "app"), client(broker, "root")
        consumer = root.subscribe("t", "s")
        app.create_producer("t").send(b"hello")
        assert consumer.receive(10_000).data() == b"hello"
        with pytest.raises(pulsar.AuthorizationError):
            app.subscribe("t", "s2")
        for one in (app, root):
            one.close()


def test_a_permission_that_is_taken_away_ends_a_consumer_of_the_official_client() -> None:
    with guarded() as broker:
        permit(broker, app=["consume"])
        app, root = client(broker, "app"), client(broker, "root")
        app.subscribe("t", "s", pulsar.ConsumerType.Shared)
        producer = root.create_producer("t")

        def connected() -> int:
            return broker.run(lambda: _consumers(broker))

        assert connected() == 1
        permit(broker)
        wait_until(lambda: connected() == 0)
        producer.send(b"kept")
        permit(broker, app=["consume"])
        other = client(broker, "app")
        assert other.subscribe("t", "s", pulsar.ConsumerType.Shared).receive(20_000).data() == b"kept"
        for one in (app, root, other):
            one.close()


def _consumers(broker: TestBroker) -> int:
    sessions = [one._session for one in broker.server.connections]
    return sum(len(session.consumers) for session in sessions if session.principal.role == "app")

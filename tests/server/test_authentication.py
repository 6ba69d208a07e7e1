"""A real broker with authentication: official client, our client and HTTP."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
from passlib.hash import bcrypt  # type: ignore[import-untyped]

import magnetar.client
import magnetar.testing
from magnetar.access_bounds import ADDRESS_PASSWORDS_WAITING, PASSWORD_WAIT
from magnetar.errors import InvalidSetting
from magnetar.security.credentials import Security
from tests.access.keys import SECRET_SETTING, token

LIST = "/admin/v2/tenants"


def secured(folder: Path, **settings: Any) -> Any:
    (folder / "users").write_text(f"ann:{bcrypt.using(rounds=5).hash('word')}")
    given = {
        "authenticationEnabled": True,
        "authenticationProviders": "token,basic",
        "tokenSecretKey": SECRET_SETTING,
        "basicAuthConf": str(folder / "users"),
        **settings,
    }
    return magnetar.testing.broker(**given)


@pytest.mark.parametrize(
    "authentication",
    [
        pulsar.AuthenticationToken(token(sub="ann").decode()),
        pulsar.AuthenticationBasic("ann", "word"),
    ],
    ids=["token", "basic"],
)
def test_the_official_client_logs_in(tmp_path: Path, authentication: Any) -> None:
    with secured(tmp_path) as broker:
        client = pulsar.Client(broker.service_url, authentication=authentication)
        consumer = client.subscribe("t", "s")
        client.create_producer("t").send(b"hello")
        assert consumer.receive(10_000).data() == b"hello"
        client.close()


@pytest.mark.parametrize(
    "authentication",
    [None, pulsar.AuthenticationToken("wrong"), pulsar.AuthenticationBasic("ann", "wrong")],
    ids=["none", "token", "basic"],
)
def test_the_official_client_is_refused_and_does_not_hang(tmp_path: Path, authentication: Any) -> None:
    with secured(tmp_path) as broker:
        client = pulsar.Client(broker.service_url, authentication=authentication, operation_timeout_seconds=2)
        with pytest.raises(pulsar.PulsarException):  # it tries again until its time is over, as with Apache Pulsar
            client.create_producer("t")
        client.close()


def test_http_needs_a_token_or_a_password(tmp_path: Path) -> None:
    with secured(tmp_path) as broker, httpx.Client(base_url=broker.http_url) as http:
        right = base64.b64encode(b"ann:word").decode()
        wrong = base64.b64encode(b"ann:wrong").decode()
        for authorization, status in (
            (f"Bearer {token(sub='ann').decode()}", 200),
            (f"Basic {right}", 200),
            (f"basic {right}", 200),
            (f"Basic {wrong}", 401),
            ("Basic ?", 401),
            ("Bearer wrong", 401),
            ("Digest x", 401),
            ("", 401),
        ):
            headers = {"Authorization": authorization} if authorization else {}
            answer = http.get(LIST, headers=headers)
            assert answer.status_code == status, authorization
            if status == 401:
                assert answer.headers["WWW-Authenticate"].startswith('Bearer realm="pulsar", Basic')
        good = {"Authorization": f"Basic {right}", "X-Pulsar-Auth-Method-Name": "token"}
        assert http.get(LIST, headers=good).status_code == 401
        for path in ("/status.html", "/health/live", "/health/ready", "/metrics/"):
            assert http.get(path).status_code == 200, path
        metrics = http.get("/metrics/").text
        assert (
            'pulsar_authentication_success_total{cluster="standalone",provider_name="AuthenticationProviderToken"'
            in (metrics)
        )
        assert 'reason="INVALID_TOKEN"' in metrics


def test_many_requests_at_once_with_one_password_are_served(tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text(f"ann:{bcrypt.using(rounds=10).hash('word')}")
    count = 2 * ADDRESS_PASSWORDS_WAITING.limit
    with secured(tmp_path, basicAuthConf=str(slow)) as broker, ThreadPoolExecutor(count) as threads:

        def status(_: int) -> int:
            return httpx.get(broker.http_url + LIST, auth=("ann", "word"), timeout=60).status_code

        assert set(threads.map(status, range(count))) == {200}


def test_metrics_need_authentication_where_that_is_set(tmp_path: Path) -> None:
    with secured(tmp_path, authenticateMetricsEndpoint=True) as broker:
        assert httpx.get(broker.http_url + "/metrics/").status_code == 401


def test_an_original_principal_over_http_is_for_proxies(tmp_path: Path) -> None:
    with secured(tmp_path, proxyRoles="proxy") as broker, httpx.Client(base_url=broker.http_url) as http:
        for role, original, status in (
            ("proxy", "ann", 200),
            ("proxy", "", 403),
            ("ann", "bob", 403),
            ("ann", "ann", 200),
        ):
            headers = {"Authorization": f"Bearer {token(sub=role).decode()}", "X-Original-Principal": original}
            assert http.get(LIST, headers=headers).status_code == status, (role, original)


def test_a_proxy_is_believed_over_http(tmp_path: Path) -> None:
    proxied = {"X-Original-Principal": "ann"}
    with secured(tmp_path, proxyRoles="proxy", authenticateOriginalAuthData=True) as broker:
        for role, status in (("proxy", 200), ("bob", 403)):
            headers = {"Authorization": f"Bearer {token(sub=role).decode()}", **proxied}
            assert httpx.get(broker.http_url + LIST, headers=headers).status_code == status
        assert httpx.get(broker.http_url + LIST, headers=proxied).status_code == 401


def expiries(broker: magnetar.testing.TestBroker) -> set[int | None]:
    """Of the principals of all connections."""

    def found() -> set[int | None]:
        return {one._session.principal.expires_ms for one in broker.server.connections}

    return broker.run(found)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("kind", ["ours", "official"])
def test_a_client_is_asked_for_a_new_token_when_the_old_one_has_expired(tmp_path: Path, kind: str) -> None:
    with secured(tmp_path) as broker:
        soon_s = broker.clock.now_ms() // 1000 + 30
        later_s = soon_s + 10_000
        tokens = {"now": token(sub="ann", exp=soon_s).decode()}
        client: Any
        if kind == "ours":
            security = Security(token_supplier=lambda: tokens["now"])
            client = magnetar.client.Client(broker.service_url, security=security)
        else:
            client = pulsar.Client(broker.service_url, authentication=pulsar.AuthenticationToken(lambda: tokens["now"]))
        producer = client.producer("t") if kind == "ours" else client.create_producer("t")
        producer.send(b"before")
        assert expiries(broker) == {soon_s * 1000}
        connections = broker.run(lambda: set(broker.server.connections))
        tokens["now"] = token(sub="ann", exp=later_s).decode()
        broker.advance(seconds=90)  # past one check, and not the next
        wait_until(lambda: expiries(broker) == {later_s * 1000})
        producer.send(b"after")
        assert broker.run(lambda: set(broker.server.connections)) == connections, "the connections are the same"
        client.close()


def test_bound_password_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.admin.app.PASSWORD_WAIT", PASSWORD_WAIT._replace(limit=0))
    with secured(tmp_path) as broker:
        broker.server.broker.check_login = lambda work, then, address: None  # a thread that does not come to it
        answer = httpx.get(broker.http_url + LIST, auth=("ann", "word"))
        assert (answer.status_code, "not checked in time" in answer.text) == (401, True)


def test_a_key_that_cannot_be_read_ends_the_start() -> None:
    with (
        pytest.raises(InvalidSetting, match="tokenSecretKey: /no/such/key cannot be read"),
        magnetar.testing.broker(
            authenticationEnabled=True, authenticationProviders="token", tokenSecretKey="file:///no/such/key"
        ),
    ):
        pass

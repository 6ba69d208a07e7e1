"""No secret is in an answer, a line of the log or the text of an object."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from magnetar.admin.routes import ROUTES
from magnetar.broker.catalog.record import ClusterRecord
from magnetar.log.events import ADMIN_CHANGE, WEB_REQUEST_REFUSED
from magnetar.replication.handover import Handover
from magnetar.security.credentials import Security
from magnetar.settings.settings import SECRET
from tests.access.keys import SECRET_SETTING
from tests.admin.driver import Admin
from tests.admin.route_requests import plain_path, send, template

OF_RECORD, OF_SETTINGS, KEY = "Tz9record-token", "Tz9settings-token", "Tz9key"
SECRETS = (OF_RECORD, OF_SETTINGS, KEY, SECRET_SETTING.partition("base64,")[2] or SECRET_SETTING)


def world() -> Admin:
    """With a secret wherever there can be one."""
    admin = Admin(
        template().storage.crash(),
        brokerClientAuthenticationPlugin="AuthenticationToken",
        brokerClientAuthenticationParameters=f"token:{OF_SETTINGS}",
        replicationTrustedClusters="west=http://west:8080",
        tokenSecretKey=SECRET_SETTING,
        basicAuthConf=f"/etc/{KEY}",
    )
    for name, parameters in (("west", ""), ("east", f"token:{OF_RECORD}")):
        record = ClusterRecord(f"http://{name}:8080", authentication_parameters=parameters)
        record.authentication_plugin = "AuthenticationToken" if parameters else ""
        admin.broker.catalog.save_cluster(name, record)
    admin.done("POST", "/admin/v2/tenants/acme", json={"allowedClusters": ["standalone", "west", "east"]})
    replicated = admin("POST", "/admin/v2/namespaces/acme/n/replication", json=["standalone", "west", "east"])
    assert replicated.is_success, replicated.text
    return admin


def check(text: str, where: str) -> None:
    assert not [secret for secret in SECRETS if secret in text], where


def check_log(admin: Admin, caplog: pytest.LogCaptureFixture) -> None:
    """Also of the events, which a host writes."""
    check(caplog.text, "the log")
    for event, values in admin.host.events:
        check(repr(values), event.name)


@pytest.mark.parametrize("cluster", ["west", "east"])
def test_no_route_answers_with_a_secret(cluster: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    admin = world()
    answered = 0
    for route in ROUTES:
        if route.method == "GET":
            path = plain_path(route, cluster=cluster)
            answer = asyncio.run(send(admin, "GET", path, b"", b""))
            check(answer.body.decode(errors="replace") + repr(answer.headers), path)
            answered += answer.status == 200
    assert answered > 50, "most routes have something to show"
    check_log(admin, caplog)


@pytest.mark.parametrize(
    "body",
    [
        {"authenticationParameters": f"token:{OF_RECORD}"},
        {"authenticationPlugin": "unknown", "authenticationParameters": f"token:{OF_RECORD}"},
        {"authenticationPlugin": "basic", "authenticationParameters": OF_RECORD},
        {"authenticationPlugin": "tls", "authenticationParameters": OF_RECORD},
        {"authenticationPlugin": "oauth2", "authenticationParameters": OF_RECORD},
        {"authenticationPlugin": "oauth2", "authenticationParameters": json.dumps({"client_secret": OF_RECORD})},
        {"authenticationPlugin": "token", "authenticationParameters": f"{{{OF_RECORD}"},
        {"authenticationPlugin": "token", "authenticationParameters": f"token:{OF_RECORD}\n"},
        {"authenticationPlugin": "token", "authenticationParameters": [f"token:{OF_RECORD}"]},
        {"authenticationPlugin": OF_RECORD},
        {"authenticationPlugin": f" {OF_RECORD} ", "authenticationParameters": f"token:{OF_RECORD}"},
        {"authenticationPlugin": f"token:{OF_RECORD}\n"},
        {"authenticationPlugin": f"org.apache.pulsar.client.impl.auth.{OF_RECORD}"},
        {"serviceUrl": f"http://joe:{OF_RECORD}@h"},
        {"serviceUrl": f"http://{OF_RECORD}@h:8080"},
        {"serviceUrlTls": f"https://h:8443?token={OF_RECORD}"},
        {"serviceUrlTls": f"https://h:8443/{OF_RECORD}"},
        {"brokerServiceUrl": f"pulsar://h:6650#{OF_RECORD}"},
        {"brokerServiceUrl": f"pulsar://joe:{OF_RECORD}@h,k"},
        {"brokerServiceUrlTls": f"pulsar+ssl://joe:{OF_RECORD}%40h"},
        {"brokerServiceUrlTls": f"token:{OF_RECORD}"},
        {"brokerServiceUrlTls": OF_RECORD},
        {"proxyServiceUrl": f"pulsar://joe:{OF_RECORD}@h"},
        {"brokerClientTlsTrustStorePassword": OF_RECORD},
    ],
)
@pytest.mark.parametrize(("method", "cluster"), [("PUT", "new"), ("POST", "west"), ("POST", "standalone")])
def test_no_refusal_repeats_a_secret(
    method: str, cluster: str, body: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    admin = world()
    answer = admin(method, f"/admin/v2/clusters/{cluster}", json={"serviceUrl": "http://new:8080", **body})
    assert answer.status_code in (400, 412, 501)
    check(answer.text, "the refusal")
    check_log(admin, caplog)


CONFIGURATION = "/admin/v2/brokers/configuration"


@pytest.mark.parametrize(
    "path",
    [
        *(f"{CONFIGURATION}/{name}/{KEY}" for name in (*sorted(SECRET), "webServicePort", "tokenSecretKye", "%20")),
        f"{CONFIGURATION}/tokenSecretKey/data:;base64,{KEY}%3D%3D",
        f"{CONFIGURATION}/tokenSecretKey/data:;base64,a/{KEY}/c==",
        f"{CONFIGURATION}/tokenSecretKey/{KEY}/",
        f"{CONFIGURATION}/tokenSecretKey/{KEY}%ff",
        f"{CONFIGURATION}//{KEY}",
        f"/admin/brokers/configuration/tokenSecretKey/{KEY}",
        f"{CONFIGURATION}/tokenSecretKey?authParams={KEY}&token={KEY}",
        f"/admin/v2/tenants/acme?force=true&token={KEY}",
        f"/admin/v2/tenants/acme?access_token={KEY}",
        f"/admin/v2/tenants/acme?PASSWORD={KEY}&force=true",
        f"http://joe:{KEY}@broker.test/admin/v2/tenants/acme",
        f"//joe:{KEY}@broker.test/admin/v2/tenants/acme",
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "GET", "PATCH"])
def test_no_path_is_shown_with_a_secret(method: str, path: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    admin = world()
    target, _, query = path.partition("?")
    answer = asyncio.run(send(admin, method, target, query.encode(), b""))
    check(answer.body.decode() + repr(answer.headers), "the answer")
    check_log(admin, caplog)


def test_no_path_that_the_guard_refuses_is_logged_with_a_secret() -> None:
    admin, path = world(), f"{CONFIGURATION}/tokenSecretKey/{KEY}"
    admin.reason(403, "POST", path, headers={"origin": "http://evil.example"})
    (logged,) = (values for event, values in admin.host.events if event is WEB_REQUEST_REFUSED)
    assert logged["path"] == f"{CONFIGURATION}/tokenSecretKey/(hidden)"


def test_other_paths_are_logged_whole() -> None:
    admin = Admin()
    paths = [
        f"{CONFIGURATION}/maxTopicsPerNamespace/7",
        f"{CONFIGURATION}/maxTopicsPerNamespace/much%2Fmore",
        "/admin/v2/namespaces/public/default/property/token/x",
        "/admin/v2/tenants/none?force=true",
    ]
    for method, path in zip(("POST", "POST", "PUT", "DELETE"), paths, strict=True):
        admin(method, path)
    assert [values["path"] for event, values in admin.host.events if event is ADMIN_CHANGE] == paths


def test_no_object_shows_a_secret() -> None:
    admin = world()
    version, addresses = admin.broker.replication.clusters()
    assert {address.authentication_parameters for address in addresses.values()} == {
        f"token:{OF_SETTINGS}",
        f"token:{OF_RECORD}",
    }
    shown = (
        admin.settings,
        admin.broker.catalog.clusters,
        addresses,
        admin.broker.replication.declaration(),
        Handover(OF_RECORD, version, json.dumps(OF_RECORD).encode()),  # type: ignore[arg-type]
        Security(token=OF_RECORD),
        Security(username="u", password=OF_RECORD),
    )
    for one in shown:
        check(repr(one) + str(one), type(one).__name__)
    for name in SECRET:
        assert getattr(admin.settings, name), "each has a value here"
        assert f"{name}=(hidden)" in repr(admin.settings)

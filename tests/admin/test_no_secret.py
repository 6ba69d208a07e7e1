"""No secret is in an answer, a line of the log or the text of an object."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from magnetar.admin.routes import ROUTES
from magnetar.broker.catalog.record import ClusterRecord
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
        replicationTrustedClusters="west",
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
    check(caplog.text, "the log")


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
    ],
)
@pytest.mark.parametrize(("method", "cluster"), [("PUT", "new"), ("POST", "west"), ("POST", "standalone")])
def test_no_refusal_repeats_a_secret(
    method: str, cluster: str, body: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = world()(method, f"/admin/v2/clusters/{cluster}", json={"serviceUrl": "http://new:8080", **body})
    assert answer.status_code in (400, 412)
    check(answer.text, "the refusal")
    check(caplog.text, "the log")


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

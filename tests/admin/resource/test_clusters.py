from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from magnetar.broker.catalog.policies import Overrides
from magnetar.broker.catalog.record import NamespaceRecord
from magnetar.names import TopicName
from tests.admin.driver import Admin

PATH = "/admin/v2/clusters"
WEST = {"serviceUrl": "http://west.example.com:8080", "brokerServiceUrl": "pulsar://west.example.com:6650"}
DEFAULTS = {
    "brokerClientTlsEnabled": False,
    "tlsAllowInsecureConnection": False,
    "brokerClientTlsEnabledWithKeyStore": False,
}
SENT_BY_PULSAR_ADMIN = {
    **DEFAULTS,
    "brokerClientTlsTrustStoreType": "JKS",
    "brokerClientTlsKeyStoreType": "JKS",
    "brokerClientSslFactoryPlugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
}


def saved(admin: Admin, method: str, path: str, **request: Any) -> None:
    """Apache Pulsar returns an empty 200 for these two changes, 204 for all others."""
    response = admin(method, path, **request)
    assert (response.status_code, response.content) == (200, b""), response.text
    assert admin.broker.commits.idle


def test_the_local_cluster_exists_with_its_addresses(admin: Admin) -> None:
    assert admin.get(PATH) == ["standalone"]
    assert admin.get(f"{PATH}/standalone") == {
        "serviceUrl": "http://broker.test:8080",
        "brokerServiceUrl": "pulsar://broker.test:6650",
        **DEFAULTS,
    }
    assert admin.reason(409, "PUT", f"{PATH}/standalone", json=WEST) == "Cluster already exists"
    assert "cluster of this broker" in admin.reason(412, "DELETE", f"{PATH}/standalone")


def test_the_local_cluster_accepts_only_an_unchanged_update(admin: Admin) -> None:
    own = admin.get(f"{PATH}/standalone")
    saved(admin, "POST", f"{PATH}/standalone", json=own)
    saved(admin, "POST", f"{PATH}/standalone", json={})
    reason = admin.reason(412, "POST", f"{PATH}/standalone", json={**own, "serviceUrl": WEST["serviceUrl"]})
    assert "serviceUrl" in reason and "http://broker.test:8080" in reason
    assert admin.get(f"{PATH}/standalone") == own


def test_create_get_update_delete(admin: Admin) -> None:
    saved(admin, "PUT", f"{PATH}/west", json=WEST)
    assert admin.get(PATH) == ["standalone", "west"]
    assert admin.get(f"{PATH}/west") == {**WEST, **DEFAULTS}
    assert admin.after_crash().get(f"{PATH}/west") == {**WEST, **DEFAULTS}
    assert admin.reason(409, "PUT", f"{PATH}/west", json=WEST) == "Cluster already exists"
    changed = {"serviceUrlTls": "https://west:8443", "brokerServiceUrlTls": "pulsar+ssl://west-1:6651,west-2:6651"}
    saved(admin, "POST", f"{PATH}/west", json=changed)
    assert admin.after_crash().get(f"{PATH}/west") == {**changed, **DEFAULTS}
    admin.done("DELETE", f"{PATH}/west")
    assert admin.get(PATH) == admin.after_crash().get(PATH) == ["standalone"]
    for method in ("GET", "POST", "DELETE"):
        assert admin.reason(404, method, f"{PATH}/west", json=WEST) == "Cluster does not exist"


def test_unset_fields_sent_by_clients_are_accepted(admin: Admin) -> None:
    body = {**WEST, **SENT_BY_PULSAR_ADMIN, "peerClusterNames": None, "authenticationPlugin": None, "listenerName": ""}
    saved(admin, "PUT", f"{PATH}/west", json=body)
    assert admin.get(f"{PATH}/west") == {**WEST, **DEFAULTS}


SECURE = {
    "authenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
    "authenticationParameters": "token:abc",
    "brokerClientTlsEnabled": True,
    "tlsAllowInsecureConnection": True,
    "brokerClientTrustCertsFilePath": "/etc/ca.pem",
    "brokerClientCertificateFilePath": "/etc/own.pem",
    "brokerClientKeyFilePath": "/etc/own.key",
}


HIDDEN = {"authenticationParameters": "token:(hidden)"}
DECLARATION = "/admin/v2/replication/declaration"


def used(admin: Admin, cluster: str = "west") -> str:
    """The parameters that are sent to a cluster."""
    return admin.broker.replication.clusters()[1][cluster].authentication_parameters


@pytest.fixture
def safe() -> Admin:
    return Admin(brokerClientTokenFolders="/etc")


def test_gr1_credentials_for_replication_are_stored_and_never_shown(safe: Admin) -> None:
    saved(safe, "PUT", f"{PATH}/west", json={**WEST, **SECURE})
    assert safe.after_crash().get(f"{PATH}/west") == {**DEFAULTS, **WEST, **SECURE, **HIDDEN}
    declared = safe.get(DECLARATION)["clusters"]["west"]
    assert declared["hasHiddenCredentials"]
    assert not declared.keys() & {"authenticationPlugin", "authenticationParameters"}
    assert used(safe) == "token:abc"
    assert "abc" not in safe("GET", DECLARATION).text + repr(safe.broker.catalog.clusters["west"])


def test_the_path_of_a_token_is_shown(safe: Admin) -> None:
    file = {"authenticationPlugin": "token", "authenticationParameters": "file:///etc/token"}
    saved(safe, "PUT", f"{PATH}/west", json={**WEST, **file})
    assert safe.get(f"{PATH}/west") == {**DEFAULTS, **WEST, **file}
    declared = safe.get(DECLARATION)["clusters"]["west"]
    assert declared == {**WEST, **file, "folders": ["/etc"]}


@pytest.mark.parametrize("credentials", [{}, HIDDEN, {"authenticationPlugin": None, "authenticationParameters": None}])
def test_an_update_without_the_secret_keeps_it(safe: Admin, credentials: dict[str, Any]) -> None:
    saved(safe, "PUT", f"{PATH}/west", json={**WEST, **SECURE})
    shown = safe.get(f"{PATH}/west")
    body = {name: value for name, value in shown.items() if not name.startswith("authentication")}
    if credentials == HIDDEN:
        body["authenticationPlugin"] = shown["authenticationPlugin"]
    saved(safe, "POST", f"{PATH}/west", json={**body, **credentials})
    assert used(safe) == "token:abc"
    assert safe.get(f"{PATH}/west") == shown


def test_empty_credentials_remove_the_secret(safe: Admin) -> None:
    saved(safe, "PUT", f"{PATH}/west", json={**WEST, **SECURE})
    none = {"authenticationPlugin": "", "authenticationParameters": ""}
    saved(safe, "POST", f"{PATH}/west", json={**WEST, **none})
    assert safe.get(f"{PATH}/west") == {**WEST, **DEFAULTS}
    assert used(safe) == ""


@pytest.mark.parametrize("credentials", [{}, {"authenticationPlugin": SECURE["authenticationPlugin"], **HIDDEN}])
@pytest.mark.parametrize(
    "change",
    [
        {"brokerServiceUrl": "pulsar://evil.example:6650"},
        {"serviceUrl": "http://evil.example:8080"},
        {"tlsAllowInsecureConnection": False, "brokerClientTlsEnabled": False},
        {"brokerClientTrustCertsFilePath": "/tmp/evil.pem"},
    ],
)
def test_a_secret_that_the_caller_does_not_know_is_sent_nowhere_else(
    safe: Admin, change: dict[str, Any], credentials: dict[str, str]
) -> None:
    saved(safe, "PUT", f"{PATH}/west", json={**WEST, **SECURE})
    body = {name: value for name, value in SECURE.items() if not name.startswith("authentication")}
    reason = safe.reason(400, "POST", f"{PATH}/west", json={**WEST, **body, **change, **credentials})
    assert next(iter(change)) in reason and "give it again" in reason and "abc" not in reason
    assert safe.get(f"{PATH}/west") == {**DEFAULTS, **WEST, **SECURE, **HIDDEN}
    saved(safe, "POST", f"{PATH}/west", json={**WEST, **SECURE, **change})


@pytest.mark.parametrize(
    "change", [{"brokerServiceUrl": "pulsar://evil.example:6650"}, {"serviceUrl": "http://evil.example:8080"}]
)
def test_the_login_of_a_file_moves_to_another_address_only_if_it_is_given_again(
    safe: Admin, change: dict[str, Any]
) -> None:
    file = {"authenticationPlugin": "token", "authenticationParameters": "file:///etc/token"}
    saved(safe, "PUT", f"{PATH}/west", json={**WEST, **file})
    reason = safe.reason(400, "POST", f"{PATH}/west", json={**WEST, **change})
    assert next(iter(change)) in reason and "give it again" in reason
    assert safe.get(f"{PATH}/west") == {**DEFAULTS, **WEST, **file}
    saved(safe, "POST", f"{PATH}/west", json={**WEST, **change, **file})


def test_the_hidden_text_is_not_taken_for_a_secret(safe: Admin) -> None:
    body = {**WEST, "authenticationPlugin": "token", **HIDDEN}
    assert "(hidden)" in safe.reason(400, "PUT", f"{PATH}/west", json=body)
    saved(safe, "PUT", f"{PATH}/west", json=WEST)
    assert "(hidden)" in safe.reason(400, "POST", f"{PATH}/west", json=body)


def test_gr1_only_clusters_that_the_settings_name_get_the_credentials_of_the_settings() -> None:
    admin = Admin(
        brokerClientAuthenticationPlugin="AuthenticationToken",
        brokerClientAuthenticationParameters="token:mine",
        brokerClientTrustCertsFilePath="/etc/ca.pem",
        brokerClientTokenFolders="/etc",
        replicationTrustedClusters="south, west",
    )
    encrypted = {"brokerServiceUrlTls": "pulsar+ssl://west.example.com:6651"}
    for cluster in ("west", "evil"):
        saved(admin, "PUT", f"{PATH}/{cluster}", json=encrypted)
    saved(admin, "PUT", f"{PATH}/east", json={**WEST, **SECURE})
    assert [used(admin, cluster) for cluster in ("west", "evil", "east")] == ["token:mine", "", "token:abc"]
    declared = admin.get(DECLARATION)["clusters"]
    assert declared["west"]["hasHiddenCredentials"]
    assert "hasHiddenCredentials" not in declared["evil"]
    assert "replicationTrustedClusters does not name evil" in declared["evil"]["credentialsNote"]
    assert declared["west"]["brokerClientTrustCertsFilePath"] == "/etc/ca.pem"
    for path in (DECLARATION, "/admin/v2/brokers/configuration/runtime"):
        assert "mine" not in admin("GET", path).text


@pytest.mark.parametrize(
    "body",
    [
        {"authenticationPlugin": "token", "authenticationParameters": "file://{}"},
        {"authenticationPlugin": "tls", "authenticationParameters": "tlsCertFile:{},tlsKeyFile:{}"},
        {
            "authenticationPlugin": "oauth2",
            "authenticationParameters": '{{"issuerUrl": "https://i", "privateKey": "file://{}", "audience": "a"}}',
        },
        {"brokerClientCertificateFilePath": "{}", "brokerClientKeyFilePath": "{}"},
    ],
    ids=["token", "tls", "oauth2", "certificate"],
)
def test_files_of_credentials_are_below_the_folders_of_the_settings(tmp_path: Path, body: dict[str, str]) -> None:
    """An address of one's own and `file:///…` made the broker send any file of the machine there."""
    outside, allowed = tmp_path / "other.key", tmp_path / "allowed"
    allowed.mkdir()
    outside.write_text("secret")
    (allowed / "own.key").write_text("secret")
    (allowed / "link.key").symlink_to(outside)
    (allowed / "away").symlink_to(tmp_path)

    def given(path: object) -> dict[str, str]:
        return {**WEST, **{name: text.format(path, path) for name, text in body.items()}}

    admin = Admin(brokerClientTokenFolders=str(allowed))
    for path in (
        outside,
        "/etc/passwd",
        "/proc/self/environ",
        allowed / "link.key",
        allowed / "away" / "other.key",
        f"{allowed}/../other.key",
        f"{allowed}-beside/own.key",
    ):
        reason = admin.reason(400, "PUT", f"{PATH}/west", json=given(path))
        assert "is not below a folder that brokerClientTokenFolders names" in reason or "without `..`" in reason
    assert "brokerClientTokenFolders" in Admin().reason(400, "PUT", f"{PATH}/west", json=given(allowed / "own.key"))
    saved(admin, "PUT", f"{PATH}/west", json=given(allowed / "own.key"))
    assert "is not below" in admin.reason(400, "POST", f"{PATH}/west", json=given(outside))


@pytest.mark.parametrize(
    "body",
    [
        {"authenticationParameters": "token:abc"},
        {"authenticationPlugin": "token", "authenticationParameters": "a\nb"},
        {"authenticationPlugin": "token", "authenticationParameters": "a" * 20_000},
    ],
)
def test_invalid_credentials_are_rejected(admin: Admin, body: dict[str, str]) -> None:
    assert "authenticationParameters" in admin.reason(400, "PUT", f"{PATH}/west", json={**WEST, **body})


def test_the_local_cluster_accepts_no_credentials(admin: Admin) -> None:
    reason = admin.reason(412, "POST", f"{PATH}/standalone", json={"authenticationPlugin": "token"})
    assert "authenticationPlugin" in reason


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("proxyServiceUrl", "pulsar://proxy:6650"),
        ("proxyProtocol", "SNI"),
        ("peerClusterNames", ["east"]),
        ("brokerClientTlsEnabledWithKeyStore", True),
        ("brokerClientTlsTrustStoreType", "PKCS12"),
        ("listenerName", "external"),
        ("migrated", True),
        ("migratedClusterUrl", {"serviceUrl": "http://east:8080"}),
    ],
)
def test_unsupported_fields_are_rejected(admin: Admin, field: str, value: Any) -> None:
    assert field in admin.reason(501, "PUT", f"{PATH}/west", json={**WEST, field: value})
    assert admin.get(PATH) == ["standalone"]


@pytest.mark.parametrize(
    ("field", "url"),
    [
        ("serviceUrl", "https://west:8443"),
        ("serviceUrl", "west:8080"),
        ("serviceUrl", "http://"),
        ("serviceUrl", "http://a b"),
        ("serviceUrl", "http://west:99999"),
        ("serviceUrl", "http://west:0"),
        ("serviceUrl", "http://west:port"),
        ("serviceUrl", "http://west/path"),
        ("serviceUrl", "http://west?q=1"),
        ("serviceUrl", "http://user@west"),
        ("serviceUrl", "http://[::1"),
        ("serviceUrl", "http://wést"),
        ("serviceUrl", "http://west\n"),
        ("serviceUrl", "http://" + "w" * 10_000),
        ("serviceUrlTls", "http://west"),
        ("brokerServiceUrl", "pulsar+ssl://west"),
        ("brokerServiceUrl", "pulsar://a,,b"),
        ("brokerServiceUrlTls", "pulsar://west"),
    ],
)
def test_an_invalid_address_is_rejected(admin: Admin, field: str, url: str) -> None:
    for method, cluster in (("PUT", "west"), ("POST", "standalone")):
        reason = admin.reason(400, method, f"{PATH}/{cluster}", json={field: url})
        assert field in reason and len(reason) < 400
    assert admin.get(PATH) == ["standalone"]


@pytest.mark.parametrize("url", ["http://west", "http://west/", "http://[::1]:8080", "http://10.0.0.1:80,10.0.0.2:80"])
def test_valid_addresses(admin: Admin, url: str) -> None:
    saved(admin, "PUT", f"{PATH}/west", json={"serviceUrl": url})
    assert admin.get(f"{PATH}/west")["serviceUrl"] == url


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "required"),
        (b"null", "required"),
        (b"[]", "object"),
        (b'{"serviceUrl":7}', "serviceUrl"),
        (b'{"url":"http://west"}', "url"),
    ],
)
def test_bad_bodies(admin: Admin, body: bytes, named: str) -> None:
    assert named in admin.reason(400, "PUT", f"{PATH}/west", content=body)
    assert admin.get(PATH) == ["standalone"]


@pytest.mark.parametrize("cluster", ["a%2Fb", "a%20b", "%2E%2E", "x" * 1100])
def test_an_illegal_name_is_rejected(admin: Admin, cluster: str) -> None:
    for method in ("GET", "PUT", "POST", "DELETE"):
        assert "cluster" in admin.reason(412, method, f"{PATH}/{cluster}", json=WEST)


def test_a_cluster_in_use_is_not_deleted(admin: Admin) -> None:
    catalog, cluster = admin.broker.catalog, f"{PATH}/west"
    saved(admin, "PUT", cluster, json=WEST)

    admin.done("PUT", "/admin/v2/tenants/acme", json={"allowedClusters": ["standalone", "west"]})
    assert admin.reason(412, "DELETE", cluster) == "Cluster not empty: tenant acme is allowed to use it"
    admin.done("DELETE", "/admin/v2/tenants/acme")

    replicated = Overrides(replication_clusters=["standalone", "west"])
    catalog.save_namespace("public/default", NamespaceRecord(overrides=replicated))
    assert admin.reason(412, "DELETE", cluster) == "Cluster not empty: namespace public/default is replicated to it"
    catalog.save_namespace("public/default", NamespaceRecord())

    for name in ("plain", "many"):
        admin.publish(name) if name == "plain" else catalog.create_partitioned(TopicName.parse(name), 2, {})
        topic = TopicName.parse(name)
        catalog.set_overrides(topic, replicated)
        assert admin.reason(412, "DELETE", cluster) == f"Cluster not empty: topic {topic.full} is replicated to it"
        catalog.set_overrides(topic, Overrides())

    admin.done("DELETE", cluster)

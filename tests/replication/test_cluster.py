"""The address of a declared cluster, and the credentials for it."""

from __future__ import annotations

import pytest

from magnetar.client.errors import InvalidArgument, NotSupported
from magnetar.replication.cluster import ClusterEndpoint, endpoint_of, endpoints_of
from magnetar.replication.model import ClusterAddress
from magnetar.security.credentials import Security

PLAIN = {"service_url": "http://b:8080", "broker_service_url": "pulsar://b:6650"}
TLS = {"service_url_tls": "https://b:8443", "broker_service_url_tls": "pulsar+ssl://b:6651"}


def test_a_cluster_without_an_address_cannot_be_reached() -> None:
    assert endpoint_of("b", ClusterAddress()) is None
    assert endpoint_of("b", ClusterAddress(**PLAIN, broker_client_tls_enabled=True)) is None, (
        "and not in plain text instead"
    )


@pytest.mark.parametrize(
    ("address", "service", "admin"),
    [
        (ClusterAddress(**PLAIN), "pulsar://b:6650", "http://b:8080"),
        (ClusterAddress(**TLS), "pulsar+ssl://b:6651", "https://b:8443"),
        (ClusterAddress(**PLAIN, **TLS), "pulsar://b:6650", "http://b:8080"),
        (
            ClusterAddress(**PLAIN, **TLS, broker_client_tls_enabled=True),
            "pulsar+ssl://b:6651",
            "https://b:8443",
        ),
        (ClusterAddress(service_url="http://b:8080"), "http://b:8080", "http://b:8080"),
        (ClusterAddress(broker_service_url="pulsar://b:6650"), "pulsar://b:6650", None),
    ],
)
def test_the_selected_addresses(address: ClusterAddress, service: str, admin: str | None) -> None:
    assert endpoint_of("b", address) == ClusterEndpoint("b", service, admin, None)


def test_certificates_are_for_encrypted_addresses_only() -> None:
    """The client rejects certificates without effect; one setting serves clusters of both kinds."""
    more = {
        "authentication_plugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "authentication_parameters": "token:abc",
        "broker_client_trust_certs_file_path": "/ca.pem",
    }
    plain, encrypted = (
        endpoint_of("b", ClusterAddress(**PLAIN, **more)),
        endpoint_of("b", ClusterAddress(**TLS, **more)),
    )
    assert plain is not None and encrypted is not None
    assert plain.security == Security(token="abc")
    assert encrypted.security == Security(token="abc", trust_certs_file="/ca.pem")


def test_mutual_tls() -> None:
    address = ClusterAddress(
        **TLS,
        tls_allow_insecure_connection=True,
        broker_client_certificate_file_path="/cert.pem",
        broker_client_key_file_path="/key.pem",
    )
    found = endpoint_of("b", address)
    assert found is not None
    assert found.security == Security(allow_insecure=True, certificate_file="/cert.pem", key_file="/key.pem")


def test_unsupported_authentication_is_rejected() -> None:
    with pytest.raises(NotSupported, match="AuthenticationAthenz"):
        endpoint_of("b", ClusterAddress(**PLAIN, authentication_plugin="AuthenticationAthenz"))
    with pytest.raises(InvalidArgument, match="needs a token"):
        endpoint_of("b", ClusterAddress(**PLAIN, authentication_plugin="AuthenticationToken"))


def test_clusters_without_an_endpoint_have_a_reason() -> None:
    addresses = {
        "b": ClusterAddress(**PLAIN),
        "c": ClusterAddress(),
        "d": ClusterAddress(**PLAIN, authentication_plugin="AuthenticationAthenz"),
    }
    endpoints, errors = endpoints_of(addresses)
    assert endpoints == {"b": endpoint_of("b", addresses["b"])}
    assert errors["c"] == "cluster c has no address: set one with `magnetar clusters update`"
    assert errors["d"].startswith("cluster d cannot be reached: ") and "AuthenticationAthenz" in errors["d"]

"""Which clusters get the broker's own login, and at which addresses."""

from __future__ import annotations

import pytest

from magnetar.broker.replication.own_login import reason_against
from magnetar.replication.model import ClusterAddress

PLAIN = ClusterAddress(broker_service_url="pulsar://w:6650", service_url="http://w:8080")
TLS = ClusterAddress(broker_service_url_tls="pulsar+ssl://w:6651", service_url_tls="https://w:8443")
BOTH = ClusterAddress(
    broker_service_url="pulsar://w",
    broker_service_url_tls="pulsar+ssl://w,v:7000",
    broker_client_tls_enabled=True,
)
LOCAL = ClusterAddress(broker_service_url="pulsar://127.0.0.1:6650,localhost", service_url="http://[::1]:8080")
UNVERIFIED = ClusterAddress(broker_service_url_tls="pulsar+ssl://w", tls_allow_insecure_connection=True)


@pytest.mark.parametrize(
    ("trusted", "address"),
    [
        ("east, west", TLS),
        ("west", BOTH),
        ("west", LOCAL),
        ("west=pulsar+ssl://w, west=https://W:8443", TLS),
        ("west=pulsar://w:6650,west=http://w", PLAIN),
        ("west=pulsar+ssl://w:6651,west=pulsar+ssl://v:7000", BOTH),
        ("west", ClusterAddress(broker_service_url_tls="pulsar+ssl://localhost", tls_allow_insecure_connection=True)),
    ],
)
def test_the_login_goes_to_a_trusted_cluster(trusted: str, address: ClusterAddress) -> None:
    assert reason_against("west", address, trusted) == ""


@pytest.mark.parametrize(
    ("trusted", "address", "reason"),
    [
        ("", TLS, "replicationTrustedClusters does not name west"),
        ("east", TLS, "replicationTrustedClusters does not name west"),
        ("west", PLAIN, "pulsar://w:6650 has no TLS, and replicationTrustedClusters names west without this address"),
        ("west", UNVERIFIED, "west has tlsAllowInsecureConnection, which accepts the certificate of anyone"),
        ("west=pulsar+ssl://w", UNVERIFIED, "west has tlsAllowInsecureConnection"),
        ("west=pulsar+ssl://w", TLS, "replicationTrustedClusters does not name https://w:8443 for west"),
        ("west, west=https://w", TLS, "replicationTrustedClusters does not name pulsar+ssl://w:6651 for west"),
        ("west=pulsar+ssl://w", BOTH, "replicationTrustedClusters does not name pulsar+ssl://v:7000 for west"),
        ("west=pulsar+ssl://w:6650", PLAIN, "replicationTrustedClusters does not name pulsar://w:6650 for west"),
        ("west=pulsar://w", LOCAL, "replicationTrustedClusters does not name pulsar://127.0.0.1:6650 for west"),
        ("west", ClusterAddress(broker_service_url="w:6650"), "has an address that cannot be read"),
        ("west", ClusterAddress(broker_service_url="pulsar://127.evil.example"), "has no TLS"),
    ],
)
def test_the_login_goes_nowhere_else(trusted: str, address: ClusterAddress, reason: str) -> None:
    assert reason in reason_against("west", address, trusted)

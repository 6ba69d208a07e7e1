"""How a cluster that another one declares is reached: which of its addresses, and who we are to it.

Owns the choice between plain and encrypted addresses, which is Apache Pulsar's: what the cluster's record says, and
encrypted where there is nothing else. Opens no connection.
"""

from __future__ import annotations

import msgspec

from magnetar.replication.model import ClusterAddress
from magnetar.security.credentials import Security


class Reached(msgspec.Struct, frozen=True):
    """What `AsyncClient` and `Client` are made of."""

    service_url: str
    admin_url: str | None
    security: Security | None


def reached(address: ClusterAddress) -> Reached | None:
    """None if the cluster's record has no address of the kind that is to be used: what is meant to be encrypted never
    goes in plain text. Raises `InvalidArgument` or `NotSupported` for authentication that cannot be used.
    """
    service, admin = address.broker_service_url, address.service_url
    is_tls = address.broker_client_tls_enabled or not (service or admin)
    if is_tls:
        service, admin = address.broker_service_url_tls, address.service_url_tls
    if not (service or admin):
        return None
    return Reached(service or admin or "", admin or None, _security(address, is_tls=is_tls))


def _security(address: ClusterAddress, *, is_tls: bool) -> Security | None:
    parameters: dict[str, object] = {
        "authPluginClassName": address.authentication_plugin,
        "authParams": address.authentication_parameters,
    }
    if is_tls:
        parameters |= {
            "tlsTrustCertsFilePath": address.broker_client_trust_certs_file_path,
            "tlsAllowInsecureConnection": address.tls_allow_insecure_connection,
            "tlsCertificateFilePath": address.broker_client_certificate_file_path,
            "tlsKeyFilePath": address.broker_client_key_file_path,
        }
    security = Security.from_pulsar(parameters)
    return None if security == Security() else security

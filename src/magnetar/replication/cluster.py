"""Cluster endpoints: the addresses and credentials with which a declared cluster is reached.

Owns the choice between plain and TLS addresses, by Apache Pulsar's rules: the cluster's record decides, and TLS is used
where there is no plain address. Opens no connection.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from magnetar.client.errors import ClientError
from magnetar.replication.model import ClusterAddress
from magnetar.security.credentials import Security


class ClusterEndpoint(msgspec.Struct, frozen=True):
    """The arguments of a client for one cluster. Hashable."""

    name: str
    service_url: str
    admin_url: str | None = None
    security: Security | None = None


def endpoint_of(name: str, address: ClusterAddress) -> ClusterEndpoint | None:
    """None if the record has no usable address: a cluster declared with TLS is never reached in plain text. Raises
    `InvalidArgument` or `NotSupported` for unusable authentication.
    """
    service, admin = urls_of(address)
    if not (service or admin):
        return None
    security = _security(address, is_tls=_uses_tls(address))
    return ClusterEndpoint(name, service or admin or "", admin or None, security)


def urls_of(address: ClusterAddress) -> tuple[str | None, str | None]:
    """The address of the service and that of the admin, which is used."""
    if _uses_tls(address):
        return address.broker_service_url_tls, address.service_url_tls
    return address.broker_service_url, address.service_url


def _uses_tls(address: ClusterAddress) -> bool:
    return address.broker_client_tls_enabled or not (address.broker_service_url or address.service_url)


def endpoints_of(clusters: Mapping[str, ClusterAddress]) -> tuple[dict[str, ClusterEndpoint], dict[str, str]]:
    """The endpoints by cluster name; and, for each cluster without a usable one, the reason."""
    endpoints: dict[str, ClusterEndpoint] = {}
    errors: dict[str, str] = {}
    for name, address in clusters.items():
        if address.has_hidden_credentials:
            errors[name] = (
                f"cluster {name} asks for credentials, which only the broker and its own pipelines process have"
            )
            continue
        try:
            endpoint = endpoint_of(name, address)
        except ClientError as error:
            errors[name] = f"cluster {name} cannot be reached: {error.text}"
            continue
        if endpoint is None:
            errors[name] = f"cluster {name} has no address: set one with `magnetar clusters update`"
        else:
            endpoints[name] = endpoint
    return endpoints, errors


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
    security = msgspec.structs.replace(Security.from_pulsar(parameters), folders=address.folders)
    return None if security == Security(folders=address.folders) else security

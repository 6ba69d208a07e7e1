"""Remote clusters: the addresses of a record, and the credentials that may be sent there.

Owns the rules of who gets which: a record's own credentials, with files below the folders of the settings only; those
of the settings where `own_login` permits it. Connects to no cluster.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from magnetar.broker.catalog.record import ClusterRecord
from magnetar.broker.replication.own_login import reason_against
from magnetar.client.errors import ClientError
from magnetar.replication.model import ClusterAddress
from magnetar.security.credentials import Security
from magnetar.security.folders import below, folders_of
from magnetar.settings.settings import Settings


def address_of(name: str, record: ClusterRecord, settings: Settings) -> ClusterAddress:
    """For those who connect: with credentials."""
    address = ClusterAddress(
        service_url=record.service_url or None,
        service_url_tls=record.service_url_tls or None,
        broker_service_url=record.broker_service_url or None,
        broker_service_url_tls=record.broker_service_url_tls or None,
        authentication_plugin=record.authentication_plugin,
        authentication_parameters=record.authentication_parameters,
        broker_client_tls_enabled=record.broker_client_tls_enabled,
        tls_allow_insecure_connection=record.tls_allow_insecure_connection,
        broker_client_trust_certs_file_path=(
            record.broker_client_trust_certs_file_path or settings.brokerClientTrustCertsFilePath
        ),
        broker_client_certificate_file_path=record.broker_client_certificate_file_path,
        broker_client_key_file_path=record.broker_client_key_file_path,
        folders=folders_of(settings.brokerClientTokenFolders),
    )
    if record.authentication_plugin or not settings.brokerClientAuthenticationPlugin:
        return address
    return _with_own_login(name, address, settings)


def _with_own_login(name: str, address: ClusterAddress, settings: Settings) -> ClusterAddress:
    if reason := reason_against(name, address, settings.replicationTrustedClusters):
        note = f"the credentials of the settings are not sent to it, because {reason}"
        return msgspec.structs.replace(address, credentials_note=note)
    plugin, parameters = settings.brokerClientAuthenticationPlugin, settings.brokerClientAuthenticationParameters
    folders = address.folders or ()
    with suppress(ClientError):  # reported by those who connect
        folders += _files_of(plugin, parameters)
    return msgspec.structs.replace(
        address, authentication_plugin=plugin, authentication_parameters=parameters, folders=folders
    )


def check_files(record: ClusterRecord, settings: Settings) -> None:
    """Raises `InvalidArgument` for a file that is not below the folders of the settings."""
    folders = folders_of(settings.brokerClientTokenFolders)
    for file in _files_of(record.authentication_plugin, record.authentication_parameters):
        below(file, folders, "authenticationParameters:")
    below_each = {
        "brokerClientCertificateFilePath": record.broker_client_certificate_file_path,
        "brokerClientKeyFilePath": record.broker_client_key_file_path,
    }
    for field, file in below_each.items():
        if file:
            below(file, folders, field)


def _files_of(plugin: str, parameters: str) -> tuple[str, ...]:
    """The files that parameters name. Raises `InvalidArgument` or `NotSupported` for parameters of no known form."""
    return Security.from_pulsar({"authPluginClassName": plugin, "authParams": parameters}).files

"""Remote clusters: the addresses of a record, and the credentials that may be sent there.

Owns the rules of who gets which: a record's own credentials, with files below the folders of the settings only; those
of the settings for clusters that the settings name. Connects to no cluster.
"""

from __future__ import annotations

from contextlib import suppress

from magnetar.broker.catalog.record import ClusterRecord
from magnetar.client.errors import ClientError
from magnetar.replication.model import ClusterAddress
from magnetar.security.credentials import Security
from magnetar.security.folders import below, folders_of
from magnetar.settings.settings import Settings


def address_of(name: str, record: ClusterRecord, settings: Settings) -> ClusterAddress:
    """For those who connect: with credentials."""
    plugin, parameters = record.authentication_plugin, record.authentication_parameters
    folders, note = folders_of(settings.brokerClientTokenFolders), ""
    if not plugin and settings.brokerClientAuthenticationPlugin:
        if name in _trusted(settings):
            plugin = settings.brokerClientAuthenticationPlugin
            parameters = settings.brokerClientAuthenticationParameters
            with suppress(ClientError):  # reported by those who connect
                folders += _files_of(plugin, parameters)
        else:
            note = (
                "the credentials of the settings are not sent to it, because replicationTrustedClusters does not name"
                f" {name}"
            )
    return ClusterAddress(
        service_url=record.service_url or None,
        service_url_tls=record.service_url_tls or None,
        broker_service_url=record.broker_service_url or None,
        broker_service_url_tls=record.broker_service_url_tls or None,
        authentication_plugin=plugin,
        authentication_parameters=parameters,
        broker_client_tls_enabled=record.broker_client_tls_enabled,
        tls_allow_insecure_connection=record.tls_allow_insecure_connection,
        broker_client_trust_certs_file_path=(
            record.broker_client_trust_certs_file_path or settings.brokerClientTrustCertsFilePath
        ),
        broker_client_certificate_file_path=record.broker_client_certificate_file_path,
        broker_client_key_file_path=record.broker_client_key_file_path,
        folders=folders,
        credentials_note=note,
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


def _trusted(settings: Settings) -> set[str]:
    return {name.strip() for name in settings.replicationTrustedClusters.split(",") if name.strip()}


def _files_of(plugin: str, parameters: str) -> tuple[str, ...]:
    """The files that parameters name. Raises `InvalidArgument` or `NotSupported` for parameters of no known form."""
    return Security.from_pulsar({"authPluginClassName": plugin, "authParams": parameters}).files

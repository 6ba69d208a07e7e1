"""Clusters: this one, and remote ones with their addresses and credentials."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.responses import Response

from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import BadRequest, ClusterNotFound
from magnetar.admin.http.request import Call
from magnetar.bounds import CLUSTER_URL
from magnetar.broker.catalog.catalog import Catalog
from magnetar.broker.catalog.record import ClusterRecord
from magnetar.broker.replication.remote_clusters import check_files
from magnetar.client.errors import InvalidArgument
from magnetar.client.errors import NotSupported as ClientNotSupported
from magnetar.errors import AlreadyExists, NotAllowed, NotSupported
from magnetar.names import check_entity
from magnetar.replication.model import HIDDEN, without_secrets

URL_SIZE_MAX = CLUSTER_URL.limit
TEXT_SIZE_MAX = 16_384  # of a token or a file path


class KeptData(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """The stored fields of a cluster, as in `ClusterRecord`; None if not set."""

    service_url: str | None = None
    service_url_tls: str | None = None
    broker_service_url: str | None = None
    broker_service_url_tls: str | None = None
    authentication_plugin: str | None = None
    authentication_parameters: str | None = None
    broker_client_tls_enabled: bool = False
    tls_allow_insecure_connection: bool = False
    broker_client_trust_certs_file_path: str | None = None
    broker_client_certificate_file_path: str | None = None
    broker_client_key_file_path: str | None = None


class ClusterData(KeptData, rename="camel", kw_only=True, omit_defaults=False):
    """Pulsar's object. Fields that are not stored must have the value that Pulsar's clients send for unset ones."""

    proxy_service_url: str | None = None
    proxy_protocol: str | None = None
    peer_cluster_names: list[str] | None = None
    broker_client_tls_enabled_with_key_store: bool = False
    broker_client_tls_trust_store_type: str | None = None
    broker_client_tls_trust_store: str | None = None
    broker_client_tls_trust_store_password: str | None = None
    broker_client_tls_key_store_type: str | None = None
    broker_client_tls_key_store: str | None = None
    broker_client_tls_key_store_password: str | None = None
    broker_client_ssl_factory_plugin: str | None = None
    broker_client_ssl_factory_plugin_params: str | None = None
    listener_name: str | None = None
    migrated: bool = False
    migrated_cluster_url: dict[str, str | None] | None = None


KEPT = KeptData.__struct_fields__

_cluster_data: BodyReader[ClusterData] = BodyReader(ClusterData)

_SCHEMES = {
    "service_url": ("http", 8080),
    "service_url_tls": ("https", 8443),
    "broker_service_url": ("pulsar", 6650),
    "broker_service_url_tls": ("pulsar+ssl", 6651),
}
_HOST = re.compile(r"(?:[-.\w]+|\[[0-9a-fA-F:.]+\])(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_WITHOUT_SECRET = re.compile(r"[+a-z]+://[-.,:\w\[\]]*", re.ASCII)  # no login, path or parameters


def list_clusters(call: Call) -> list[str]:
    """List all clusters."""
    return known_clusters(call)


def known_clusters(call: Call) -> list[str]:
    """This cluster and the others, by name."""
    return sorted({call.broker.settings.clusterName, *call.broker.catalog.clusters})


def get(call: Call) -> dict[str, object]:
    """Show the addresses of a cluster; for this one, those that the caller connected to."""
    cluster = _existing(call)
    record = _own_urls(call) if _is_own(call, cluster) else call.broker.catalog.clusters[cluster]
    data = ClusterData(**{field: value for field, value in _kept(record).items() if value})
    if data.authentication_parameters:
        data.authentication_parameters = without_secrets(
            data.authentication_parameters, data.authentication_plugin or ""
        )
    return {
        field: value for field, value in msgspec.to_builtins(data).items() if value is not None and _is_shown(field)
    }


def create(call: Call) -> Response:
    """Register a remote cluster."""
    cluster, record = check_entity("cluster", call.path["cluster"]), _record_of(call)
    if cluster in known_clusters(call):
        raise AlreadyExists("Cluster already exists")
    _check_credentials(call, record)
    call.broker.catalog.save_cluster(cluster, record)
    return Response()


def update(call: Call) -> Response:
    """Set the addresses and credentials of a remote cluster."""
    cluster, record = _existing(call), _record_of(call)
    if not _is_own(call, cluster):
        _keep_credentials(call, call.broker.catalog.clusters[cluster], record)
        _check_credentials(call, record)
        call.broker.catalog.save_cluster(cluster, record)
        return Response()
    own = _own_urls(call)
    for field in KEPT:
        given, actual = getattr(record, field), getattr(own, field)
        if given not in ("", False, actual):
            raise NotAllowed(
                f"{_camel(field)} cannot change: cluster {cluster} is this broker, with {actual or 'none'}"
            )
    return Response()


_CREDENTIALS = ("authentication_plugin", "authentication_parameters")
_SENT_TO = tuple(field for field in KEPT if field not in _CREDENTIALS)


def _keep_credentials(call: Call, stored: ClusterRecord, record: ClusterRecord) -> None:
    """An update without credentials, or with the hidden text that `get` shows, keeps the stored ones; empty texts
    remove them. A login, also that of a file, stays with the addresses that it was given for, or one who never saw it
    could send it anywhere."""
    given = call.body_as(_cluster_data)
    assert given is not None, "the record is made from it"
    shown = without_secrets(stored.authentication_parameters, stored.authentication_plugin)
    is_absent = all(getattr(given, field) is None for field in _CREDENTIALS) and stored.authentication_plugin
    if not is_absent and (shown == stored.authentication_parameters or record.authentication_parameters != shown):
        return
    # With another plugin, a secret may be taken for the path of a file, which is shown.
    fields = _SENT_TO if is_absent else ("authentication_plugin", *_SENT_TO)
    changed = [_camel(field) for field in fields if getattr(stored, field) != getattr(record, field)]
    if changed:
        raise BadRequest(
            f"{', '.join(changed)} cannot change without authenticationParameters: the stored login is sent only where"
            " it was given for, so give it again, or empty credentials to remove it"
        )
    if is_absent:
        record.authentication_plugin = stored.authentication_plugin
    record.authentication_parameters = stored.authentication_parameters


def _check_credentials(call: Call, record: ClusterRecord) -> None:
    if HIDDEN in record.authentication_parameters:
        raise BadRequest(
            f"authenticationParameters has {HIDDEN} in it, which stands for a secret that is not stored here"
        )
    try:
        check_files(record, call.broker.settings)
    except InvalidArgument as error:
        raise BadRequest(error.text) from error
    except ClientNotSupported as error:  # a plugin that is not one may be a secret in the wrong field
        raise BadRequest(error.text.replace(f" {record.authentication_plugin.strip()!r}", "")) from error


def delete(call: Call) -> None:
    """Remove a remote cluster that no tenant, namespace or topic uses."""
    cluster = _existing(call)
    if _is_own(call, cluster):
        raise NotAllowed(f"Cluster not empty: {cluster} is the cluster of this broker")
    user = _user_of(call.broker.catalog, cluster)
    if user is not None:
        raise NotAllowed(f"Cluster not empty: {user}")
    call.broker.catalog.delete_cluster(cluster)


def _existing(call: Call) -> str:
    cluster = check_entity("cluster", call.path["cluster"])
    if cluster not in known_clusters(call):
        raise ClusterNotFound("Cluster does not exist")
    return cluster


def _is_own(call: Call, cluster: str) -> bool:
    return cluster == call.broker.settings.clusterName


def _own_urls(call: Call) -> ClusterRecord:
    own = call.own
    return ClusterRecord(
        service_url=own.http_url,
        service_url_tls=own.http_url_tls,
        broker_service_url=own.service_url,
        broker_service_url_tls=own.service_url_tls,
    )


def _is_shown(field: str) -> bool:
    """The migration fields are sent by older clients; since Pulsar 4 they are not in replies."""
    return field not in ("migrated", "migratedClusterUrl")


def _record_of(call: Call) -> ClusterRecord:
    """The body; raises if a field would have no effect."""
    data = call.body_as(_cluster_data)
    if data is None:
        raise BadRequest("cluster data is required: serviceUrl and brokerServiceUrl are expected in the request body")
    for field in ClusterData.__struct_fields__:
        if field not in KEPT and not _is_unset(field, getattr(data, field)):
            raise NotSupported(
                f"{_camel(field)} of a cluster is not supported: only {', '.join(map(_camel, KEPT))} are"
            )
    given = {field: value for field, value in _kept(data).items() if value}
    for field, value in given.items():
        if field in _SCHEMES:
            _check_url(field, value)
        elif isinstance(value, str) and (len(value) > TEXT_SIZE_MAX or not value.isprintable()):
            raise BadRequest(f"{_camel(field)} is not one line of at most {TEXT_SIZE_MAX} characters")
    if given.get("authentication_parameters") and not given.get("authentication_plugin"):
        raise BadRequest("authenticationParameters needs authenticationPlugin")
    return ClusterRecord(**given)


def _kept(data: ClusterData | ClusterRecord) -> dict[str, Any]:
    return {field: getattr(data, field) for field in KEPT}


_CLIENT_DEFAULTS = {
    "broker_client_tls_trust_store_type": "JKS",
    "broker_client_tls_key_store_type": "JKS",
    "broker_client_ssl_factory_plugin": "org.apache.pulsar.common.util.DefaultPulsarSslFactory",
}


def _is_unset(field: str, value: object) -> bool:
    if field == "migrated_cluster_url" and isinstance(value, dict):
        return not any(value.values())
    return value in (None, "", [], False) or value == _CLIENT_DEFAULTS.get(field)


def _check_url(field: str, url: str) -> None:
    """An address may list several hosts after one scheme, as in Pulsar's clients."""
    if not url:
        return
    scheme, port = _SCHEMES[field]
    shown = f" {url[:100]!r}" if _WITHOUT_SECRET.fullmatch(url) else ""
    refusal = BadRequest(
        f"{_camel(field)}{shown} is not an address such as {scheme}://pulsar.example.com:{port}"
        f" of at most {URL_SIZE_MAX} bytes"
    )
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise refusal from error
    hosts = [_HOST.fullmatch(host) for host in parts.netloc.split(",")]
    if (
        len(url) > URL_SIZE_MAX
        or not url.startswith(f"{scheme}://")
        or parts.path not in ("", "/")
        or parts.query
        or parts.fragment
        or not all(host is not None and 0 < int(host["port"] or port) <= 65535 for host in hosts)
        or re.search(r"\s", url)
    ):
        raise refusal


def _camel(field: str) -> str:
    first, *others = field.split("_")
    return first + "".join(word.capitalize() for word in others)


def _user_of(catalog: Catalog, cluster: str) -> str | None:
    """A tenant, namespace or topic that uses the cluster, as a sentence; None if there is none."""
    for tenant, tenant_record in catalog.tenants.items():
        if cluster in tenant_record.allowed_clusters:
            return f"tenant {tenant} is allowed to use it"
    for kind, records in (
        ("namespace", catalog.namespaces),
        ("topic", catalog.partitioned),
        ("topic", catalog.topics),
    ):
        for name, record in records.items():
            if cluster in (record.overrides.replication_clusters or ()):
                return f"{kind} {name} is replicated to it"
            if cluster in (record.overrides.allowed_clusters or ()):
                return f"{kind} {name} may be replicated to it"
    return None

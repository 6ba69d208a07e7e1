"""`magnetar clusters …`: list, show, register, update and remove clusters."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from magnetar.cli.argument import Cluster
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Names, Record
from magnetar.cli.replication.two_clusters import own_name
from magnetar.cli.rest import Refused, Rest
from magnetar.replication.model import without_secrets

_PLUGIN, _PARAMETERS = "authenticationPlugin", "authenticationParameters"
group = CommandGroup("clusters", "Manage clusters: this one and remote ones.")

ServiceUrl = Annotated[
    str | None, typer.Option("--service-url", metavar="URL", help="The HTTP address, http://host:8080.")
]
BrokerUrl = Annotated[
    str | None, typer.Option("--broker-url", metavar="URL", help="The binary address, pulsar://host:6650.")
]
ServiceUrlTls = Annotated[str | None, typer.Option("--service-url-tls", metavar="URL", help="The HTTPS address.")]
BrokerUrlTls = Annotated[
    str | None, typer.Option("--broker-url-tls", metavar="URL", help="The binary address with TLS, pulsar+ssl://…")
]


AuthPlugin = Annotated[
    str | None,
    typer.Option(
        "--auth-plugin", metavar="NAME", help="The authentication plugin: AuthenticationToken or AuthenticationTls."
    ),
]
AuthParameters = Annotated[
    str | None,
    typer.Option(
        "--auth-parameters",
        metavar="TEXT",
        help="Its parameters without a secret: file:///path, tlsCertFile:…,tlsKeyFile:…, or env:NAME of a variable.",
    ),
]
AuthParametersFile = Annotated[
    Path | None,
    typer.Option("--auth-parameters-file", metavar="FILE", help="A file with its parameters, token:… for example."),
]
TlsEnable = Annotated[
    bool | None, typer.Option("--tls-enable/--tls-disable", help="Use the addresses with TLS or not.")
]
TlsAllowInsecure = Annotated[
    bool | None, typer.Option("--tls-allow-insecure/--tls-verify", help="Accept any certificate, or verify it.")
]
TlsTrustCerts = Annotated[
    str | None,
    typer.Option("--tls-trust-certs-filepath", metavar="FILE", help="Trusted certificate authorities, in PEM."),
]


@group.command("list")
def list_clusters(rest: Rest) -> Names:
    """List all clusters."""
    return Names(rest.get("clusters"))


@group.command("get")
def get(rest: Rest, cluster: Cluster) -> Record:
    """Show the addresses of a cluster."""
    value = rest.get("clusters", cluster)
    fields = {name: item for name, item in value.items() if item not in (None, "", [])}
    if _PARAMETERS in fields:
        fields[_PARAMETERS] = without_secrets(fields[_PARAMETERS], fields.get(_PLUGIN, ""))
    return Record(value, fields=fields)


@group.command("create")
def create(
    rest: Rest,
    cluster: Cluster,
    service_url: ServiceUrl = None,
    broker_url: BrokerUrl = None,
    service_url_tls: ServiceUrlTls = None,
    broker_url_tls: BrokerUrlTls = None,
    auth_plugin: AuthPlugin = None,
    auth_parameters: AuthParameters = None,
    auth_parameters_file: AuthParametersFile = None,
    tls_enable: TlsEnable = None,
    tls_allow_insecure: TlsAllowInsecure = None,
    tls_trust_certs: TlsTrustCerts = None,
) -> Done:
    """Register a remote cluster."""
    addresses = _addresses(service_url, broker_url, service_url_tls, broker_url_tls)
    if not addresses:
        raise typer.BadParameter("give at least --service-url or --broker-url")
    _check_not_itself(rest, cluster, addresses)
    parameters = _parameters(auth_parameters, auth_parameters_file, auth_plugin)
    security = _security(auth_plugin, parameters, tls_enable, tls_allow_insecure, tls_trust_certs)
    rest.put("clusters", cluster, body={**addresses, **security})
    return Done(f"created cluster {cluster}")


@group.command("update")
def update(
    rest: Rest,
    cluster: Cluster,
    service_url: ServiceUrl = None,
    broker_url: BrokerUrl = None,
    service_url_tls: ServiceUrlTls = None,
    broker_url_tls: BrokerUrlTls = None,
    auth_plugin: AuthPlugin = None,
    auth_parameters: AuthParameters = None,
    auth_parameters_file: AuthParametersFile = None,
    tls_enable: TlsEnable = None,
    tls_allow_insecure: TlsAllowInsecure = None,
    tls_trust_certs: TlsTrustCerts = None,
) -> Done:
    """Update a cluster; options that are not given keep their value."""
    addresses = _addresses(service_url, broker_url, service_url_tls, broker_url_tls)
    options = (auth_plugin, auth_parameters, auth_parameters_file, tls_enable, tls_allow_insecure, tls_trust_certs)
    if not addresses and all(option is None for option in options):
        raise typer.BadParameter("give at least one option to change")
    if addresses:
        _check_not_itself(rest, cluster, addresses)
    current: dict[str, Any] = rest.get("clusters", cluster)
    plugin = current.get(_PLUGIN) if auth_plugin is None else auth_plugin
    parameters = _parameters(auth_parameters, auth_parameters_file, plugin)
    security = _security(auth_plugin, parameters, tls_enable, tls_allow_insecure, tls_trust_certs)
    changes = {**addresses, **security}
    rest.post("clusters", cluster, body={**current, **changes})
    return Done(f"updated cluster {cluster}")


@group.command("delete")
def delete(rest: Rest, cluster: Cluster) -> Done:
    """Remove a remote cluster."""
    rest.delete("clusters", cluster)
    return Done(f"deleted cluster {cluster}")


def _check_not_itself(rest: Rest, cluster: str, addresses: dict[str, str]) -> None:
    """Raises if an address is one that the broker is known by, under another name."""
    name = own_name(rest)
    if name in (None, cluster):
        return
    try:
        known = {rest.url, *map(str, rest.get("clusters", str(name)).values())}
    except Refused:
        known = {rest.url}
    for address in addresses.values():
        if address.rstrip("/") in known:
            raise typer.BadParameter(f"{address} is cluster {name} itself: it cannot be replicated to itself")


def _addresses(
    service_url: str | None, broker_url: str | None, service_url_tls: str | None, broker_url_tls: str | None
) -> dict[str, str]:
    given = {
        "serviceUrl": service_url,
        "serviceUrlTls": service_url_tls,
        "brokerServiceUrl": broker_url,
        "brokerServiceUrlTls": broker_url_tls,
    }
    return {name: address for name, address in given.items() if address is not None}


def _parameters(text: str | None, file: Path | None, plugin: str | None) -> str | None:
    """The parameters, which may be a secret if they come from a file or a variable."""
    if text is not None and file is not None:
        raise typer.BadParameter("give either --auth-parameters or --auth-parameters-file")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = "it is not text" if isinstance(error, UnicodeDecodeError) else error.strerror or error
            raise typer.BadParameter(f"--auth-parameters-file {file} cannot be read: {reason}") from error
    if text is None:
        return None
    if text.startswith("env:"):
        name = text.removeprefix("env:")
        if not os.environ.get(name):
            raise typer.BadParameter(f"--auth-parameters env:{name}: there is no such variable, or it is empty")
        return os.environ[name].strip()
    if without_secrets(text, plugin or "") != text:
        raise typer.BadParameter(
            "--auth-parameters would show a secret to every user of this machine: write it into a file and give"
            " --auth-parameters-file, or give env:NAME of a variable, or file:///path of a token that the broker reads"
        )
    return text


def _security(
    plugin: str | None, parameters: str | None, tls: bool | None, insecure: bool | None, trusted: str | None
) -> dict[str, object]:
    given = {
        _PLUGIN: plugin,
        _PARAMETERS: parameters,
        "brokerClientTlsEnabled": tls,
        "tlsAllowInsecureConnection": insecure,
        "brokerClientTrustCertsFilePath": trusted,
    }
    return {name: value for name, value in given.items() if value is not None}

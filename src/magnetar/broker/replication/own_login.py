"""The broker's own login for remote clusters: which of them get it, and at which addresses.

Owns the reading of `replicationTrustedClusters`. The addresses of a cluster's record are those of every role that may
change it; an address in the setting is the operator's. Connects to no cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from magnetar.replication.cluster import urls_of
from magnetar.replication.model import ClusterAddress
from magnetar.settings.addresses import is_loopback

_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651, "http": 8080, "https": 8443}
_ENCRYPTED = ("pulsar+ssl", "https")


class _Url(NamedTuple):
    """The address of one host."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def reason_against(name: str, address: ClusterAddress, trusted: str) -> str:
    """Why a cluster does not get the login; empty if it does. `trusted` is the text of the setting."""
    try:
        bound = _bound_urls(trusted).get(name)
        urls = [url for text in urls_of(address) if text for url in _urls(text)]
    except ValueError:  # a record of another version may have anything
        return f"{name} has an address that cannot be read"
    if bound is None:
        return f"replicationTrustedClusters does not name {name}"
    return next(filter(None, (_reason_against_url(name, url, address, bound) for url in urls)), "")


def _reason_against_url(name: str, url: _Url, address: ClusterAddress, bound: set[_Url]) -> str:
    if bound and url not in bound:
        return f"replicationTrustedClusters does not name {url} for {name}"
    if is_loopback(url.host):
        return ""
    if not bound and url.scheme not in _ENCRYPTED:
        return f"{url} has no TLS, and replicationTrustedClusters names {name} without this address"
    if url.scheme in _ENCRYPTED and address.tls_allow_insecure_connection:
        return f"{name} has tlsAllowInsecureConnection, which accepts the certificate of anyone"
    return ""


def _bound_urls(trusted: str) -> dict[str, set[_Url]]:
    """By cluster, which has none if it is trusted by its name alone."""
    found: dict[str, set[_Url]] = {}
    for entry in trusted.split(","):
        name, _, text = entry.strip().partition("=")
        found.setdefault(name, set()).update(_urls(text) if text else ())
    return found


def _urls(text: str) -> Iterator[_Url]:
    """The addresses of a service URL, which may have several hosts. Raises `ValueError`."""
    scheme, _, hosts = text.partition("://")
    if scheme not in _PORTS:
        raise ValueError(scheme)
    for host in hosts.removesuffix("/").split(","):
        parts = urlsplit(f"//{host}")
        if not parts.hostname:
            raise ValueError(host)
        yield _Url(scheme, parts.hostname, _PORTS[scheme] if parts.port is None else parts.port)

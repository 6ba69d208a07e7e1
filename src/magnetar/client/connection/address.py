"""Service addresses: `pulsar://host:port[,host:port…]` and `http://host:port`, with TLS `pulsar+ssl://` and `https://`.

Owns their syntax; resolves no host.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from magnetar.client.errors import InvalidArgument

BINARY_PORT = 6650
HTTP_PORT = 8080
BINARY_TLS_PORT = 6651
HTTPS_PORT = 8443
_PORT_OF = {"pulsar": BINARY_PORT, "pulsar+ssl": BINARY_TLS_PORT, "http": HTTP_PORT, "https": HTTPS_PORT}
_ENCRYPTED = ("pulsar+ssl", "https")


class Address(msgspec.Struct, frozen=True):
    """One host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ServiceUrl(msgspec.Struct, frozen=True):
    """A scheme and one or more addresses of the same cluster."""

    scheme: str
    addresses: tuple[Address, ...]

    @property
    def is_http(self) -> bool:
        return self.scheme in ("http", "https")

    @property
    def is_tls(self) -> bool:
        return self.scheme in _ENCRYPTED

    def __str__(self) -> str:
        return f"{self.scheme}://{','.join(map(str, self.addresses))}"


def parse_service_url(text: str) -> ServiceUrl:
    """Reads a service URL; raises `InvalidArgument`."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in _PORT_OF:
        schemes = ", ".join(f"{scheme}://" for scheme in _PORT_OF)
        raise InvalidArgument(f"service url {_shown(text)} does not start with one of {schemes}")
    hosts = rest.removesuffix("/").split(",")
    return ServiceUrl(scheme, tuple(_parse_address(host, _PORT_OF[scheme], text) for host in hosts))


def _parse_address(text: str, default_port: int, url: str) -> Address:
    try:
        # urlsplit parses IPv6 hosts; anything but host and port is an error.
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidArgument(f"service url {_shown(url)}: {error}") from None
    if not host or parts.path or parts.query or parts.fragment or parts.username is not None or text.isspace():
        raise InvalidArgument(f"service url {_shown(url)}: {_shown(text)} is not of the form host:port")
    if port == 0:
        raise InvalidArgument(f"service url {_shown(url)}: port 0 cannot be connected to")
    return Address(host, default_port if port is None else port)


def _shown(text: str) -> str:
    """Without a login, which does not belong there."""
    if "@" in text:
        return "(hidden, it has a login in it)"
    return ascii(text if len(text) <= 100 else text[:100] + "...")

"""Which requests are from our own pages: the fence against other sites and DNS rebinding.

A page of any site can make a browser send requests to loopback. So `Host` has to be a name of this console (an IP
address is always one: a browser that has it in `Host` did connect to it), and `Origin` and `Sec-Fetch-Site` have to be
ours; only a link may lead here from elsewhere, and that changes nothing. Pure functions of headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

_AUTHORITY = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[-.\w]+))(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_OWN = ("same-origin", "none")

Headers = list[tuple[bytes, bytes]]


class RequestCheck:
    """`names` are host names of this console besides loopback and IP addresses."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {name.lower().removesuffix(".") for name in names}

    def fault(self, method: str, headers: Headers, *, is_socket: bool = False) -> str:
        """Why a request is refused; empty if it is not."""
        hosts = values_of(headers, b"host")
        host = _parsed(hosts[0]) if len(hosts) == 1 else None
        if host is None:
            return "a request needs one Host of the form host:port"
        if not self._is_own(host[0]):
            return "Host is not a name of this console: use localhost, its IP address, or --trusted-host"
        origins = values_of(headers, b"origin")
        if any(not _is_same(origin, host) for origin in origins):
            return "Origin is another site"
        if (is_socket or method == "POST") and not origins:
            return "Origin is missing"
        if not is_socket and not _is_own_site(method, headers):
            return "the request was made by another site"
        return ""

    def _is_own(self, name: str) -> bool:
        if name == "localhost" or name.endswith(".localhost") or name in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def values_of(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1").strip() for key, value in headers if key == name]


def _is_own_site(method: str, headers: Headers) -> bool:
    site = values_of(headers, b"sec-fetch-site")
    if all(one.lower() in _OWN for one in site):
        return True
    is_link = values_of(headers, b"sec-fetch-mode") == ["navigate"] and values_of(headers, b"sec-fetch-dest") == [
        "document"
    ]
    return method == "GET" and is_link


def _is_same(origin: str, host: tuple[str, int | None]) -> bool:
    """With the default port of the origin's scheme: in front of the console, TLS may have been ended."""
    parts = urlsplit(origin.lower())
    address = _parsed(parts.netloc) if parts.scheme in _DEFAULT_PORTS else None
    if address is None:
        return False
    default = _DEFAULT_PORTS[parts.scheme]
    return (address[0], address[1] or default) == (host[0], host[1] or default)


def _parsed(authority: str) -> tuple[str, int | None] | None:
    found = _AUTHORITY.fullmatch(authority.lower())
    if found is None:
        return None
    return (found["v6"] or found["name"]).removesuffix("."), int(found["port"]) if found["port"] else None

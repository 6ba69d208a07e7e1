"""The guard of the HTTP port: which requests may be from a web page, and are refused before anything handles them.

A page can make a browser send requests to this port, so an address on loopback is no fence. Owns the
names that the broker answers to, and what is read from the head of a request; a pure function of both. Knows
neither the role of a client nor its rights: the guard is on with and without authentication.

Against DNS rebinding (a page of `evil.example`, whose name suddenly means this machine) the `Host` has to be a name
of this broker. An IP address is always one: a browser that has it in `Host` did connect to that address. Ports are
not compared, as they may be mapped. Against requests that a page makes across sites, `Origin` and `Sec-Fetch-Site`
have to be ours, and a body has to be JSON, which a page of another site may only send after a preflight (`OPTIONS`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit

from magnetar.admin.http.errors import BadRequest, BodyTypeRefused, Forbidden, OperationNotAllowed
from magnetar.admin.http.shown import shown_path
from magnetar.settings.settings import Settings

Address: TypeAlias = tuple[str, int | None]
"""Host and port of a header; without a port, None."""

_SHOWN_MAX = 100
_DEFAULT_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(
    r"(?:\[(?P<v6>[0-9a-f:.]+(?:%[-.~\w]+)?)\]|(?P<name>[-.\w]+))(?::(?P<port>[0-9]{0,5}))?", re.ASCII
)
_JSON = re.compile(r"application/(?:json|[-.\w]+\+json)", re.ASCII)  # Java's admin client has one of the second kind
_READING = ("GET", "HEAD")
_ECHOING = ("TRACE", "TRACK")  # a page would see headers in the answer that it may not see
_OWN_SITE = ("same-origin", "none")  # a page of ours; an address that a user typed

_OF_BROWSERS = ("origin", "sec-fetch-site", "sec-fetch-mode", "referer", "cookie", "range", "accept-language")
_BROWSERS = re.compile(r"Mozilla/|Opera/|AppleCoreMedia/|stagefright/", re.IGNORECASE)


class Headers(Protocol):
    """Headers of a request; names in lower case."""

    def get(self, name: str, default: str, /) -> str: ...

    def getlist(self, name: str, /) -> list[str]: ...


class Guard:
    """`own_names` are host names of this machine, for a broker that listens on more than loopback."""

    def __init__(self, settings: Settings, bind: str, own_names: Iterable[str] = ()) -> None:
        names = {bind, settings.advertisedAddress, *own_names}
        for listener in settings.all_listeners():
            names.update(urlsplit(url).hostname or "" for url in listener.urls)
        trusted = {name.strip().lower().removesuffix(".") for name in settings.webServiceTrustedHosts.split(",")}
        self._names = {_plain(name) for name in names | trusted if name and not name.startswith("*.")}
        self._suffixes = tuple(name.removeprefix("*") for name in trusted if name.startswith("*."))

    def check(self, method: str, target: str, headers: Headers, *, is_tls: bool = False) -> None:
        """Raises Forbidden, OperationNotAllowed or BadRequest for a request that no client of this broker sends."""
        host = self._check_host(headers.getlist("host"))
        if method == "OPTIONS":
            raise Forbidden("OPTIONS is refused: pages of other sites may not use this broker")
        if method in _ECHOING:
            raise OperationNotAllowed(f"{method} is refused: no request is sent back")
        if not target.startswith("/"):
            raise BadRequest(f"target {shown_path(target)[:_SHOWN_MAX]!r} is not a path: this is no proxy")
        for site in headers.getlist("sec-fetch-site"):
            if site.strip().lower() not in _OWN_SITE:
                raise Forbidden(f"a request of a web page is refused: Sec-Fetch-Site is {site[:_SHOWN_MAX]!r}")
        for origin in headers.getlist("origin"):
            if host is None or not _is_same(origin, host, is_tls):
                raise Forbidden(f"a request of the web page {origin[:_SHOWN_MAX]!r} is refused: it is not ours")

    def _check_host(self, values: list[str]) -> Address | None:
        """No Host at all is HTTP/1.0, which no browser speaks."""
        if not values:
            return None
        if len(values) > 1:
            raise BadRequest(f"a request has one Host, not {len(values)}")
        host = _parsed(values[0])
        if host is None:
            raise BadRequest(f"Host {values[0][:_SHOWN_MAX]!r} is not of the form host or host:port")
        if not self._is_own(host[0]):
            raise Forbidden(
                f"Host {values[0][:_SHOWN_MAX]!r} is not a name of this broker: use its IP address or localhost,"
                " or add the name to webServiceTrustedHosts"
            )
        return host

    def _is_own(self, name: str) -> bool:
        if name == "localhost" or name in self._names or name.endswith((".localhost", *self._suffixes)):
            return True
        return _is_ip(name)


def check_body(method: str, headers: Headers) -> None:
    """Raises BodyTypeRefused for a body that is not JSON, or may not be: a form can be sent by any page."""
    types = headers.getlist("content-type")
    has_body = headers.get("content-length", "0").strip() != "0" or headers.get("transfer-encoding", "") != ""
    if not has_body and (method in _READING or not types):
        return
    for one in types or [""]:
        if not _JSON.fullmatch(one.partition(";")[0].strip().lower()):
            kind = f"a body of type {one[:_SHOWN_MAX]!r}" if one else "a body without a type"
            raise BodyTypeRefused(f"{kind} is refused: add -H 'Content-Type: application/json'")


def may_be_browser(headers: Mapping[str, str]) -> bool:
    """Whether a web page may have made this GET, with an image for example.

    A browser tells nothing of the page to an address that is not encrypted, except to loopback; so everything counts
    that browsers and their media players send and that clients of Pulsar do not.
    """
    return any(name in headers for name in _OF_BROWSERS) or _BROWSERS.search(headers.get("user-agent", "")) is not None


def _is_same(origin: str, host: Address, is_tls: bool) -> bool:
    """A page without TLS is another one than ours with TLS; in front of a port without TLS, it may have been ended."""
    scheme, separator, rest = origin.strip().lower().partition("://")
    if is_tls and scheme != "https":
        return False
    default = _DEFAULT_PORTS.get(scheme)
    address = _parsed(rest) if separator else None
    if address is None or default is None:
        return False
    return (address[0], address[1] or default) == (host[0], host[1] or default)


def _parsed(authority: str) -> Address | None:
    found = _AUTHORITY.fullmatch(authority.strip().lower())
    if found is None or int(found["port"] or 0) > 65535:
        return None
    name = _plain(found["v6"] or found["name"])
    if not name or (found["v6"] and not _is_ip(name)):
        return None
    return name, int(found["port"]) if found["port"] else None


def _plain(name: str) -> str:
    """One spelling of a name: lower case, without the dot of the root; of an IPv6 address, without its zone."""
    name = name.lower().removesuffix(".").partition("%")[0]
    if ":" not in name:
        return name
    try:
        return IPv6Address(name).compressed
    except ValueError:
        return name


def _is_ip(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

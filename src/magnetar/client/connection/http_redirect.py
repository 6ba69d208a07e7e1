"""Redirects of HTTP to addresses that were not given: which of them are followed.

Apache Pulsar redirects a request about a topic to the broker that owns it, with the same path and query. No cluster
decides more than that: it could have any request sent to an address that only this machine reaches, such as the
broker's own port. Knows neither credentials nor the HTTP library.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import parse_qsl, unquote, urlsplit

_CHANGING = "authoritative"  # set by Pulsar for the broker that it chose


def why_not(asked: str, target: str) -> str:
    """Why a request is not sent to `target`; empty if it is. `asked` is what was to be requested at first."""
    if _request_of(asked) != _request_of(target):
        return "with another path or query"
    here, there = (leads_to_this_machine(urlsplit(url).hostname or "") for url in (target, asked))
    return "but one of this machine" if here and not there else ""


def leads_to_this_machine(host: str) -> bool:
    """Whether a connection to the host is one to this machine, by its names and the many spellings of an address.

    May ask a server of names.
    """
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, ValueError):  # the connection fails too
        return False
    return any(_is_loopback(ip_address(str(one[4][0]).partition("%")[0])) for one in found)


def _is_loopback(address: IPv4Address | IPv6Address) -> bool:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback or address.is_unspecified


def _request_of(url: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Path and query. Segments are compared decoded, because servers encode them differently; `..` is kept apart."""
    parts = urlsplit(url)
    path = [segment if segment in (".", "..") else f"={unquote(segment)}" for segment in parts.path.split("/")]
    query = parse_qsl(parts.query, keep_blank_values=True)
    return path, [(name, value) for name, value in query if name != _CHANGING]

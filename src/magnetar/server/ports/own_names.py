"""The names by which clients reach this machine: of the HTTP guard, and of a certificate that is made for it."""

from __future__ import annotations

import socket

from magnetar.settings.addresses import is_loopback
from magnetar.settings.listeners import parse_listeners
from magnetar.settings.settings import Settings

_EVERY_ADDRESS = ("0.0.0.0", "::")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def own_names(bind: str) -> tuple[str, ...]:
    """The name of this machine, by which others reach it; on loopback there are no others."""
    if is_loopback(bind):
        return ()
    name = socket.gethostname()
    return name, name.partition(".")[0]


def certificate_names(settings: Settings) -> frozenset[str]:
    """Every name and address that clients may use: those of loopback, of this machine, and the advertised ones."""
    bind = settings.bindAddress
    names = {*_LOOPBACK, bind, settings.advertisedAddress, *own_names(bind), *_trusted(settings)}
    for listener in parse_listeners(settings.advertisedListeners).values():
        names.update(_host(url) for url in listener.urls)
    if bind in _EVERY_ADDRESS:
        names.update(_addresses(socket.gethostname()))
    return frozenset(name.strip("[]").rstrip(".").lower() for name in names if name and name not in _EVERY_ADDRESS)


def _trusted(settings: Settings) -> list[str]:
    return [name.strip() for name in settings.webServiceTrustedHosts.split(",")]


def _host(url: str) -> str:
    return url.partition("://")[2].rpartition(":")[0]


def _addresses(host: str) -> set[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {str(address[0]).partition("%")[0] for *_, address in found}

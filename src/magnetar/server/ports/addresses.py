"""The four ports of a broker, and the addresses by which clients reach them. Opens none of them."""

from __future__ import annotations

from typing import NamedTuple

from magnetar.errors import InvalidSetting
from magnetar.settings.listeners import Listener
from magnetar.settings.settings import Settings


class Ports(NamedTuple):
    """`None` is a port that is off, 0 a free one that is yet to be chosen."""

    binary: int | None
    http: int | None
    binary_tls: int | None = None
    http_tls: int | None = None

    @staticmethod
    def of(settings: Settings) -> Ports:
        return Ports(
            settings.brokerServicePort,
            settings.webServicePort,
            settings.brokerServicePortTls,
            settings.webServicePortTls,
        )

    @property
    def have_tls(self) -> bool:
        return self.binary_tls is not None or self.http_tls is not None

    def check(self) -> None:
        """Raises InvalidSetting without a port of each kind."""
        if self.binary is None and self.binary_tls is None:
            raise InvalidSetting("brokerServicePort and brokerServicePortTls are both empty: clients could not connect")
        if self.http is None and self.http_tls is None:
            raise InvalidSetting("webServicePort and webServicePortTls are both empty: a broker is run by HTTP")


class Addresses:
    """`ports` are the real numbers, once the ports are open."""

    def __init__(self, settings: Settings, ports: Ports) -> None:
        self._settings = settings
        self.ports = ports

    def of(self, host: str, listener: str = "") -> Listener:
        """For a client that reached `host` and names this listener, or none; raises NotAllowed if it is unknown."""
        return self._settings.listener(listener).or_else(self.direct(host))

    def direct(self, host: str) -> Listener:
        """The addresses of our ports, without advertised listeners."""
        return direct(self.ports, self._settings.advertisedAddress or host)


def direct(ports: Ports, host: str) -> Listener:
    def url(scheme: str, port: int | None) -> str:
        return "" if port is None else f"{scheme}://{url_host(host)}:{port}"

    return Listener(
        url("pulsar", ports.binary),
        url("http", ports.http),
        url("pulsar+ssl", ports.binary_tls),
        url("https", ports.http_tls),
    )


def host_here(bind: str) -> str:
    """By which a client on this machine reaches a port that is bound to this address."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)


def url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host

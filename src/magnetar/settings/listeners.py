"""Advertised listeners: named addresses of the broker, one set for each network that clients come from.

Owns the format of `advertisedListeners`, which is Pulsar's. Knows no sockets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from magnetar.errors import NotAllowed

LISTENERS_MAX = 32
SYNTHETIC = "internal"  # Pulsar's name of the listener that is made of the ports

_ENTRY = re.compile(
    r"(?P<name>[-\w]{1,100}):(?P<url>(?P<scheme>pulsar(?:\+ssl)?|https?)://(?:\[[0-9a-fA-F:.%]+\]|[-.\w]+):(?P<port>[0-9]{1,5}))/?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Listener:
    """Addresses that a lookup returns, with and without TLS; an empty one is not there."""

    service_url: str = ""
    http_url: str = ""
    service_url_tls: str = ""
    http_url_tls: str = ""

    def or_else(self, direct: Listener) -> Listener:
        """A kind of address that is not named at all is that of `direct`, which is made of the ports."""
        binary = self if self.service_url or self.service_url_tls else direct
        web = self if self.http_url or self.http_url_tls else direct
        return Listener(binary.service_url, web.http_url, binary.service_url_tls, web.http_url_tls)

    @property
    def urls(self) -> tuple[str, ...]:
        """Those that are there."""
        return tuple(filter(None, (self.service_url, self.http_url, self.service_url_tls, self.http_url_tls)))

    @property
    def any_service_url(self) -> str:
        """Without TLS if there is one."""
        return self.service_url or self.service_url_tls

    @property
    def any_http_url(self) -> str:
        return self.http_url or self.http_url_tls


_FIELDS = {"pulsar": "service_url", "http": "http_url", "pulsar+ssl": "service_url_tls", "https": "http_url_tls"}


@lru_cache(maxsize=64)
def parse_listeners(text: str) -> dict[str, Listener]:
    """By name, in the order of the text; raises ValueError."""
    listeners: dict[str, Listener] = {}
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        found = _ENTRY.fullmatch(entry)
        if found is None or not 0 < int(found["port"]) < 65536:
            raise ValueError(
                f"{entry} is not of the form name:scheme://host:port with a scheme of {', '.join(_FIELDS)}"
            )
        known = listeners.get(found["name"], Listener())
        field = _FIELDS[found["scheme"]]
        if getattr(known, field):
            raise ValueError(f"listener {found['name']} has two addresses of scheme {found['scheme']}")
        listeners[found["name"]] = replace(known, **{field: found["url"]})
    if len(listeners) > LISTENERS_MAX:
        raise ValueError(f"{len(listeners)} listeners, the limit is {LISTENERS_MAX}")
    return listeners


def find_listener(text: str, internal: str, name: str) -> Listener:
    """The listener that a client names; without a name the internal one, which is the first unless it is named.

    Raises NotAllowed for a name that is not advertised.
    """
    listeners = parse_listeners(text)
    own = internal or next(iter(listeners), SYNTHETIC)
    wanted = name or own
    if wanted not in listeners and wanted not in (own, SYNTHETIC):
        known = ", ".join(dict.fromkeys([*listeners, own]))
        raise NotAllowed(f"advertisedListeners has no listener {wanted[:100]!r}, only {known}")
    return listeners.get(wanted, Listener())

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
    r"(?P<name>[-\w]{1,100}):(?P<url>(?P<scheme>pulsar|http)://(?:\[[0-9a-fA-F:.%]+\]|[-.\w]+):(?P<port>[0-9]{1,5}))/?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Listener:
    """Addresses that a lookup returns; an empty one is made of `advertisedAddress` and the port."""

    service_url: str = ""
    http_url: str = ""


@lru_cache(maxsize=64)
def parse_listeners(text: str) -> dict[str, Listener]:
    """By name, in the order of the text; raises ValueError."""
    listeners: dict[str, Listener] = {}
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        found = _ENTRY.fullmatch(entry)
        if found is None or not 0 < int(found["port"]) < 65536:
            raise ValueError(f"{entry} is not of the form name:pulsar://host:port or name:http://host:port")
        known = listeners.get(found["name"], Listener())
        field = "service_url" if found["scheme"] == "pulsar" else "http_url"
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

"""Generates docs/settings.md: `python -m tools.settings_reference > docs/settings.md`.

Owns the layout and the headings; names, defaults, limits and sentences come from `magnetar.settings.settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from magnetar.settings.settings import KINDS, Settings

# Each heading precedes the setting that it is listed with; the order is that of the settings.
HEADINGS = {
    "clusterName": "Addresses",
    "logLevel": "Log",
    "enablePersistentTopics": "Topics",
    "forceDeleteNamespaceAllowed": "Administration",
    "maxProducersPerTopic": "Producers and consumers",
    "brokerDeduplicationEnabled": "Deduplication",
    "defaultRetentionTimeInMinutes": "Retention and expiry",
    "backlogQuotaCheckEnabled": "Backlog quota",
    "schemaCompatibilityStrategy": "Schemas",
    "allowAutoSubscriptionCreation": "Subscriptions",
    "delayedDeliveryEnabled": "Dispatch",
    "createTopicToRemoteClusterForReplication": "Geo-replication",
    "authenticationEnabled": "Authentication",
    "authorizationEnabled": "Authorization",
    "webServiceTrustedHosts": "Access",
    "brokerServicePortTls": "TLS",
    "maxMessageSize": "Connections",
    "maxPublishRatePerTopicInMessages": "Rate limits",
    "diskCheckInterval": "Disk",
}

_INTRODUCTION = """\
# Settings

The broker reads these settings, under Apache Pulsar's names, from `--set key=value` and from a Pulsar `broker.conf` or
`standalone.conf` given as `--config`, and from environment variables. Flags such as `--port` take precedence over
`--set`, `--set` over the environment, and the environment over `--config`. An empty value means the default, and turns
off a port. An invalid value is an error, and so is an unknown key in `--set`; unknown keys of a file and unknown
variables are reported in a warning, except for those of [protection](#protection).

This page is generated from the code by `make docs`.

## Environment

| variable | example |
|---|---|
| `MAGNETAR_` and the words of the setting in capitals | `MAGNETAR_CLUSTER_NAME=here` |
| `PULSAR_PREFIX_` and the setting, as in Apache Pulsar's images | `PULSAR_PREFIX_clusterName=here` |
| the setting itself, as in Apache Pulsar's images | `clusterName=here` |

The first of them takes precedence over the second, and the second over the third. In Pulsar's images the third form
works for settings that the image's file has, here for all settings.

## Protection

A setting of Apache Pulsar that asks for protection which this broker does not have ends the start with a sentence and
code 2, before a port is open or the data folder is touched. Values of Pulsar's own files ask for nothing, and neither
do empty values and `false`. An unknown name that looks like protection, such as `authenticationEnbled`, ends it too. A
later source counts: `--set encryptionRequireOnProducer=false` starts with a file that has `true`.

Without authentication the broker serves only its own machine. A `bindAddress` that others reach needs
`authenticationEnabled=true`, or `--without-authentication` (`withoutAuthentication=true`); without either the start
ends, and the `0.0.0.0` that Pulsar's own files have is ignored with a warning. An
`anonymousUserRole` that may do everything counts as no authentication.

Every user of a machine sees the arguments of every process, so `--set` takes no secret, only where it is kept: `file:`
or a path. The data folder is for the broker's user only, and a file
with a secret that every user can read ends the start, and so does a file of `--config` that every
user can write; root's, on a mount of its own, as in containers, is taken.

## Networks

Clients connect to the address that a lookup returns. Without any setting that is the address that they connected to;
`advertisedAddress` replaces its host. `advertisedListeners` names whole addresses, as in Apache Pulsar. A container
whose ports are mapped needs one:

```
docker run -p 7650:6650 -p 7080:8080 -e MAGNETAR_BIND_ADDRESS=0.0.0.0 -e MAGNETAR_WITHOUT_AUTHENTICATION=true \\
  -e PULSAR_PREFIX_advertisedListeners=outside:pulsar://localhost:7650,outside:http://localhost:7080 …
```

Clients of several networks name their listener: `listener_name` in Python, `listenerName` in Java and `ListenerName` in
Go, the header `X-Pulsar-ListenerName` or the parameter `listenerName` in an HTTP lookup. A name that is not in the list
is refused. Clients that name none get the internal listener (`internalListenerName`, or else the first of the list); a
name that is not in the list stands for `advertisedAddress` and the ports. Clients on the broker's own machine that name
none, such as its pipelines process, get the address that they connected to.

A listener has up to four addresses: `pulsar`, `pulsar+ssl`, `http` and `https`. A lookup returns those with and without
TLS, and the client takes the one for the way that it came. If a listener names one binary address, there is no other
one for its clients; if it names none, those of the ports are used. The same applies to HTTP.

## Web pages

A browser sends requests to any address for any page that asks it to, to this machine's own too. So the HTTP port
refuses, always and before anything else:

| request | answer |
|---|---|
| a `Host` that is not a name of the broker | 403 |
| a `Host` that cannot be parsed, or several; a target that is not a path | 400 |
| `Origin` that is not the address of the request itself; `Sec-Fetch-Site` other than `same-origin` and `none` | 403 |
| `OPTIONS`: there is no CORS | 403 |
| a body, or an empty form, that is not JSON: with curl add `-H 'Content-Type: application/json'` | 415 |
| a `GET` that changes something, if it may be a browser's | 403 |

Names of the broker are every IP address, `localhost` and all names below it, `bindAddress`, `advertisedAddress`, the
hosts of `advertisedListeners` and `webServiceTrustedHosts`, and, if it listens on more than loopback, the name of the
machine. Ports are not compared, since they may be mapped. HTTP/1.0 without a `Host` is served: no browser sends that.
Two `GET`s change something, as in Apache Pulsar: `…/partitions?checkAllowAutoCreation=true`, which clients with an
`http://` address send, and `brokers/backlog-quota-check`.

A container or a reverse proxy that is reached by a name needs it in `webServiceTrustedHosts`, unless it is advertised.
Refused requests are logged (`web_request_refused`) and counted.
"""


def render() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    defaults = Settings()
    yield _INTRODUCTION.rstrip()
    for name, kind in KINDS.items():
        if name in HEADINGS:
            yield from (
                "",
                f"## {HEADINGS[name]}",
                "",
                "| setting | default | allowed | meaning |",
                "|---|---|---|---|",
            )
        default = kind.show(getattr(defaults, name))
        yield f"| `{name}` | {f'`{default}`' if default else 'empty'} | {kind.allowed} | {kind.meaning} |"


if __name__ == "__main__":
    sys.stdout.write(render())

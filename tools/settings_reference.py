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
    "maxMessageSize": "Connections",
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
}

_INTRODUCTION = """\
# Settings

The broker reads these settings, under Apache Pulsar's names, from `--set key=value` and from a Pulsar `broker.conf` or
`standalone.conf` given as `--config`. Flags such as `--port` take precedence over `--set`, and `--set` over `--config`.
An empty value means the default. An invalid value is an error, and so is an unknown key in `--set`; unknown keys of a
file are reported in a warning.

This page is generated from the code by `make docs`.
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

"""Apache Pulsar with ledgers of a few entries, so that every range of a test spans several ledgers.

Owns its start and the admin calls of the tests. Knows nothing of Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from contestant import ApachePulsar, Running

ENTRIES_PER_LEDGER = 50
KEEPS = "public/default"
ONCE = "public/once"
"""A namespace with deduplication."""
FORGETS = "public/short"
"""A namespace without retention."""

_SETTINGS = {
    "managedLedgerMaxEntriesPerLedger": ENTRIES_PER_LEDGER,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "brokerDeleteInactiveTopicsEnabled": "false",
    # Producer snapshots are frequent, and there is always an entry after the last one.
    "brokerDeduplicationEntriesInterval": 30,
}
_MEMORY = {"-Xms2g": "-Xms512m", "-Xmx2g": "-Xmx1g", "-XX:MaxDirectMemorySize=4g": "-XX:MaxDirectMemorySize=1g"}


class SmallLedgers(ApachePulsar):
    def command(self, ports: Sequence[int]) -> list[str]:
        command = super().command(ports)
        with (self.folder / "standalone.conf").open("a") as file:
            file.writelines(f"{key}={value}\n" for key, value in _SETTINGS.items())
        return [_MEMORY.get(word, word) for word in command if word != "-XX:+AlwaysPreTouch"]


@dataclass(frozen=True)
class Pulsar:
    """A running broker."""

    service_url: str
    http_url: str

    def ask(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        answer = httpx.request(method, f"{self.http_url}/admin/v2/{path}", timeout=30, **arguments)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    def topic(self, method: str, topic: str, what: str = "", **arguments: Any) -> httpx.Response:
        return self.ask(method, f"{topic.replace('://', '/')}{what}", **arguments)

    def create(self, topic: str, partitions: int) -> list[str]:
        self.topic("PUT", topic, "/partitions", json=partitions)
        return [f"{topic}-partition-{index}" for index in range(partitions)]

    def ledgers(self, topic: str) -> list[int]:
        return [ledger["ledgerId"] for ledger in self.topic("GET", topic, "/internalStats").json()["ledgers"]]

    def backlog(self, topic: str, subscription: str) -> int:
        stats = self.topic("GET", topic, "/stats", params={"getPreciseBacklog": "true"}).json()
        return int(stats["subscriptions"][subscription]["msgBacklog"])

    def subscriptions(self, topic: str) -> list[str]:
        return list(self.topic("GET", topic, "/subscriptions").json())


def prepared(running: Running) -> Pulsar:
    """The broker with the tests' namespaces."""
    pulsar = Pulsar(running.service_url, running.http_url)
    for namespace in (ONCE, FORGETS):
        pulsar.ask("PUT", f"namespaces/{namespace}", json={})
    pulsar.ask("POST", f"namespaces/{ONCE}/deduplication", json=True)
    nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    pulsar.ask("POST", f"namespaces/{FORGETS}/retention", json=nothing)
    return pulsar

"""Replication metrics for Prometheus: Apache Pulsar's, and our own for the state.

One line per topic and remote cluster; if topics are not exposed, the sums per namespace and remote cluster. Topics
without replication cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from magnetar.admin.stats.replication import ReplicatorStats, replication_of
from magnetar.broker.broker import Broker
from magnetar.broker.topic.topic import Topic


@dataclass(frozen=True, slots=True)
class ReplicationFamily:
    name: str
    read: Callable[[ReplicatorStats], float]


def _is_outbound(stats: ReplicatorStats) -> bool:
    return isinstance(stats.state, str)


FAMILIES = (
    ReplicationFamily("pulsar_replication_rate_in", lambda one: one.msg_rate_in),
    ReplicationFamily("pulsar_replication_rate_out", lambda one: one.msg_rate_out),
    ReplicationFamily("pulsar_replication_throughput_in", lambda one: one.msg_throughput_in),
    ReplicationFamily("pulsar_replication_throughput_out", lambda one: one.msg_throughput_out),
    ReplicationFamily("pulsar_replication_backlog", lambda one: one.replication_backlog),
    ReplicationFamily("pulsar_replication_connected_count", lambda one: int(_is_outbound(one) and one.connected)),
    ReplicationFamily(
        "pulsar_replication_disconnected_count", lambda one: int(_is_outbound(one) and not one.connected)
    ),
    ReplicationFamily("pulsar_replication_rate_expired", lambda one: one.msg_rate_expired),
    ReplicationFamily("pulsar_replication_delay_in_seconds", lambda one: one.replication_delay_in_seconds),
)
STATE = "magnetar_replication_state"
"""1, with the state as a label; for a namespace, the number of topics in that state."""

NAMES = (*(family.name for family in FAMILIES), STATE)


class Lines:
    """The lines of all topics added to it; `texts` are the families with their headings. Holds text only."""

    def __init__(self, label: Callable[[str, str], str], *, by_topic: bool) -> None:
        self._label = label
        self._by_topic = by_topic
        self._lines: dict[str, list[str]] = {name: [] for name in NAMES}
        self._sums: dict[tuple[str, str], float] = {}

    def add(self, topic: Topic, labels: str, namespace_labels: str) -> None:
        """`labels` are common to all lines of the topic."""
        for remote, stats in replication_of(topic).items():
            of_remote = self._label("remote_cluster", remote)
            if self._by_topic:
                own = f"{labels},{of_remote}"
                for family in FAMILIES:
                    self._lines[family.name].append(f"{family.name}{{{own}}} {family.read(stats)}\n")
                if isinstance(stats.state, str):
                    self._lines[STATE].append(f'{STATE}{{{own},state="{stats.state.value}"}} 1\n')
                continue
            own = f"{namespace_labels},{of_remote}"
            for family in FAMILIES:
                self._sum(family.name, own, family.read(stats))
            if isinstance(stats.state, str):
                self._sum(STATE, f'{own},state="{stats.state.value}"', 1)

    def _sum(self, name: str, labels: str, value: float) -> None:
        self._sums[name, labels] = self._sums.get((name, labels), 0) + value

    def texts(self) -> Iterator[str]:
        for (name, labels), value in self._sums.items():
            self._lines[name].append(f"{name}{{{labels}}} {value}\n")
        for name, lines in self._lines.items():
            if lines:
                yield f"# TYPE {name} gauge\n" + "".join(lines)


def is_replicated(broker: Broker, topic: Topic) -> bool:
    return bool(topic.inbound) or bool(broker.replication.rows_of(topic.name))

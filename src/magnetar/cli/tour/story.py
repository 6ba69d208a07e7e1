"""The story of the tour: what happens, in which order, and what has to hold at its end.

Every command that is shown is run as it stands. Owns the acts and their checks; processes are the stage's.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from magnetar.cli.rest import RestError
from magnetar.cli.tour import shop
from magnetar.cli.tour.screen import Screen
from magnetar.cli.tour.stage import Cluster, TourFailed, TourStage, asking, wait_for
from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX

LETTERS = f"{shop.ORDERS}-{shop.BILLING}{DEAD_LETTER_SUFFIX}"
NAMESPACE = "public/default"
REPAIR = "payload.amount = double(replace(payload.amount, ' EUR', ''))"

_RETRIES = 2
_CREW = 2
_LIMIT_S = 180.0


class TourCheck(NamedTuple):
    what: str
    holds: bool
    figure: str


class Story:
    """`run` returns what was checked; raises `TourFailed` where the story cannot go on. `clusters` are there then."""

    def __init__(self, stage: TourStage, screen: Screen, orders: int) -> None:
        self._stage = stage
        self._screen = screen
        self._orders = orders
        self._broken = sum(map(shop.is_broken, range(orders)))
        self._poisoned = int(orders > shop.POISONED)
        self._checks: list[TourCheck] = []
        self.clusters: list[Cluster] = []

    def run(self) -> list[TourCheck]:
        began_s = time.monotonic()
        east, west = self._clusters()
        publishing = threading.Thread(target=shop.publish, args=(east.service_url, self._orders), daemon=True)
        crew = self._stage.crew(_CREW, shop.__name__, east.service_url)
        publishing.start()
        self._failures(east)
        publishing.join()
        self._dead_letters(east)
        self._check(
            "processes that the poisoned order ended were started again", crew.restarts > 0, f"{crew.restarts} times"
        )
        self._replication(east, west)
        self._redrive(east)
        self._check("the tour took", True, f"{time.monotonic() - began_s:.0f} s")
        return self._checks

    def _check(self, what: str, holds: bool, figure: str) -> None:
        self._checks.append(TourCheck(what, holds, figure))

    # -- act 1

    def _clusters(self) -> tuple[Cluster, Cluster]:
        self._screen.act(
            "Two clusters",
            "Two brokers start on this machine. East replicates to west, but may not create topics there.",
        )
        began_s = time.monotonic()
        east = self._stage.broker("east", createTopicToRemoteClusterForReplication="false")
        self._check("a broker serves after", True, f"{time.monotonic() - began_s:.1f} s")
        west = self._stage.broker("west", allowAutoTopicCreation="false")
        self.clusters = [east, west]
        for cluster in self.clusters:
            self._screen.line(f"{cluster.name}  {cluster.service_url}  {cluster.http_url}")
        self._do(east, f"clusters create west --service-url {west.http_url} --broker-url {west.service_url}")
        self._do(east, "tenants update public --allowed-clusters east,west")
        self._do(east, f"subscriptions create {shop.ORDERS} {shop.BILLING}")
        self._do(east, f"namespaces set-dead-letter-policy {NAMESPACE} --max-redeliver-count {_RETRIES}")
        self._do(east, f"subscriptions set-redelivery-backoff {shop.ORDERS} {shop.BILLING} --delays 200ms,1s")
        self._do(east, f"namespaces set-clusters {NAMESPACE} --clusters east,west")
        return east, west

    # -- act 2

    def _failures(self, east: Cluster) -> None:
        self._screen.act(
            "A shop in trouble",
            f"{self._orders} orders arrive. Billing cannot read the amount of every tenth, and order {shop.POISONED}"
            " ends every process that receives it. Failed orders come back after 200 ms and 1 s, and are dead letters"
            " after that; the poisoned one is found, delivered alone, and set aside.",
        )
        expected = self._broken + self._poisoned

        def is_over() -> bool:
            letters, backlog = self._letters(east), self._backlog(east)
            self._screen.progress(f"{letters} of {expected} dead letters, {backlog} orders left to bill")
            return letters == expected and backlog == 0

        wait_for("orders are billed or set aside", is_over, _LIMIT_S, self._screen.tick)
        self._screen.progress("")

    def _letters(self, cluster: Cluster) -> int:
        return self._number(cluster, ("persistent", *NAMESPACE.split("/"), LETTERS, "stats"), "msgInCounter")

    def _backlog(self, cluster: Cluster) -> int:
        path = ("persistent", *NAMESPACE.split("/"), shop.ORDERS, "stats")
        return self._number(cluster, path, "subscriptions", shop.BILLING, "msgBacklog") or (
            self._number(cluster, path, "msgInCounter") < self._orders
        )

    def _number(self, cluster: Cluster, path: Sequence[str], *names: str) -> int:
        """0 for what does not exist yet."""
        with suppress(RestError, KeyError), asking(cluster) as rest:
            found = rest.get(*path)
            for name in names:
                found = found[name]
            return int(found)
        return 0

    # -- act 3

    def _dead_letters(self, east: Cluster) -> None:
        self._screen.act("Dead letters", "Each says where it failed, why, and how often.")
        self._do(east, "deadletters")
        self._do(east, f"deadletters stats {shop.ORDERS} --subscription {shop.BILLING}")
        self._do(east, f"deadletters list {shop.ORDERS} --subscription {shop.BILLING} --limit 3")
        letters, invoices = self._letters(east), shop.invoiced(east.service_url)
        good = self._orders - self._broken - self._poisoned
        self._check(
            "dead letters, one for each order that failed", letters == self._broken + self._poisoned, f"{letters}"
        )
        self._check(
            "the other orders are billed, each once",
            len(invoices) == len(set(invoices)) == good,
            f"{len(invoices)} invoices",
        )

    # -- act 4

    def _replication(self, east: Cluster, west: Cluster) -> None:
        self._screen.act(
            "Replication that is stuck",
            "Nothing has arrived in west. The doctor says why, and its command repairs it.",
        )
        wait_for("the pipelines process reports", lambda: self._state(east) != "", _LIMIT_S, self._screen.tick)
        wait_for(
            "replication waits for its topic",
            lambda: self._state(east) == "waiting-for-remote-topic",
            _LIMIT_S,
            self._screen.tick,
        )
        self._do(east, "replication status")
        self._do(east, f"doctor replication {shop.ORDERS}", codes=(0, 1))
        self._screen.line("What it prints as the repair:")
        self._do(east, self._repair(east))
        wait_for(
            "west has all orders",
            lambda: self._replicated(west) >= self._orders,
            _LIMIT_S,
            lambda: self._screen.progress(f"{self._replicated(west)} of {self._orders} orders in west"),
        )
        self._screen.progress("")
        self._do(east, "replication status")
        copied = self._replicated(west)
        self._check("orders in west after the repair, each once", copied == self._orders, f"{copied}")

    def _state(self, east: Cluster) -> str:
        with suppress(RestError, KeyError), asking(east) as rest:
            stats = rest.get("persistent", *NAMESPACE.split("/"), shop.ORDERS, "stats")
            return str(stats["replication"]["west"].get("state", ""))
        return ""

    def _replicated(self, west: Cluster) -> int:
        return self._number(west, ("persistent", *NAMESPACE.split("/"), shop.ORDERS, "stats"), "msgInCounter")

    def _repair(self, east: Cluster) -> str:
        """The first command of the doctor, without our name."""
        found = self._stage.run(east, f"doctor replication {shop.ORDERS} --json")
        for cause in _causes(json.loads(found.out)):
            repair = str(cause.get("repair", ""))
            if repair.startswith("magnetar "):
                return repair.removeprefix("magnetar ")
        raise TourFailed(f"the doctor names no repair: {found.out[:500]}")

    # -- act 5

    def _redrive(self, east: Cluster) -> None:
        self._screen.act(
            "A redrive with a fix",
            "Amounts become numbers on the way back to the subscription that failed. First, nothing is sent.",
        )
        where = "reason = 'MaxRedeliveries'"
        start = f'redrive start --from {LETTERS} --where "{where}" --set "{REPAIR}"'
        self._do(east, f"{start} --dry-run")
        self._do(east, start)
        billed = self._orders - self._poisoned

        def is_over() -> bool:
            invoices = len(set(shop.invoiced(east.service_url)))
            self._screen.progress(f"{invoices} of {billed} orders are billed")
            return invoices >= billed

        wait_for("repaired orders are billed", is_over, _LIMIT_S, self._screen.tick)
        self._screen.progress("")
        self._do(east, "deadletters")
        invoices = shop.invoiced(east.service_url)
        self._check(
            "after the redrive every order but the poisoned one is billed, each once",
            len(invoices) == len(set(invoices)) == billed,
            f"{len(invoices)} invoices",
        )

    # -- commands

    def _do(self, cluster: Cluster, words: str, codes: Sequence[int] = (0,)) -> None:
        self._screen.command(words)
        outcome = self._stage.run(cluster, words)
        self._screen.output(outcome.out)
        if outcome.code not in codes:
            raise TourFailed(f"magnetar {words}: exit code {outcome.code}: {outcome.error.strip()[-500:]}")


def _causes(found: object) -> list[dict[str, object]]:
    """Every object with a repair, in order."""
    if isinstance(found, dict):
        own = [found] if "repair" in found else []
        return own + [cause for value in found.values() for cause in _causes(value)]
    if isinstance(found, list):
        return [cause for value in found for cause in _causes(value)]
    return []

"""`magnetar tour`: the options, and the end."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.errors import InvalidSetting

if TYPE_CHECKING:
    from magnetar.cli.tour.screen import Screen
    from magnetar.cli.tour.stage import Cluster

_ORDERS = 400
_ORDERS_MIN, _ORDERS_MAX = 150, 5000

Orders = Annotated[
    int, typer.Option("--orders", metavar="N", help="The number of orders.", min=_ORDERS_MIN, max=_ORDERS_MAX)
]
Keep = Annotated[
    str | None,
    typer.Option("--keep", metavar="DIR", help="Keep data and logs in this folder.", show_default="they are deleted"),
]


Stay = Annotated[bool, typer.Option("--stay", help="Leave the clusters running at the end, until Ctrl-C.")]


def tour(orders: Orders = _ORDERS, keep: Keep = None, stay: Stay = False) -> int:
    """Watch two clusters, failing consumers, dead letters, stuck replication and a redrive.

    Starts brokers of its own on free ports, and ends by itself after a minute
    or two; exit code 1 if something did not hold. Needs the extra spark.
    """
    if importlib.util.find_spec("pyspark") is None:
        raise InvalidSetting("the tour needs Spark: pip install 'magnetar[spark]'")
    from magnetar.cli.tour.screen import Screen
    from magnetar.cli.tour.stage import TourFailed, TourStage
    from magnetar.cli.tour.story import Story

    home = _home(keep)
    screen = Screen()
    try:
        with TourStage(home) as stage:
            story = Story(stage, screen, orders)
            checks = story.run()
            screen.summary(checks)
            if stay:
                _wait(screen, story.clusters)
    except TourFailed:
        screen.line(f"logs are in {home}")
        raise
    finally:
        screen.progress("")
    if keep is None:
        shutil.rmtree(home, ignore_errors=True)
    else:
        screen.line(f"data and logs are in {home}")
    return 0 if all(check.holds for check in checks) else 1


def _wait(screen: Screen, clusters: list[Cluster]) -> None:
    screen.line("")
    for cluster in clusters:
        screen.line(f"{cluster.name} stays: magnetar deadletters --url {cluster.http_url}")
    screen.line("Ctrl-C ends it")
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


def _home(keep: str | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="magnetar-tour-"))
    home = Path(keep).resolve()
    if home.exists() and any(home.iterdir()):
        raise InvalidSetting(f"--keep {keep} is not empty")
    home.mkdir(parents=True, exist_ok=True)
    return home

"""`magnetar top`: the options, and which kind of output they mean."""

from __future__ import annotations

import json as json_module
import sys
from typing import Annotated

import typer

from magnetar.cli.argument import parse_duration
from magnetar.cli.command import Json, rest_of
from magnetar.cli.login.login import Login
from magnetar.cli.login.options import with_login
from magnetar.cli.top.answers import Sort, ask, ask_overview
from magnetar.errors import InvalidSetting

Interval = Annotated[
    str, typer.Option("--interval", "-i", metavar="DURATION", help="The time between two frames, at least 1s.")
]
SortBy = Annotated[Sort, typer.Option("--sort", help="What topics are sorted by, the largest first.")]
Once = Annotated[bool, typer.Option("--once", help="Print one frame and exit: for pipes.")]


@with_login
def top(
    login: Login, interval: Interval = "2s", sort: SortBy = Sort.RATE_IN, once: Once = False, json: Json = False
) -> int:
    """Show the whole broker, again every two seconds.

    What needs attention comes first, each with the command that investigates
    or repairs it; then the busiest topics, dead letters, replication and
    pipelines. q quits.
    """
    interval_s = parse_duration(interval)
    if interval_s < 1:
        raise InvalidSetting(f"--interval {interval} is below 1s")
    with rest_of(login) as rest:
        if json:
            print(json_module.dumps(ask_overview(rest), indent=2, ensure_ascii=False))
            return 0
        answers = ask(rest, sort)
        if once:
            from magnetar.cli.top.once import print_frame

            print_frame(answers)
            return 0
        if not sys.stdout.isatty():
            raise InvalidSetting("top draws on a terminal; --once prints one frame, --json the overview")
        from magnetar.cli.top.screen import run

        return run(rest, answers, interval_s)

"""One frame of `top` as plain lines."""

from __future__ import annotations

from magnetar.cli.output import console
from magnetar.cli.top.answers import Answers
from magnetar.cli.top.frame import frame
from magnetar.cli.top.sparkline import History


def print_frame(answers: Answers) -> None:
    """As wide as the terminal; without one, nothing is cut."""
    screen = console()
    with screen.capture() as captured:
        screen.print(frame(answers, History(), screen.width))
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))

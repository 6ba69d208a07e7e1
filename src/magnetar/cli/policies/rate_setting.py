"""Settings of rates: the options of `set-publish-rate`, `set-dispatch-rate` and `set-subscribe-rate`, and their bodies.

pulsar-admin has another name for the same option of each rate; both are accepted.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from magnetar.cli.argument import parse_duration, parse_size_or_infinite, whole
from magnetar.cli.policies.setting import Setting, int32, or_default


def _message_rate(*older: str) -> Any:
    return typer.Option(
        "--msg-rate", "-m", *older, metavar="N", parser=whole(-1), help="Messages per period; -1 for no limit."
    )


def _byte_rate(*older: str) -> Any:
    return typer.Option(
        "--byte-rate",
        "-b",
        *older,
        metavar="SIZE",
        parser=parse_size_or_infinite,
        help="Bytes per period.",
        show_default="no limit",
    )


def publish_rate(
    message_rate: Annotated[int, _message_rate("--msg-publish-rate")] = -1,
    byte_rate: Annotated[int | None, _byte_rate("--byte-publish-rate")] = None,
) -> Setting:
    return Setting(
        {"publishThrottlingRateInMsg": message_rate, "publishThrottlingRateInByte": or_default(byte_rate, -1)}
    )


def dispatch_rate(
    message_rate: Annotated[int, _message_rate("--msg-dispatch-rate", "-md")] = -1,
    byte_rate: Annotated[int | None, _byte_rate("--byte-dispatch-rate", "-bd")] = None,
    period: Annotated[
        int | None,
        typer.Option(
            "--period",
            "--dispatch-rate-period",
            "-dt",
            metavar="DURATION",
            parser=parse_duration,
            help="The period.",
            show_default="1s",
        ),
    ] = None,
    relative: Annotated[
        bool, typer.Option("--relative-to-publish-rate", "-rp", help="So many more than are published.")
    ] = False,
) -> Setting:
    return Setting(
        {
            "dispatchThrottlingRateInMsg": message_rate,
            "dispatchThrottlingRateInByte": or_default(byte_rate, -1),
            "relativeToPublishRate": relative,
            "ratePeriodInSecond": int32("--period", or_default(period, 1)),
        }
    )


def subscribe_rate(
    rate: Annotated[
        int,
        typer.Option(
            "--rate",
            "-r",
            "--subscribe-rate",
            "-sr",
            metavar="N",
            parser=whole(-1),
            help="Subscribes per consumer and period; -1 for no limit.",
        ),
    ] = -1,
    period: Annotated[
        int | None,
        typer.Option(
            "--period",
            "--subscribe-rate-period",
            "-st",
            metavar="DURATION",
            parser=parse_duration,
            help="The period.",
            show_default="30s",
        ),
    ] = None,
) -> Setting:
    seconds = int32("--period", or_default(period, 30))
    return Setting({"subscribeThrottlingRatePerConsumer": rate, "ratePeriodInSecond": seconds})

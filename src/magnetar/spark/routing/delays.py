"""Delays of a retry ladder, as texts such as `10s`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import shortened

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DELAY = re.compile(r"([1-9][0-9]{0,8})(ms|s|m|h|d)", re.ASCII)

DELAYS_MAX = 20
_MS_MAX = 30 * _UNITS_MS["d"]


def delays_ms(retry: Sequence[str]) -> tuple[int, ...]:
    """Raises `InvalidOption`, which names the delay."""
    if isinstance(retry, str) or not isinstance(retry, Sequence):
        raise InvalidOption(f"retry is {shortened(retry)}: it must be a list of delays, such as ['10s', '1m']")
    if len(retry) > DELAYS_MAX:
        raise InvalidOption(f"retry has {len(retry)} delays, more than {DELAYS_MAX}")
    return tuple(_delay_ms(text) for text in retry)


def _delay_ms(text: object) -> int:
    match = _DELAY.fullmatch(text) if isinstance(text, str) else None
    delay_ms = int(match[1]) * _UNITS_MS[match[2]] if match is not None else 0
    if not 0 < delay_ms <= _MS_MAX:
        raise InvalidOption(f"delay {shortened(text)} is not of the form 250ms, 10s, 1m, 2h or 1d, up to 30d")
    return delay_ms

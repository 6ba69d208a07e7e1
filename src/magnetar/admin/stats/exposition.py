"""Prometheus' text format: headings, labels, and the lines of one value. Knows no metric."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Literal

from magnetar.latency import BUCKETS_S, Latencies

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MetricKind = Literal["counter", "gauge", "histogram"]

_SPECIAL = re.compile(r'["\\\n]')
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_ENDS = (*(f"{end:g}" for end in BUCKETS_S), "+Inf")


def heading(metric: str, kind: MetricKind | None = None) -> str:
    """Without a kind, the name shows it."""
    return f"# TYPE {metric} {kind or ('counter' if metric.endswith('_total') else 'gauge')}\n"


def label(name: str, value: str) -> str:
    if _SPECIAL.search(value) is not None:
        value = value.translate(_ESCAPES)
    return f'{name}="{value}"'


def histogram_lines(metric: str, labels: str, latencies: Latencies) -> Iterator[str]:
    """Buckets count everything up to their end."""
    counts = list(accumulate(latencies.counts))  # one reading: another thread may add to it
    for end, count in zip(_ENDS, counts, strict=True):
        yield f'{metric}_bucket{{{labels},le="{end}"}} {count}\n'
    yield f"{metric}_sum{{{labels}}} {latencies.sum_s}\n"
    yield f"{metric}_count{{{labels}}} {counts[-1]}\n"

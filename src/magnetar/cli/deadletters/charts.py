"""Charts of the report as inline SVG: bars over time and bars by name. Colours come from the page's style sheet.

Everything that is drawn is escaped; no text has a position that depends on its width. Knows no dead letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 900, 220
_TOP, _BOTTOM, _LEFT = 18, 32, 56
_LABEL_WIDTH = 90
_LABELS = 8  # below a chart; one of four on a narrow screen
SERIES_MAX = 6
"""Colours of the style sheet: `s0` to `s5`; the last one is for all others."""

_NICE = (1, 2, 5)


def stacked_bars(labels: Sequence[str], series: Sequence[tuple[str, Sequence[int]]], title: str) -> str:
    """A bar per label, which shows itself under the pointer; at most `SERIES_MAX` series, the first at the bottom."""
    totals = [sum(values[place] for _, values in series) for place in range(len(labels))]
    top = nice_top(max(totals, default=0))
    slot = (WIDTH - _LEFT) / max(1, len(labels))
    gap = min(4.0, slot * 0.2)
    parts = [_grid(top)]
    for place, label in enumerate(labels):
        parts.append(_stack(_LEFT + place * slot + gap / 2, slot - gap, top, label, place, series))
    every = max(1, -(-len(labels) // _LABELS))
    for number, place in enumerate(range(0, len(labels), every)):
        x, kind = _LEFT + place * slot, ' class="narrow"' if number % 4 else ""
        if x > WIDTH - _LABEL_WIDTH:
            break
        parts.append(f'<text{kind} x="{x:.1f}" y="{HEIGHT - 8}">{escape(labels[place])}</text>')
    head = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
    return f"{head}{''.join(parts)}</svg>"


def _stack(
    x: float, width: float, top: int, label: str, place: int, series: Sequence[tuple[str, Sequence[int]]]
) -> str:
    scale, y, bars = (HEIGHT - _TOP - _BOTTOM) / top, float(HEIGHT - _BOTTOM), []
    counts = [(number, name, values[place]) for number, (name, values) in enumerate(series) if values[place]]
    for number, _, count in counts:
        height = count * scale
        y -= height
        bars.append(f'<rect class="s{number}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>')
    if not bars:
        return ""
    shown = "\n".join((label, *(f"{name}: {count:,}" for _, name, count in counts)))
    return f"<g><title>{escape(shown)}</title>{''.join(bars)}</g>"


def _grid(top: int) -> str:
    lines = []
    for part in (0, 0.5, 1):
        y = HEIGHT - _BOTTOM - part * (HEIGHT - _TOP - _BOTTOM)
        lines.append(f'<line x1="{_LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if part * top == int(part * top):
            lines.append(
                f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short_number(int(part * top))}</text>'
            )
    return "".join(lines)


def bar(count: int, most: int, number: int = 0) -> str:
    """One bar of a table, as wide as its cell for the largest count."""
    width = 100 * count / max(1, most)
    return (
        '<svg class="bar" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="s{number}" width="{max(width, 0.5 if count else 0):.2f}" height="8"/></svg>'
    )


def nice_top(highest: int) -> int:
    """The end of an axis: 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for step in _NICE:
            if step * power >= highest:
                return step * power
        power *= 10


def short_number(number: int) -> str:
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)

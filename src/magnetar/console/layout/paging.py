"""Pages of long lists: where they begin, and the links to the others."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.console.layout.elements import box, href, link, text
from magnetar.console.options import ROWS_PER_PAGE

_OFFSET_MAX = 10_000_000


def offset_of(query: Mapping[str, str]) -> int:
    given = query.get("offset", "0")
    return min(int(given), _OFFSET_MAX) if given.isascii() and given.isdigit() and len(given) < 9 else 0


def page_links(path: tuple[str, ...], query: Mapping[str, str], offset: int, total: int, noun: str) -> None:
    last = min(offset + ROWS_PER_PAGE, total)
    with box("nav", "paging", aria_label="Pages"):
        text("span", f"{offset + 1:,} to {last:,} of {total:,} {noun}" if total else f"0 {noun}")
        if offset:
            earlier = max(0, offset - ROWS_PER_PAGE)
            link("Previous", href(*path, query={**query, "offset": earlier or ""}), "button", rel="prev")
        if last < total:
            link("Next", href(*path, query={**query, "offset": last}), "button", rel="next")

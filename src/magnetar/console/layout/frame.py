"""The frame of every page: header with cluster, health, search and theme, navigation, and the main part.

The navigation is a column, on a phone a drawer behind a button. Pages that a cluster cannot fill have no link.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from nicegui import ui

from magnetar import docs_site
from magnetar.console.layout.elements import box, button, link, text
from magnetar.console.layout.view import ConsoleView
from magnetar.console.rest.capabilities import health_of
from magnetar.console.web.documentation import DOCUMENTATION_PATH

HEALTH_EVERY_S = 15.0
_THEMES: tuple[tuple[str, bool | None], ...] = (("Auto", None), ("Light", False), ("Dark", True))


class ConsoleEntry(NamedTuple):
    """A line of the navigation. `is_ours`: only a Magnetar cluster has it."""

    title: str
    address: str
    is_ours: bool = False


NAVIGATION = (
    ConsoleEntry("Overview", "/"),
    ConsoleEntry("Topics", "/topics"),
    ConsoleEntry("Dead letters", "/dead-letters", is_ours=True),
)


@contextmanager
def frame(view: ConsoleView, title: str, address: str) -> Iterator[None]:
    """`address` is that of the line in the navigation which the page belongs to."""
    outer = view.client.content.parent_slot
    if outer is not None:
        outer.parent.props["role"] = "none"  # NiceGUI makes all of it the main part
    dark = ui.dark_mode(view.session.theme)
    link("Skip to content", "#content", "skip")
    with box("header", "top"):
        text("button", "☰", "menu", type="button", id="menu", aria_label="Navigation", aria_expanded="false",
             aria_controls="navigation")  # fmt: skip
        link("Magnetar", "/", "brand")
        _cluster(view)
        with box("form", "search", action="/topics", method="get", role="search", aria_label="Search"):
            box("input", "", type="search", name="search", id="search", placeholder="Search topics  ( / )",
                aria_label="Search topics", autocomplete="off", maxlength="200")  # fmt: skip
        _theme(view, dark)
        _account(view)
    with box("div", "below"):
        with box("nav", "side", id="navigation", aria_label="Pages"), box("ul"):
            for entry in NAVIGATION:
                if view.capabilities.is_magnetar or not entry.is_ours:
                    with box("li"):
                        current = {"aria_current": "page"} if entry.address == address else {}
                        link(entry.title, entry.address, **current)
            if docs_site.folder() is not None:
                with box("li"):
                    link("Documentation", DOCUMENTATION_PATH)
        with box("main", "main", id="content", tabindex="-1"):
            text("h1", title)
            yield


def _cluster(view: ConsoleView) -> None:
    with box("div", "cluster"):
        text("span", view.capabilities.cluster or "cluster", "cluster-name", title="Cluster")
        state = box("span", "health", role="status")

    shown: list[tuple[str, str]] = []

    async def show() -> None:
        found = await health_of(view.api, view.capabilities)
        if shown == [found] or view.client.is_deleted:
            return
        shown[:] = [found]
        state.clear()
        with state:
            text(
                "span",
                {"ok": "healthy", "failed": "unhealthy"}.get(*[found[0]] * 2),
                f"badge {found[0]}",
                title=found[1],
            )

    ui.timer(0.01, show, once=True)
    ui.timer(HEALTH_EVERY_S, show)


def _theme(view: ConsoleView, dark: ui.dark_mode) -> None:
    names = {value: name for name, value in _THEMES}
    order = [value for _, value in _THEMES]

    def change() -> None:
        chosen = order[(order.index(view.session.theme) + 1) % len(order)]
        view.session.theme = chosen
        dark.value = chosen
        shown.text = f"Theme: {names[chosen]}"

    shown = button(f"Theme: {names[view.session.theme]}", change, "theme")


def _account(view: ConsoleView) -> None:
    if not view.session.is_logged_in:
        return
    with box("form", "account", action="/logout", method="post"):
        text("span", view.session.role or "logged in", "role", title="The role of your token")
        text("button", "Log out", "button", type="submit")

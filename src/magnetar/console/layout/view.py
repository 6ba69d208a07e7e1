"""A page in the browser of one session: what it was asked for, and its parts that are loaded after the frame."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nicegui import Client, ui

from magnetar.client.errors import ClientError
from magnetar.console.layout.elements import box, button, fault, link, text
from magnetar.console.layout.units import moment, zone_of
from magnetar.console.rest.admin import AdminApi
from magnetar.console.rest.capabilities import Capabilities
from magnetar.console.rest.errors import BrokerError, LoginRefused, RightRefused
from magnetar.console.web.session import BrowserSession

T = TypeVar("T")

_ZONE_SCRIPT = "Intl.DateTimeFormat().resolvedOptions().timeZone"
_IS_FOCUSED_SCRIPT = "document.getElementById('content')?.contains(document.activeElement) ?? false"
_BROWSER_S = 5.0


@dataclass
class ConsoleView:
    """`path` has the values of the page's address, `query` those after the question mark."""

    session: BrowserSession
    client: Client
    capabilities: Capabilities
    path: Mapping[str, str]
    query: Mapping[str, str]
    parts: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def api(self) -> AdminApi:
        return self.session.api

    def moment(self, time: str | None) -> str:
        return moment(time, self.session.zone)

    async def find_zone(self) -> None:
        """Once for a session."""
        if self.session.zone:
            return
        try:
            found = await self.client.run_javascript(_ZONE_SCRIPT, timeout=_BROWSER_S)
        except TimeoutError:
            found = None
        name = found if isinstance(found, str) else ""
        self.session.zone = name[:64] if str(zone_of(name)) == name else "UTC"

    def part(
        self, load: Callable[[], Awaitable[T]], render: Callable[[T], Any], *, every_s: float | None = None
    ) -> None:
        """A part of the page: requested once the browser is connected, and then shown."""
        part = _Part(self, load, render, box("div", "part", aria_live="off"))
        ui.timer(0.01, part.show, once=True)
        if every_s is not None:
            ui.timer(every_s, part.refresh)


class _Part:
    def __init__(
        self, view: ConsoleView, load: Callable[[], Awaitable[Any]], render: Callable[[Any], Any], element: ui.element
    ) -> None:
        self._view = view
        self._load = load
        self._render = render
        self._element = element
        self._shown: object = None
        self._is_loading = False
        with element:
            text("p", "Loading…", "loading", role="status")

    async def refresh(self) -> None:
        """Not under the fingers of a user: what has the focus stays as it is."""
        if self._is_loading or not self._view.session.is_open:
            return
        try:
            is_focused = await self._view.client.run_javascript(_IS_FOCUSED_SCRIPT, timeout=_BROWSER_S)
        except TimeoutError:
            return
        if not is_focused:
            await self.show()

    async def show(self) -> None:
        if self._is_loading or not self._view.session.is_open:
            return
        self._is_loading = True
        try:
            await self._view.find_zone()
            found = await self._load()
        except LoginRefused:
            self._view.client.open("/session-ended")
            return
        except (BrokerError, ClientError) as error:
            self._show_fault(error)
            return
        finally:
            self._is_loading = False
        if self._view.client.is_deleted or (self._shown is not None and found == self._shown):
            return
        self._shown = found
        self._element.clear()
        with self._element:
            self._render(found)

    def _show_fault(self, error: Exception) -> None:
        self._shown = None
        self._element.clear()
        with self._element:
            show_fault(self._view, error)
            button("Try again", self.show)


def show_fault(view: ConsoleView, error: Exception) -> None:
    if isinstance(error, RightRefused):
        role = f"role {view.session.role!r}" if view.session.role else "this session"
        fault(f"Not allowed for {role}: {error.reason}", "An administrator of the tenant can grant the permission.")
        if not view.session.is_logged_in:
            link("Log in", "/login", "button")
        return
    fault(str(error))

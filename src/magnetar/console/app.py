"""The application: NiceGUI's, with our pages, behind the gate.

NiceGUI has one application for each process, so one console is made in a process; everything else is in its objects.
NiceGUI's own sessions and storage are off: nothing is stored on disk, nothing is sent to or loaded from another host.
"""

from __future__ import annotations

import asyncio
import logging

from fastapi import FastAPI
from nicegui import Client, app, ui
from starlette.middleware.gzip import GZipMiddleware

from magnetar.console.options import PAGES_OPEN_MAX, ConsoleOptions
from magnetar.console.pages.routes import add_pages
from magnetar.console.rest.admin import BrokerAccess
from magnetar.console.web.assets import ICON_PATH, SCRIPT_PATH, STYLE_PATH
from magnetar.console.web.gate import SESSION_KEY, Gate
from magnetar.console.web.session import BrowserSession, Sessions

_HEAD = f'<link rel="stylesheet" href="{STYLE_PATH}"><script src="{SCRIPT_PATH}" defer></script>'
_COMPRESSED_FROM = 1000
_LEAVE_S = 0.5


class Console:
    """`asgi` is what a server serves."""

    def __init__(self, options: ConsoleOptions) -> None:
        self.broker = BrokerAccess(options.url, options.security)
        self.sessions = Sessions(self.broker, _close_pages)
        logging.getLogger("nicegui").setLevel(logging.ERROR)  # a page that does not exist is no warning
        add_pages(self.sessions)
        ui.add_head_html(_HEAD, shared=True)
        app.config.socket_io_js_transports = ["websocket"]
        app.config.quasar_config["brand"] = {"primary": "#2457c5", "negative": "#b3261e"}
        served = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        ui.run_with(
            served,
            title="Magnetar console",
            favicon=ICON_PATH,
            dark=None,
            language="en-US",
            reconnect_timeout=10.0,
            gzip_middleware_factory=None,
            tailwind=False,
            binding_refresh_interval=0.5,
            show_welcome_message=False,
        )
        self.gate = Gate(served, options, self.broker, self.sessions, _session_of, _has_room)
        self.asgi = GZipMiddleware(self.gate, minimum_size=_COMPRESSED_FROM)


def _session_of(page_id: str) -> BrowserSession | None:
    page = Client.instances.get(page_id)
    found = page.request.scope.get(SESSION_KEY) if page is not None else None
    return found if isinstance(found, BrowserSession) else None


def _has_room() -> bool:
    return len(Client.instances) < PAGES_OPEN_MAX


def _close_pages(session: BrowserSession) -> None:
    """The pages of a session that ended lead away, and do nothing from then on."""
    for page in list(Client.instances.values()):
        if page.request.scope.get(SESSION_KEY) is session:
            page.open("/")
            asyncio.get_running_loop().call_later(_LEAVE_S, _delete, page)


def _delete(page: Client) -> None:
    if not page.is_deleted:
        page.delete()

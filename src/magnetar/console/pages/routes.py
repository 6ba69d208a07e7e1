"""The addresses of the pages, and the frame that each is shown in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from nicegui import ui
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from magnetar.console.layout.frame import frame
from magnetar.console.layout.view import ConsoleView
from magnetar.console.pages import dead_letter, dead_letter_topics, dead_letters, overview, topic, topics
from magnetar.console.rest.capabilities import Capabilities
from magnetar.console.rest.errors import BrokerError, LoginRefused
from magnetar.console.web.gate import SESSION_KEY
from magnetar.console.web.plain_page import unreachable_page
from magnetar.console.web.session import BrowserSession, Sessions

_BROKER_S = 2.5
_TOPIC = "{domain}/{tenant}/{namespace}/{topic:path}"


class ConsolePage(NamedTuple):
    """`title` is the heading, from the values of the address; `entry` is the address of its line in the navigation."""

    path: str
    entry: str
    title: Callable[[ConsoleView], str]
    show: Callable[[ConsoleView], None]


PAGES = (
    ConsolePage("/", "/", lambda view: "Overview", overview.show),
    ConsolePage("/topics", "/topics", lambda view: "Topics", topics.show),
    ConsolePage(f"/topics/{_TOPIC}", "/topics", topic.title, topic.show),
    ConsolePage("/dead-letters", "/dead-letters", lambda view: "Dead letters", dead_letter_topics.show),
    ConsolePage(f"/dead-letters/{_TOPIC}", "/dead-letters", dead_letters.title, dead_letters.show),
    ConsolePage(f"/dead-letter/{{message}}/{_TOPIC}", "/dead-letters", dead_letter.title, dead_letter.show),
)


def add_pages(sessions: Sessions) -> None:
    for one in PAGES:
        _add(one, sessions)

    async def session_ended(request: Request) -> Response:
        """The broker does not accept the token any more."""
        await sessions.end(request.scope[SESSION_KEY])
        return RedirectResponse("/login", 303)

    ui.page("/session-ended")(session_ended)


def _add(one: ConsolePage, sessions: Sessions) -> None:
    async def build(request: Request) -> Response | None:
        session: BrowserSession = request.scope[SESSION_KEY]
        try:
            capabilities = await asyncio.wait_for(session.capabilities(), _BROKER_S)
        except LoginRefused:
            await sessions.end(session)
            return RedirectResponse("/login", 303)
        except TimeoutError:
            return unreachable_page(f"The broker did not answer within {_BROKER_S:g} s.")
        except BrokerError as error:
            return unreachable_page(str(error))
        _show(one, session, capabilities, request)
        return None

    ui.page(one.path)(build)


def _show(one: ConsolePage, session: BrowserSession, capabilities: Capabilities, request: Request) -> None:
    client = ui.context.client
    view = ConsoleView(session, client, capabilities, dict(request.path_params), dict(request.query_params))
    title = one.title(view)
    client.title = f"{title} · Magnetar console"
    with frame(view, title, one.entry):
        one.show(view)

"""The headers of every answer, and the nonce of every script: what a browser may do with a page of the console.

NiceGUI needs `unsafe-eval` for its events and inline styles. Inline scripts run with the nonce of the answer only, so
markup that found its way into a page would not run even then.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_FIXED = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=()"),
)
_POLICY = (
    "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'unsafe-eval'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)


class SafeSend:
    """Sends one answer with these headers; of HTML, each script element gets the nonce."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._nonce = secrets.token_urlsafe(16)
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = self._with_own(message.get("headers", []))
            if _is_html(message["headers"]):
                self._start = message
                return
        elif message["type"] == "http.response.body" and self._start is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_page(self._start)
            return
        await self._send(message)

    def _with_own(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        policy = (b"content-security-policy", _POLICY.format(nonce=self._nonce).encode())
        own = {name for name, _ in _FIXED}
        return [(name, value) for name, value in headers if name.lower() not in own] + [*_FIXED, policy]

    async def _send_page(self, start: Message) -> None:
        # What clients of the broker wrote is escaped in a page, so these are the scripts of its template.
        body = self._body.replace(b"<script", b'<script nonce="' + self._nonce.encode() + b'"')
        headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
        start["headers"] = [*headers, (b"content-length", str(len(body)).encode())]
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})


def _is_html(headers: list[tuple[bytes, bytes]]) -> bool:
    return any(name.lower() == b"content-type" and value.startswith(b"text/html") for name, value in headers)

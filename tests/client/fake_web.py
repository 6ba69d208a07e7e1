"""A scripted web server, with TLS if it is given a context."""

from __future__ import annotations

import contextlib
import http.server
import json
import ssl
import threading
from collections.abc import Iterator

from tests.client.certificates import HOST


class FakeWeb:
    """An HTTP server with one response for every path; `received` has path and Authorization of each request."""

    def __init__(self, status: int, headers: dict[str, str], body: object, tls: ssl.SSLContext | None) -> None:
        self.received: list[tuple[str, str | None]] = []
        received = self.received

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                received.append((self.path, self.headers["Authorization"]))
                content = json.dumps(body).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value.replace("{path}", self.path))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *words: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer((HOST, 0), Handler)
        self.server.daemon_threads = True
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://{HOST}:{self.server.server_address[1]}"


@contextlib.contextmanager
def fake_web(
    body: object, *, status: int = 200, headers: dict[str, str] | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[FakeWeb]:
    web = FakeWeb(status, headers or {}, body, tls)
    thread = threading.Thread(target=web.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield web
    finally:
        web.server.shutdown()
        thread.join()
        web.server.server_close()

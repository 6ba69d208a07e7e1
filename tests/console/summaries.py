"""A broker in front of a broker, with the summaries `brokers/overview` and `brokers/topics` of a larger cluster.

Everything else is passed on as it is.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx

from tests.console.processes import TAKES_PICTURES

TOPICS = 10_000
EVIL = "since noon" if TAKES_PICTURES else "<img src=x onerror=window.hacked=1>"
"""Script in all that clients write; not in pictures."""

OVERVIEW = {
    "time": "2026-11-20T12:00:00Z",
    "cluster": "standalone",
    "version": "0.1.0",
    "uptimeS": 93784.0,
    "health": {"status": "ok"},
    "totals": {
        "topics": TOPICS,
        "partitionedTopics": 12,
        "subscriptions": 10_420,
        "producers": 38,
        "consumers": 61,
        "rateIn": 18_250.4,
        "rateOut": 17_903.0,
        "throughputIn": 9_120_000.0,
        "throughputOut": 8_800_000.0,
        "backlog": 4_210,
        "unacked": 112,
        "delayed": 7,
        "storedBytes": 52_400_000_000,
        "deadLettersWaiting": 153,
    },
    "namespaces": [
        {"name": "public/default", "topics": 9_988, "rateIn": 18_000.0, "rateOut": 17_700.0, "backlog": 4_000,
         "storedBytes": 52_000_000_000, "deadLettersWaiting": 150},
        {"name": "shop/orders", "topics": 12, "rateIn": 250.4, "rateOut": 203.0, "backlog": 210,
         "storedBytes": 400_000_000, "deadLettersWaiting": 3},
    ],
    "deadLetters": {"byReason": [{"reason": "MaxRedeliveries", "waiting": 150}, {"reason": "Expired", "waiting": 3}]},
    "replication": {"states": {}, "worst": None},
    "pipelines": {"states": {"done": 2}},
    "attention": [
        {"severity": "warning", "kind": "backlog", "subject": "billing", "command": "magnetar doctor",
         "text": f"No consumer is connected, 3 messages wait {EVIL}", "topic": "persistent://public/default/orders"},
    ],
}  # fmt: skip


def _row(index: int) -> dict[str, Any]:
    name = "orders" if index == 0 else f"sensor-{index:05d}"
    return {
        "topic": f"persistent://public/default/{name}", "partitions": 0, "rateIn": float(index % 90), "rateOut": 0.05,
        "throughputIn": 1.0, "throughputOut": 1.0, "backlog": index, "storedBytes": index * 1000, "subscriptions": 1,
        "producers": 1, "consumers": 0, "deadLetters": 0, "state": "ok" if index else "no consumer",
    }  # fmt: skip


ROWS = [_row(index) for index in range(TOPICS)]


def topics(query: dict[str, str]) -> dict[str, Any]:
    key = {"name": "topic"}.get(query.get("sort", "name"), query.get("sort", "name"))
    rows = [row for row in ROWS if query.get("search", "") in row["topic"]]
    rows.sort(key=lambda row: row[key], reverse=query.get("order") == "desc")
    offset = int(query.get("offset", "0"))
    return {"total": len(rows), "topics": rows[offset : offset + int(query["limit"])]}


@contextmanager
def summarized(broker_url: str) -> Iterator[str]:
    """The address of a broker with summaries."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/admin/v2/brokers/overview":
                self._send(200, json.dumps(OVERVIEW).encode(), {})
            elif parts.path == "/admin/v2/brokers/topics":
                self._send(200, json.dumps(topics(dict(parse_qsl(parts.query)))).encode(), {})
            else:
                self._pass_on()

        def do_PUT(self) -> None:
            self._pass_on()

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", "0")))
            headers = {"content-type": "application/json"} if body else {}
            reply = passing.request(self.command, broker_url + self.path, content=body, headers=headers)
            own = {name: value for name, value in reply.headers.items() if name.startswith("x-pulsar")}
            self._send(reply.status_code, reply.content, own)

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *words: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    with httpx.Client() as passing:
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

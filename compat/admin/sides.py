"""One broker under comparison: runs a step and returns the unchanged answer.

Knows the tools of an administrator (pulsar-admin, pulsarctl, plain HTTP) and the few client operations in between. Does
not know the right answers.
"""

from __future__ import annotations

import base64
import re
import subprocess
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
import pulsar  # type: ignore[import-untyped]
from steps import Step

COMMAND_SECONDS = 60
# Headers that describe a peeked message are compared; these belong to the transport.
TRANSPORT_HEADERS = ("connection", "content-encoding", "content-length", "date", "server", "transfer-encoding", "vary")
# Headers for browsers, on every answer of ours and on none of Apache Pulsar's.
GUARD_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True)
class Answer:
    """`code` is an exit code or an HTTP status; `headers` are the HTTP headers beyond the transport's."""

    code: int
    out: str
    error: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class AdminTool:
    """pulsar-admin in one JVM that runs all commands, for any broker."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._expect("ready")

    def run(self, http_url: str, words: Iterable[str]) -> Answer:
        arguments = ("--admin-url", http_url, "--request-timeout", str(COMMAND_SECONDS // 2), *words)
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(base64.b64encode(word.encode()).decode() for word in arguments) + "\n")
        self._process.stdin.flush()
        code, out, error = self._line().split(" ")
        return Answer(int(code), _decoded(out), _decoded(error))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _expect(self, word: str) -> None:
        line = self._line()
        if line != word:
            raise SystemExit(f"pulsar-admin did not start: {line!r}")

    def _line(self) -> str:
        assert self._process.stdout is not None
        guard = threading.Timer(COMMAND_SECONDS, self._process.kill)
        guard.start()
        line = self._process.stdout.readline()
        guard.cancel()
        if not line:
            raise SystemExit(f"pulsar-admin exited, or did not answer within {COMMAND_SECONDS} s")
        return line.rstrip("\n")


def _decoded(word: str) -> str:
    return "" if word == "-" else base64.b64decode(word).decode(errors="replace")


class Side:
    """A broker with its clients; publishing sets `<ledger>` and `<mark>`."""

    def __init__(self, service_url: str, http_url: str, tool: AdminTool | None, pulsarctl: Path | None) -> None:
        self.http_url = http_url
        self._tool = tool
        self._pulsarctl = pulsarctl
        self._http = httpx.Client(base_url=http_url, timeout=COMMAND_SECONDS)
        self._client = pulsar.Client(service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
        self._open: list[Any] = []
        self.known = {"address": http_url.removeprefix("http://")}

    def close(self) -> None:
        self._http.close()
        self._client.close()

    def run(self, step: Step) -> Answer:
        words = tuple(self._filled(word) for word in step.words)
        match step.kind:
            case "pulsar-admin":
                assert self._tool is not None
                return self._tool.run(self.http_url, words)
            case "pulsarctl":
                return self._run_pulsarctl(words)
            case "http":
                return self._request(*words)
        verb = cast("Any", getattr(self, f"do_{words[0].replace('-', '_')}"))
        verb(*words[1:])
        return Answer(0, "")

    def _filled(self, word: str) -> str:
        now = str(int(time.time() * 1000))
        return re.sub(r"<(\w+)>", lambda found: {"now": now, **self.known}.get(found[1], found[0]), word)

    def _request(self, method: str, path: str, body: str) -> Answer:
        headers = {"Content-Type": "application/json"} if body else {}
        url = path if path.startswith("/") else f"/admin/v2/{path}"
        response = self._http.request(method, url, content=body.encode() or None, headers=headers)
        kept = sorted(
            (name, value)
            for name, value in response.headers.items()
            if name not in TRANSPORT_HEADERS and GUARD_HEADERS.get(name) != value
        )
        return Answer(response.status_code, response.content.decode(errors="backslashreplace"), headers=tuple(kept))

    def _run_pulsarctl(self, words: tuple[str, ...]) -> Answer:
        assert self._pulsarctl is not None
        done = subprocess.run(
            [str(self._pulsarctl), "--admin-service-url", self.http_url, *words],
            capture_output=True, text=True, timeout=COMMAND_SECONDS,
        )  # fmt: skip
        return Answer(done.returncode, done.stdout, done.stderr)

    def do_publish(self, topic: str, count: str, first: str = "0") -> None:
        """Publishes messages of one entry each: `message-0` with key `key-0` and a property, and so on."""
        producer = self._client.create_producer(topic, producer_name="compat", batching_enabled=False)
        for number in range(int(first), int(first) + int(count)):
            content = f"message-{number}".encode()
            found = producer.send(content, properties={"number": str(number)}, partition_key=f"key-{number}")
            self.known["ledger"] = str(found.ledger_id())
        producer.close()

    def do_publish_batch(self, topic: str, count: str) -> None:
        """Publishes all messages in one entry."""
        producer = self._client.create_producer(
            topic, producer_name="compat", batching_enabled=True,
            batching_max_messages=int(count), batching_max_publish_delay_ms=60_000,
        )  # fmt: skip
        for number in range(int(count)):
            producer.send_async(f"message-{number}".encode(), lambda result, message_id: None, {"number": str(number)})
        producer.flush()
        producer.close()

    def do_publish_json(self, topic: str, count: str) -> None:
        """Publishes messages with a JSON schema of one field."""
        record = type("Order", (pulsar.schema.Record,), {"number": pulsar.schema.Integer()})
        schema = pulsar.schema.JsonSchema(record)
        producer = self._client.create_producer(topic, schema=schema, batching_enabled=False)
        for number in range(int(count)):
            producer.send(record(number=number))
        producer.close()

    def do_mark(self) -> None:
        """Sets `<mark>` to a time after all earlier messages and before all later ones."""
        time.sleep(0.02)
        self.known["mark"] = str(int(time.time() * 1000))
        time.sleep(0.02)

    def do_consume(self, topic: str, subscription: str, count: str) -> None:
        """Receives, acknowledges and closes."""
        consumer = self._subscribe(topic, subscription)
        for _ in range(int(count)):
            consumer.acknowledge(consumer.receive(10_000))
        consumer.close()

    def do_connect_producer(self, topic: str) -> None:
        self._open.append(self._client.create_producer(topic, producer_name="compat-open"))

    def do_connect_consumer(self, topic: str, subscription: str) -> None:
        self._open.append(self._subscribe(topic, subscription))

    def do_disconnect(self) -> None:
        for each in self._open:
            each.close()
        self._open.clear()

    def do_settle(self) -> None:
        """Waits for Apache Pulsar, which reads topic policies from a topic and counts sent messages with a delay."""
        time.sleep(1.0)

    def _subscribe(self, topic: str, subscription: str) -> Any:
        return self._client.subscribe(
            topic, subscription, consumer_type=pulsar.ConsumerType.Shared, consumer_name="compat",
            initial_position=pulsar.InitialPosition.Earliest,
        )  # fmt: skip

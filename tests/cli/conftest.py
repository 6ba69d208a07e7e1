"""The command line against a real broker in this process: `cli("topics", "list", …)` returns code, stdout, stderr."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import pytest

from magnetar import testing
from magnetar.cli.main import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


class CommandLine:
    """Runs commands against one broker; `fails` and `json` also check the exit code and the streams."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys

    def __call__(self, *words: str) -> Result:
        self._capsys.readouterr()
        code = main([*words, "--url", self.url])
        return Result(code, *self._capsys.readouterr())

    def ok(self, *words: str) -> str:
        code, out, err = self(*words)
        assert code == 0, err
        assert err == ""
        return out

    def json(self, *words: str) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.ok(*words, "--json"))

    def fails(self, *words: str, code: int = 1) -> str:
        """The one line on stderr, without the program name."""
        result = self(*words)
        assert (result.code, result.out) == (code, ""), result
        assert result.err.count("\n") == 1, result.err
        return result.err.removeprefix("magnetar: ").rstrip("\n")


@pytest.fixture(scope="package")
def running() -> Iterator[testing.TestBroker]:
    with testing.broker() as running:
        yield running


@pytest.fixture
def cli(running: testing.TestBroker, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(running.http_url, capsys)


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    body: object
    content_type: str | None


class Recorder:
    """An HTTP server that records requests and sends scripted replies."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: dict[tuple[str, str], list[tuple[int, str, bytes]]] = {}
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                parts = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                recorder.requests.append(
                    Request(
                        self.command,
                        parts.path,
                        dict(parse_qsl(parts.query, keep_blank_values=True)),
                        json.loads(body) if body else None,
                        self.headers.get("Content-Type"),
                    )
                )
                answers = recorder.answers.get((self.command, parts.path), [(204, "", b"")])
                status, kind, content = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(status)
                if status == 307:
                    self.send_header("Location", kind)
                elif kind:
                    self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = answer

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def will_answer(
        self, method: str, path: str, body: object, status: int = 200, kind: str = "application/json"
    ) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.answers[method, path] = [(status, kind, content)]

    def will_redirect(self, method: str, path: str, target: str) -> None:
        self.answers[method, path] = [(307, target, b"")]

    def will_answer_in_turn(self, method: str, path: str, *bodies: object) -> None:
        """Repeats the last one."""
        self.answers[method, path] = [(200, "application/json", json.dumps(body).encode()) for body in bodies]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.close()


@pytest.fixture
def recorded(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(recorder.url, capsys)

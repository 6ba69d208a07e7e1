"""The admin REST API of a broker, as the commands need it: a request in, JSON or one clear error out.

Owns addresses, percent-encoding and the words for a broker that refuses or does not answer. It knows no resource, and
nothing here is Magnetar's own: the paths are Apache Pulsar's, and so may be the broker.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from magnetar.errors import InvalidSetting, MagnetarError

if TYPE_CHECKING:
    import ssl

    import httpx

    from magnetar.client import Security

DEFAULT_URL = "http://localhost:8080"
START_HINT = "start a broker with `magnetar standalone`, or name another with --url or MAGNETAR_URL"
CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 60
REASON_LENGTH_MAX = 2000
JSON = "application/json"
_NOT_AUTHENTICATED = 401

Query = Mapping[str, object]


class RestError(MagnetarError):
    """No answer, or none that can be used."""


class Unreachable(RestError):
    """Nobody answers at the address."""


class Refused(RestError):
    """The broker answered with an error. `reason` is in its own words."""

    def __init__(self, status: int, reason: str, hint: str = "") -> None:
        super().__init__(f"{reason} (HTTP {status})" + (f"; {hint}" if hint else ""))
        self.status = status
        self.reason = reason


class Rest:
    """One broker. Segments of a path are names as people write them; they are encoded here."""

    def __init__(self, url: str, security: Security | None = None) -> None:
        import httpx

        self.url = checked_url(url)
        self.security = security
        # A proxy is for the network; a broker on this machine is not behind it.
        is_local = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
        self._client = httpx.Client(
            timeout=httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
            follow_redirects=True,  # a cluster sends a request about a topic to the broker that owns it
            trust_env=not is_local,
            # Reading certificates takes longer than most requests; without them nothing is sent by HTTPS, see below.
            verify=self._trusted(),
            event_hooks={"request": [self._check_scheme, self._authorize]},
        )

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Rest:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def get(self, *segments: str, query: Query | None = None) -> Any:
        return _decoded(self.request("GET", segments, query=query))

    def put(self, *segments: str, body: object = None, query: Query | None = None, kind: str = JSON) -> Any:
        return _decoded(self.request("PUT", segments, body=body, query=query, kind=kind))

    def post(self, *segments: str, body: object = None, query: Query | None = None) -> Any:
        return _decoded(self.request("POST", segments, body=body, query=query))

    def delete(self, *segments: str, query: Query | None = None) -> Any:
        return _decoded(self.request("DELETE", segments, query=query))

    def lookup(self, domain: str, tenant: str, namespace: str, topic: str) -> Any:
        return _decoded(self._send("GET", path_of(("lookup", "v2", "topic", domain, tenant, namespace, topic))))

    def request(
        self,
        method: str,
        segments: tuple[str, ...],
        *,
        body: object = None,
        query: Query | None = None,
        kind: str = JSON,
    ) -> httpx.Response:
        """The answer as it came, for whoever needs its headers; raises `RestError` for anything but success."""
        content = b"" if body is None else json.dumps(body).encode()
        return self._send(method, path_of(("admin", "v2", *segments)), content=content, query=query, kind=kind)

    def _send(
        self, method: str, path: str, *, content: bytes = b"", query: Query | None = None, kind: str = JSON
    ) -> httpx.Response:
        import httpx

        parameters = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        # Apache Pulsar picks the handler by the content type, also where there is no content.
        headers = {} if method in ("GET", "DELETE") else {"Content-Type": kind}
        try:
            answer = self._client.request(method, self.url + path, content=content, params=parameters, headers=headers)
        except httpx.ConnectError as error:
            if self.url.startswith("https:"):
                from magnetar.security.tls import explain

                raise Unreachable(f"{self.url} cannot be reached: {explain(error)}") from error
            raise Unreachable(f"{self.url} cannot be reached: {error}; {START_HINT}") from error
        except httpx.TimeoutException as error:
            raise Unreachable(f"{self.url} does not answer in time ({type(error).__name__})") from error
        except httpx.TransportError as error:
            raise Unreachable(
                f"{self.url} does not answer as an HTTP server does: {error}; "
                "give the broker's HTTP address, not its binary one"
            ) from error
        except httpx.TooManyRedirects as error:
            raise RestError(f"{self.url} redirects for ever") from error
        if not answer.is_success:
            raise Refused(answer.status_code, _reason(answer), self._hint(answer))
        return answer

    def _trusted(self) -> ssl.SSLContext | bool:
        if self.security is None or not self.url.startswith("https:"):
            return self.url.startswith("https:")
        from magnetar.client.errors import InvalidArgument
        from magnetar.security.tls import context_of

        try:
            return context_of(self.security, for_http=True)
        except InvalidArgument as error:
            raise InvalidSetting(f"--trust-certs: {error}") from error

    def _authorize(self, request: httpx.Request) -> None:
        """Of each request, for a redirect goes to another broker, which wants to know who asks, too."""
        if self.security is None:
            return
        if self.security.trust_certs_file is not None and request.url.scheme != "https":
            raise InvalidSetting(f"--trust-certs is given, but {self.url} is not encrypted: write https://")
        token = self.security.read_token()
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"

    def _hint(self, answer: httpx.Response) -> str:
        if self.security is None or answer.status_code != _NOT_AUTHENTICATED:
            return ""
        from magnetar.security.token import expiry_hint

        return expiry_hint(answer.request.headers.get("Authorization", "").removeprefix("Bearer "))

    def _check_scheme(self, request: httpx.Request) -> None:
        if request.url.scheme != urlsplit(self.url).scheme:
            raise RestError(f"{self.url} redirects to {request.url}; give that address with --url")


def checked_url(text: str) -> str:
    """The address without a slash at its end; raises `InvalidSetting`."""
    parts = urlsplit(text)
    if parts.scheme in ("pulsar", "pulsar+ssl"):
        raise InvalidSetting(f"--url {text} is the binary address; the HTTP one is wanted, such as {DEFAULT_URL}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidSetting(f"--url {text} is not of the form http://host:port")
    try:
        _ = parts.port
    except ValueError as error:
        raise InvalidSetting(f"--url {text} has a port that is not between 0 and 65535") from error
    return text.rstrip("/")


def path_of(segments: tuple[str, ...]) -> str:
    return "".join("/" + _encoded(segment) for segment in segments)


def _encoded(segment: str) -> str:
    # HTTP clients fold "." and ".." away; spelled in percent they pass.
    return segment.replace(".", "%2E") if segment in (".", "..") else quote(segment, safe="")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decoded(answer: httpx.Response) -> Any:
    """The JSON of an answer; None where it is empty, its text where it is none."""
    if not answer.content.strip():
        return None
    try:
        return answer.json()
    except ValueError:
        if JSON in answer.headers.get("content-type", ""):
            raise RestError(f"{answer.request.url} answered with JSON that cannot be read") from None
        return answer.text


def _reason(answer: httpx.Response) -> str:
    """What the broker says; of a page that is no JSON, its beginning on one line."""
    try:
        body = answer.json()
    except ValueError:
        body = answer.text if "html" not in answer.headers.get("content-type", "") else ""
    reason = body.get("reason") if isinstance(body, dict) else body
    text = " ".join(str(reason or "").split())[:REASON_LENGTH_MAX]
    return text or f"{answer.reason_phrase or 'error'} for {answer.request.method} {answer.request.url.path}"

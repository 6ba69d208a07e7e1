"""The admin REST API of a broker: sends a request, returns JSON or raises one clear error.

Owns addresses, percent-encoding and the errors of brokers that reject a request or do not respond. It knows no
resource; the broker may be Apache Pulsar.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from magnetar.errors import InvalidSetting, MagnetarError

if TYPE_CHECKING:
    import httpx

    from magnetar.client import Security

DEFAULT_URL = "http://localhost:8080"
START_HINT = "start a broker with `magnetar standalone`, or name another with --url or MAGNETAR_URL"
CONNECT_TIMEOUT_S = 5
RESPONSE_TIMEOUT_S = 60
JSON = "application/json"
TRUST_CERTS = "--trust-certs"
_TRUST_HINT = f"here with {TRUST_CERTS} FILE"
LOGIN_HINT = "log in with --token file:PATH, MAGNETAR_TOKEN, or a profile and --profile"
_NOT_AUTHENTICATED = 401
_NOT_AUTHORIZED = 403

Query = Mapping[str, object]


class RestError(MagnetarError):
    """No response, or an unusable one."""


class NoResponse(RestError):
    """The broker cannot be reached, or does not respond."""


class Refused(RestError):
    """The broker returned an error; `reason` is its text."""

    def __init__(self, status: int, reason: str, hint: str = "") -> None:
        super().__init__(f"{reason} (HTTP {status})" + (f"; {hint}" if hint else ""))
        self.status = status
        self.reason = reason


class Rest:
    """One broker. Path segments are given unencoded; `hint` follows the error of one that cannot be reached.

    `service_url` is its binary address, if it was given, and `service_url_from` the place of it; `trust_from` is the
    option, variable or profile that has the trusted certificates.
    """

    def __init__(
        self,
        url: str,
        security: Security | None = None,
        *,
        service_url: str | None = None,
        service_url_from: str = "",
        trust_from: str = TRUST_CERTS,
        hint: str = START_HINT,
    ) -> None:
        from magnetar.client.connection.http import HttpTransport
        from magnetar.client.errors import InvalidArgument

        self.url = checked_url(url)
        self.security = security
        self.service_url = service_url
        self.service_url_from = service_url_from
        self._trust_from = trust_from
        self._hint = hint
        # A broker on this machine is not behind a proxy.
        is_local = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
        try:
            self._http = HttpTransport(
                [self.url],
                security,
                RESPONSE_TIMEOUT_S,
                connect_timeout_s=CONNECT_TIMEOUT_S,
                uses_proxy=not is_local,
            )
        except InvalidArgument as error:
            raise InvalidSetting(f"{trust_from}: {error}") from error

    def close(self) -> None:
        self._http.close()

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

    def readiness(self) -> Any:
        """The checks of a Magnetar broker; Apache Pulsar has no such path."""
        return _decoded(self._send("GET", path_of(("health", "ready"))))

    def request(
        self,
        method: str,
        segments: tuple[str, ...],
        *,
        body: object = None,
        query: Query | None = None,
        kind: str = JSON,
    ) -> httpx.Response:
        """The response, with its headers; raises `RestError` for anything but success."""
        content = b"" if body is None else json.dumps(body).encode()
        return self._send(method, path_of(("admin", "v2", *segments)), content=content, query=query, kind=kind)

    def _send(
        self, method: str, path: str, *, content: bytes = b"", query: Query | None = None, kind: str = JSON
    ) -> httpx.Response:
        from magnetar.client.connection.http import reason_of, token_of
        from magnetar.client.errors import ClientError, ConnectionLost, NotSupported, Timeout, Unreachable

        self._check_encryption()
        parameters = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        body = None if method in ("GET", "DELETE") else content
        try:
            response = self._http.request(
                method, path, f"{method} {path}", query=parameters, body=body, content_type=kind
            )
        except Unreachable as error:
            hint = trust_hint(error) if self.url.startswith("https:") else self._hint
            raise NoResponse(f"{error}; {hint}" if hint else str(error)) from error
        except (ConnectionLost, Timeout) as error:
            raise NoResponse(str(error)) from error
        except NotSupported as error:  # a redirect from http:// to https://, or back
            raise RestError(f"{error}; give that address instead") from error
        except ClientError as error:
            raise RestError(str(error)) from error
        if response.is_success:
            return response
        reason = reason_of(response) or f"{response.reason_phrase or 'error'} for {method} {response.request.url.path}"
        raise Refused(response.status_code, reason, _login_hint(response.status_code, token_of(response)))

    def _check_encryption(self) -> None:
        if self.security is not None and self.security.trust_certs_file and not self.url.startswith("https:"):
            raise InvalidSetting(f"{self._trust_from} requires an https:// address, not {self.url}")


def trust_hint(error: Exception) -> str:
    """The option that the remedy of an untrusted certificate is; empty for any other error."""
    from magnetar.security.tls import Fault, fault_of

    return _TRUST_HINT if fault_of(error) is Fault.UNTRUSTED else ""


def _login_hint(status: int, token: str) -> str:
    """How to log in, or what is wrong with a login; `token` is empty without one."""
    from magnetar.security.token import expiry_hint, subject_of

    if status == _NOT_AUTHENTICATED:
        return expiry_hint(token) if token else LOGIN_HINT
    if status == _NOT_AUTHORIZED and (role := subject_of(token)):
        return f"the token is for role {role!r}"
    return ""


def checked_url(text: str) -> str:
    """The address without a trailing slash; raises `InvalidSetting`."""
    check_no_login(text, "--url")
    parts = urlsplit(text)
    if parts.scheme in ("pulsar", "pulsar+ssl"):
        raise InvalidSetting(f"--url {text} is a binary address; expected an HTTP address such as {DEFAULT_URL}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidSetting(f"--url {text} is not of the form http://host:port")
    try:
        _ = parts.port
    except ValueError as error:
        raise InvalidSetting(f"--url {text} has a port outside 0 to 65535") from error
    return text.rstrip("/")


def check_no_login(address: str, source: str) -> None:
    """Raises `InvalidSetting`, which does not repeat it: it would be sent as a login, and shown in errors."""
    if "@" in address:  # anywhere: a password may have a slash
        raise InvalidSetting(f"{source} has a login in its address: give the address alone, and the login by itself")


def path_of(segments: tuple[str, ...]) -> str:
    return "".join("/" + _encoded(segment) for segment in segments)


def _encoded(segment: str) -> str:
    # HTTP clients resolve "." and ".."; percent-encoded they are kept.
    return segment.replace(".", "%2E") if segment in (".", "..") else quote(segment, safe="")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decoded(response: httpx.Response) -> Any:
    """The JSON of a response; None if it is empty, its text if it is not JSON."""
    if not response.content.strip():
        return None
    try:
        return response.json()
    except ValueError:
        if JSON in response.headers.get("content-type", ""):
            raise RestError(f"{response.request.url} returned invalid JSON") from None
        return response.text

"""OAuth 2 with client credentials: a token from an issuer, kept until it is about to expire.

Owns the exchange with the issuer, by Pulsar's parameters. A client secret leaves this machine encrypted or not at all.
Knows nothing of brokers.
"""

from __future__ import annotations

import base64
import binascii
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import msgspec

from magnetar.client.errors import InvalidArgument
from magnetar.security.folders import below
from magnetar.security.regular_files import PEM_SIZE_MAX, check_regular
from magnetar.settings.addresses import is_loopback

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

TIMEOUT_S = 10.0
"""For the whole exchange with an issuer."""
KEY_SIZE_MAX = 1 << 20
ANSWER_SIZE_MAX = 1 << 20
TOKENS_MAX = 100
"""Logins whose tokens are kept; the one that was used longest ago is forgotten first."""
EXPIRES_DEFAULT_S = 300.0
"""For an issuer that does not say how long its token is valid."""

_BOTH_WAYS = 2  # SHUT_RDWR
_USED_FRACTION = 0.9  # of its life: a token that expires on its way is refused
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_DISCOVERY = "/.well-known/openid-configuration"


class _Key(msgspec.Struct):
    """The file of Pulsar's documentation: {"type": "client_credentials", "client_id": …, "client_secret": …}."""

    client_id: str
    client_secret: str
    type: str = "client_credentials"


class _Issuer(msgspec.Struct):
    token_endpoint: str


class _Token(msgspec.Struct):
    access_token: str
    expires_in: float = EXPIRES_DEFAULT_S


class OAuth2(msgspec.Struct, frozen=True, kw_only=True):
    """`private_key` is a JSON file with `client_id` and `client_secret`: a path, file:///path, or data:…;base64,…"""

    issuer_url: str
    private_key: str
    audience: str = ""
    scope: str = ""
    trust_certs_file: str | None = None
    """Trusted CA certificates of the issuer; the default is the system's."""

    def __post_init__(self) -> None:
        if not self.private_key:
            raise InvalidArgument("private_key is empty")
        _check_url(self.issuer_url, "issuer_url")

    def __repr__(self) -> str:
        key = "(hidden)" if self.private_key.startswith("data:") else repr(self.private_key)
        return (
            f"OAuth2(issuer_url={self.issuer_url!r}, private_key={key}, audience={self.audience!r},"
            f" scope={self.scope!r})"
        )

    @property
    def key_file(self) -> str | None:
        return None if self.private_key.startswith("data:") else _path_of(self.private_key)

    def within(self, folders: tuple[str, ...] | None) -> OAuth2:
        """With a key file that is below one of `folders`; raises `InvalidArgument`. None permits every file."""
        if folders is None or self.key_file is None:
            return self
        return msgspec.structs.replace(self, private_key=below(self.key_file, folders, "private_key"))

    def token(self) -> str:
        """A valid token, fetched if the last one is about to expire; raises `InvalidArgument`."""
        kept = _kept_for(self)
        with kept.lock:
            now_s = time.monotonic()
            if kept.until_s <= now_s:
                found = self._fetch()
                kept.token, kept.until_s = found.access_token, now_s + found.expires_in * _USED_FRACTION
            return kept.token

    def read_key(self) -> tuple[str, str]:
        """The client's id and its secret; raises `InvalidArgument`."""
        key = _decoded(_key_bytes(self.private_key), _Key, "private_key")
        if key.type != "client_credentials":
            raise InvalidArgument(f"private_key is of type {key.type[:100]!r}, not client_credentials")
        return key.client_id, key.client_secret

    def _fetch(self) -> _Token:
        import httpx

        client_id, client_secret = self.read_key()
        form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": client_secret}
        form |= {name: value for name, value in (("audience", self.audience), ("scope", self.scope)) if value}
        deadline = _Deadline(self.issuer_url)
        try:
            with deadline, httpx.Client(timeout=TIMEOUT_S, verify=_context(self.trust_certs_file)) as client:
                options: dict[str, Any] = {
                    "headers": {"Accept-Encoding": "identity"},
                    "extensions": {"trace": deadline.trace},
                }
                with client.stream("GET", self.issuer_url.rstrip("/") + _DISCOVERY, **options) as response:
                    endpoint = _answer(response, _Issuer).token_endpoint
                self._check_endpoint(endpoint)
                with client.stream("POST", endpoint, data=form, **options) as response:
                    return _answer(response, _Token)
        except httpx.HTTPError as error:
            raise InvalidArgument(f"no token from {self.issuer_url}: {error or type(error).__name__}") from None

    def _check_endpoint(self, url: str) -> None:
        """An issuer elsewhere does not choose what this machine sends to itself."""
        _check_url(url, f"token_endpoint of {self.issuer_url}")
        if _is_on_this_machine(url) and not _is_on_this_machine(self.issuer_url):
            raise InvalidArgument(
                f"token_endpoint of {self.issuer_url} {url!r} is on this machine, and the issuer is not"
            )


class _KeptToken:
    """The token of one login. `lock` is held while a new one is fetched: other logins do not wait for it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.token = ""
        self.until_s = 0.0


_tokens: OrderedDict[OAuth2, _KeptToken] = OrderedDict()
_lock = threading.Lock()


def _kept_for(login: OAuth2) -> _KeptToken:
    with _lock:
        kept = _tokens.setdefault(login, _KeptToken())
        _tokens.move_to_end(login)
        if len(_tokens) > TOKENS_MAX:
            _tokens.popitem(last=False)
        return kept


class _Deadline:
    """Ends an exchange that takes too long: the limits of httpx are those of one read, which may bring one byte."""

    def __init__(self, issuer_url: str) -> None:
        self._issuer_url = issuer_url
        self._is_over = False
        self._stream: Any = None
        self._timer = threading.Timer(TIMEOUT_S, self._end)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._timer.cancel()
        if self._is_over and error is not None:
            raise InvalidArgument(f"no token from {self._issuer_url}: no answer within {TIMEOUT_S:g} s") from None

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """Receives the events of httpx, of which a connection is one."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._stream = info["return_value"]
            if self._is_over:
                self._end()

    def _end(self) -> None:
        self._is_over = True
        if self._stream is not None:
            with suppress(OSError):  # it is closed
                self._stream.get_extra_info("socket").shutdown(_BOTH_WAYS)


def _context(trust_certs_file: str | None) -> Any:
    import ssl

    if trust_certs_file is not None:
        check_regular(trust_certs_file, "trust_certs_file", PEM_SIZE_MAX)
    try:
        return ssl.create_default_context(cafile=trust_certs_file)
    except OSError as error:
        raise InvalidArgument(f"trust_certs_file {trust_certs_file!r} cannot be used: {error.strerror}") from None


def _answer(response: httpx.Response, kind: type[T]) -> T:
    url = response.request.url
    if not response.is_success:  # redirects too: they could lead anywhere
        raise InvalidArgument(f"no token from {url.scheme}://{url.host}{url.path}: HTTP {response.status_code}")
    what = f"the answer of {url.scheme}://{url.host}{url.path}"
    content = bytearray()
    for chunk in response.iter_raw():
        content += chunk
        if len(content) > ANSWER_SIZE_MAX:
            raise InvalidArgument(f"{what} has more than {ANSWER_SIZE_MAX} bytes")
    return _decoded(bytes(content), kind, what)


def _decoded(content: bytes, kind: type[T], what: str) -> T:
    """Errors of the decoder name fields, and never values."""
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"{what} is not as expected: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidArgument(f"{what} is not JSON") from None


def _key_bytes(text: str) -> bytes:
    if text.startswith("data:"):
        kind, _, content = text.partition(",")
        try:
            return base64.b64decode(content, validate=True) if kind.endswith(";base64") else unquote_to_bytes(content)
        except binascii.Error:
            raise InvalidArgument("private_key is data: but not in base64") from None
    path = _path_of(text)
    check_regular(path, "private_key", KEY_SIZE_MAX)
    try:
        with Path(path).open("rb") as file:
            return file.read(KEY_SIZE_MAX)
    except OSError as error:
        raise InvalidArgument(f"private_key {path!r} cannot be read: {error.strerror or error}") from None


def _path_of(text: str) -> str:
    return unquote(urlsplit(text).path) if text.startswith("file:") else text


def _is_on_this_machine(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


def _check_url(url: str, what: str) -> None:
    parts = urlsplit(url)
    is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK
    if not is_local and (parts.scheme != "https" or not parts.hostname):
        raise InvalidArgument(f"{what} {url!r} is not of the form https://host: a client secret would be readable")

"""Settings of TLS and authentication: `Security`, and what a client shows with them.

Owns the source of a token or password, and that neither is ever printed. Opens no connection; `tls` builds contexts,
`oauth2` fetches tokens, and `pulsar_parameters` reads the spellings of Pulsar's clients.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from magnetar.client.errors import InvalidArgument
from magnetar.security.folders import below
from magnetar.security.oauth2 import OAuth2
from magnetar.security.regular_files import check_regular

TOKEN_SIZE_MAX = 1 << 20
_HIDDEN = "(hidden)"
_SECRETS = ("token", "password", "token_supplier")

_File = str | os.PathLike[str]


class Credentials(msgspec.Struct, frozen=True):
    """The authentication data of CONNECT and AUTH_RESPONSE."""

    method: str
    data: bytes

    def __repr__(self) -> str:
        return f"Credentials(method={self.method!r}, data={_HIDDEN})"


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of TLS and authentication; can be pickled and shared.

    `trust_certs_file` has the trusted CA certificates in PEM; the default is the system's. `certificate_file` and
    `key_file` are our own (mutual TLS). Only one of `token`, `token_file`, `token_supplier`, `username` and `oauth2`
    may be given. `token_file` is read, and `token_supplier` called, whenever a token is needed: it can be replaced at
    any time.
    """

    trust_certs_file: _File | None = None
    allow_insecure: bool = False
    """Accepts any certificate: a man in the middle can read and change everything."""
    verify_hostname: bool = True
    certificate_file: _File | None = None
    key_file: _File | None = None
    token: str | None = None
    token_file: _File | None = None
    token_supplier: Callable[[], str] | None = None
    """Called in a thread of its own, so it may take its time. Pickled only if it is a function of a module."""
    username: str | None = None
    password: str | None = None
    oauth2: OAuth2 | None = None
    folders: tuple[str, ...] | None = None
    """Files of tokens, certificates and keys must be below one of these, or be one; checked whenever one is read. None
    permits every file. Those of authorities may be anywhere: nothing of them is sent."""

    def __post_init__(self) -> None:
        sources = ("token", "token_file", "token_supplier", "username", "oauth2")
        given = [name for name in sources if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidArgument(f"{given[0]} and {given[1]} exclude each other")
        for one, other in (("certificate_file", "key_file"), ("username", "password")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                found, missing = (one, other) if getattr(self, one) is not None else (other, one)
                raise InvalidArgument(f"{found} requires {missing}")
        if self.token is not None:
            _check_token(self.token, "token")
        if self.username is not None:
            _check_user(self.username, self.password)
        if self.token_supplier is not None and not callable(self.token_supplier):
            raise InvalidArgument(f"token_supplier is a {type(self.token_supplier).__name__}, not a function")

    def __repr__(self) -> str:
        shown = {name: value for name, value in _fields(self).items() if value is not None}
        words = (f"{name}={_HIDDEN if name in _SECRETS else repr(value)}" for name, value in shown.items())
        return f"Security({', '.join(words)})"

    @property
    def takes_time(self) -> bool:
        """Whether `credentials` and `authorization` may wait for another service: not for an event loop."""
        return self.oauth2 is not None or self.token_supplier is not None

    @property
    def is_secret(self) -> bool:
        """Whether what is sent would serve anyone who reads it on the way."""
        return any(value is not None for value in (self.token, self.token_file, self.username)) or self.takes_time

    def read_token(self) -> str | None:
        """The current token, which OAuth 2 may have to fetch; raises `InvalidArgument`."""
        if self.oauth2 is not None:
            token = self.oauth2.within(self.folders).token()
            _check_token(token, f"the token of {self.oauth2.issuer_url}")
            return token
        if self.token_supplier is not None:
            try:
                token = self.token_supplier()
            except Exception as error:  # its text may have a secret
                raise InvalidArgument(f"token_supplier failed with {type(error).__name__}") from error
            _check_token(token, "the token of token_supplier")
            return token
        return self.token if self.token_file is None else _read_token_file(self.token_file, self.folders)

    def credentials(self) -> Credentials | None:
        """The token or password, or else the certificate; with both, the certificate serves TLS only."""
        if self.username is not None:
            return Credentials("basic", f"{self.username}:{self.password}".encode())
        token = self.read_token()
        if token is not None:
            return Credentials("token", token.encode())
        return Credentials("tls", b"") if self.certificate_file is not None else None

    def authorization(self) -> str | None:
        """The header of HTTP requests; raises `InvalidArgument`."""
        if self.username is not None:
            return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        token = self.read_token()
        return None if token is None else f"Bearer {token}"

    def check(self) -> None:
        """Raises `InvalidArgument` if a file cannot be used. Asks no other service."""
        if self.oauth2 is not None:
            self.oauth2.within(self.folders).read_key()
        elif self.token_supplier is None:
            self.read_token()

    def without_secrets(self) -> Security:
        """What TLS needs; raises `InvalidArgument` for a file that is not below `folders`."""
        certificate, key = self.certificate_file, self.key_file
        return Security(
            trust_certs_file=self.trust_certs_file,
            allow_insecure=self.allow_insecure,
            verify_hostname=self.verify_hostname,
            certificate_file=None if certificate is None else below(certificate, self.folders, "certificate_file"),
            key_file=None if key is None else below(key, self.folders, "key_file"),
        )

    @property
    def files(self) -> tuple[str, ...]:
        """Those that must be below `folders`."""
        certificate = () if self.certificate_file is None else (os.fspath(self.certificate_file),)
        return (*certificate, *self.secret_files)

    @property
    def secret_files(self) -> tuple[str, ...]:
        """Those with a token or a key."""
        key = None if self.oauth2 is None else self.oauth2.key_file
        return tuple(os.fspath(file) for file in (self.token_file, self.key_file, key) if file is not None)

    @classmethod
    def from_pulsar(cls, parameters: Mapping[str, object]) -> Security:
        """Reads the parameters of Pulsar's clients in `PULSAR_PARAMETERS`; raises `NotSupported` for all others.

        Host names are verified unless `tlsHostnameVerificationEnable` is false.
        """
        from magnetar.security.pulsar_parameters import settings_of

        return cls(**settings_of(parameters))


def _fields(security: Security) -> dict[str, object]:
    return {name: getattr(security, name) for name in security.__struct_fields__}


def _read_token_file(file: _File, folders: tuple[str, ...] | None) -> str:
    what = f"token_file {os.fspath(file)!r}"
    path = below(file, folders, "token_file")
    check_regular(path, "token_file", TOKEN_SIZE_MAX)
    try:
        with Path(path).open("rb") as opened:
            content = opened.read(TOKEN_SIZE_MAX)
    except OSError as error:
        raise InvalidArgument(f"{what} cannot be read: {error.strerror or error}") from None
    token = content.decode(errors="replace").strip()
    _check_token(token, what)
    return token


def _check_user(username: object, password: object) -> None:
    for name, text in (("username", username), ("password", password)):
        if not isinstance(text, str):
            raise InvalidArgument(f"{name} is a {type(text).__name__}, not a string")
        if len(text) > TOKEN_SIZE_MAX:
            raise InvalidArgument(f"{name} exceeds the size limit of a token, {TOKEN_SIZE_MAX} characters")
        if any(character < " " or character == "\x7f" for character in text):
            raise InvalidArgument(f"{name} contains line breaks or other control characters")
    if not username or ":" in str(username):
        raise InvalidArgument("username is empty" if not username else "username contains a colon")


def _check_token(token: object, what: str) -> None:
    """A token becomes an HTTP header, which a line break would split."""
    if not isinstance(token, str):
        raise InvalidArgument(f"{what} is a {type(token).__name__}, not a string")
    if not token:
        raise InvalidArgument(f"{what} is empty")
    if len(token) > TOKEN_SIZE_MAX:
        raise InvalidArgument(f"{what} exceeds the size limit of a token, {TOKEN_SIZE_MAX} characters")
    if not all("!" <= character <= "~" for character in token):
        raise InvalidArgument(f"{what} contains spaces, line breaks or other characters that are illegal in a token")

"""A parsed request: the names in its path, its parameters and its body, each checked when a handler reads it.

Knows no routes and no handlers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import msgspec

from magnetar.access.principal import NO_ONE_ASKED, Author, Principal
from magnetar.admin.http.errors import BadRequest, BrokerNotFound, Forbidden
from magnetar.bounds import MAP_SIZE
from magnetar.broker.broker import Broker
from magnetar.errors import InvalidName, MetadataInvalid
from magnetar.health import Vitals
from magnetar.names import SUBSCRIPTION_NAME_BYTES_MAX, TopicName, parse_namespace
from magnetar.settings.listeners import Listener
from magnetar.storage.api import CheckpointFolder

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class BodyDecoder(Protocol[T_co]):
    """Reads a body of one shape; raises msgspec.DecodeError."""

    def decode(self, body: bytes, /) -> T_co: ...


class Alarm(Protocol):
    """A wait that ends when it rings, times out, or the client disconnects: then `wait` returns False."""

    def ring(self) -> None: ...

    async def wait(self, seconds: float) -> bool: ...


class BackupSource(Protocol):
    """Checkpoints of the data, one at a time; both raise MagnetarError."""

    async def make(self) -> CheckpointFolder: ...

    async def discard(self) -> bool: ...


_SHOWN_MAX = 500  # of an error text that may repeat the request
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Call:
    """`path` has the decoded segments of the path, `host` and `http_port` are the address that the client used.

    `alarm` creates an alarm for a handler that has to wait.
    """

    broker: Broker
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    accept: str
    host: str
    http_port: int
    addresses: Callable[[str, str], Listener]
    alarm: Callable[[], Alarm]
    vitals: Vitals
    backups: BackupSource
    principal: Principal = NO_ONE_ASKED
    may_be_browser: bool = False  # a web page may have made this request
    listener: str = ""  # the advertised listener that the client names
    is_tls: bool = False  # the client came by HTTPS
    shared: dict[type, Any] = field(default_factory=dict)  # by all requests: see `shared_by_all`

    def shared_by_all(self, kind: type[T], create: Callable[[], T]) -> T:
        """What handlers keep from one request to the next, as long as the application: one object of each kind."""
        kept: T | None = self.shared.get(kind)
        if kept is None:
            kept = self.shared[kind] = create()
        return kept

    @property
    def author(self) -> Author | None:
        """Of a policy that this request sets."""
        return self.broker.authorization.author(self.principal)

    @property
    def own(self) -> Listener:
        """Our addresses for a client that names no listener."""
        return self._reached(self.addresses(self.host, ""), self.broker.settings.listener())

    @property
    def own_for_listener(self) -> Listener:
        """For the listener that the client names; raises NotAllowed if there is none of this name."""
        return self._reached(self.addresses(self.host, self.listener), self.broker.settings.listener(self.listener))

    def _reached(self, found: Listener, advertised: Listener) -> Listener:
        """The port by which the client came is the one that it knows: it may be mapped."""
        if advertised.any_http_url:
            return found
        host = self.broker.settings.advertisedAddress or self.host
        address = f"[{host}]:{self.http_port}" if ":" in host else f"{host}:{self.http_port}"
        return replace(
            found, **({"http_url_tls": f"https://{address}"} if self.is_tls else {"http_url": f"http://{address}"})
        )

    @property
    def service_url(self) -> str:
        """Our binary address for a client that names no listener: with TLS if it came so, or if there is no other."""
        own = self.own
        return (self.is_tls and own.service_url_tls) or own.any_service_url

    @property
    def http_url(self) -> str:
        """The same of HTTP."""
        own = self.own
        return (self.is_tls and own.http_url_tls) or own.any_http_url

    @property
    def http_address(self) -> str:
        """Host and port of HTTP at which the client reaches this broker."""
        return self.http_url.partition("://")[2]

    def check_broker(self, broker_id: str | None) -> None:
        """Raises BrokerNotFound for the id of another broker."""
        address = self.http_address
        if broker_id and broker_id.removeprefix("http://").removeprefix("https://") != address:
            raise BrokerNotFound(f"broker {broker_id[:100]!r} not found: the only broker is {address}")

    def check_program(self, what: str) -> None:
        """Raises Forbidden if a web page may have made this request: for a GET that changes something."""
        if self.may_be_browser:
            raise Forbidden(f"{what} is refused to browsers: a web page may have made this request")

    @property
    def topic(self) -> TopicName:
        return TopicName.parse(
            f"{self.path['domain']}://{self.path['tenant']}/{self.path['namespace']}/{self.path['topic']}"
        )

    @property
    def namespace(self) -> str:
        namespace = f"{self.path['tenant']}/{self.path['namespace']}"
        parse_namespace(namespace)
        return namespace

    @property
    def subscription(self) -> str:
        name = self.path["subscription"]
        size = len(name.encode())
        if size > SUBSCRIPTION_NAME_BYTES_MAX:
            raise InvalidName(f"subscription name of {size} bytes exceeds the limit of {SUBSCRIPTION_NAME_BYTES_MAX}")
        return name

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean parameter; an empty one, as in `?force`, is true."""
        text = self.query.get(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false", ""):
            raise BadRequest(f"parameter {name}={text[:100]!r} is not true or false")
        return text.lower() != "false"

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """A parameter with a fixed set of values; the first is the default."""
        text = self.query.get(name, allowed[0])
        if text.upper() not in allowed:
            raise BadRequest(f"parameter {name}={text[:100]!r} is not one of {', '.join(allowed)}")
        return text.upper()

    def number(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """An integer from the path or, if it is not there, from the parameters."""
        text = self.path.get(name) or self.query.get(name)
        if text is None and default is not None:
            return default
        if text is None or not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            shown = "is missing, it" if text is None else f"{text[:100]!r}"
            raise BadRequest(f"parameter {name} {shown} must be an integer from {low} to {high}")
        return int(text)

    def body_as(self, decoder: BodyDecoder[T]) -> T | None:
        """The decoded body; None if it is empty or null."""
        if self.body.strip() in (b"", b"null"):
            return None
        try:
            return decoder.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"invalid request body: {str(error)[:_SHOWN_MAX]}") from error


def check_map(name: str, pairs: Mapping[str, str]) -> None:
    """Raises if keys and values together have more bytes than a map may have."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in pairs.items())
    if size > MAP_SIZE.limit:
        raise MetadataInvalid(f"{name} of {size} bytes exceeds {MAP_SIZE.limit}")

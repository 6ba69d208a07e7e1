"""One request, taken apart: the names in its path, its parameters and its body, each checked when it is asked for.

Owns how a request is read. It does not know routes, and nothing of what a handler does with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec

from magnetar.admin.http.errors import BadRequest
from magnetar.broker.broker import Broker
from magnetar.errors import InvalidName
from magnetar.names import TopicName, parse_namespace

T = TypeVar("T")


class Alarm(Protocol):
    """Something to wait for: until it rings, or until the time is over."""

    def ring(self) -> None: ...

    async def wait(self, seconds: float) -> None: ...


SUBSCRIPTION_NAME_BYTES_MAX = 1024

_SHOWN_MAX = 500  # of an error that may repeat what was sent
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Call:
    """`path` holds the decoded parts of the address, `host` and `http_port` are how the client reached this broker.

    `alarm` makes what a handler waits for that has nothing to say yet.
    """

    broker: Broker
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    accept: str
    host: str
    http_port: int
    service_url: Callable[[str], str]
    alarm: Callable[[], Alarm]

    @property
    def http_address(self) -> str:
        """Host and port of HTTP at which the client reaches this broker."""
        host = self.broker.settings.advertisedAddress or self.host
        return f"[{host}]:{self.http_port}" if ":" in host else f"{host}:{self.http_port}"

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
        """A parameter that is true or false; the empty `?force` is true."""
        text = self.query.get(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false", ""):
            raise BadRequest(f"parameter {name}={text[:100]!r} is neither true nor false")
        return text.lower() != "false"

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """A parameter that is one of several words; the first is the default."""
        text = self.query.get(name, allowed[0])
        if text.upper() not in allowed:
            raise BadRequest(f"parameter {name}={text[:100]!r} is not one of {', '.join(allowed)}")
        return text.upper()

    def number(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number, from the path where it has a place there and else from the parameters."""
        text = self.path.get(name) or self.query.get(name)
        if text is None and default is not None:
            return default
        if text is None or not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            shown = "is missing: it" if text is None else f"{text[:100]!r}"
            raise BadRequest(f"parameter {name} {shown} has to be a whole number from {low} to {high}")
        return int(text)

    def body_as(self, decoder: msgspec.json.Decoder[T]) -> T | None:
        """The body as the decoder's type; None when it is empty or null."""
        if self.body.strip() in (b"", b"null"):
            return None
        try:
            return decoder.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the request body is not what is expected here: {str(error)[:_SHOWN_MAX]}") from error

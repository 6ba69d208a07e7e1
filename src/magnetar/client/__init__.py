"""A client of the Pulsar protocol, blocking (`Client`) and for asyncio (`AsyncClient`).

    with magnetar.client.Client("pulsar://localhost:6650") as client:
        client.producer("hello").send(b"world")

`errors` has every error; `connection.protocol` is the protocol itself, without input or output.

Names are imported on first use (PEP 562): `security` imports the errors, and must not import the client with them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magnetar.client.async_client import AsyncClient
    from magnetar.client.blocking.client import Client
    from magnetar.client.blocking.producer import Producer
    from magnetar.client.blocking.readers import Consumer, Cursor, Reader, TopicTail, TopicWatcher
    from magnetar.client.consume.consumer import AsyncConsumer
    from magnetar.client.consume.cursor import AsyncCursor
    from magnetar.client.consume.entry import Entry
    from magnetar.client.consume.entry_reader import AsyncEntryReader
    from magnetar.client.consume.raw_consumer import Bounds
    from magnetar.client.consume.reader import AsyncReader
    from magnetar.client.consume.tail import AsyncTopicTail
    from magnetar.client.consume.topic_watcher import AsyncTopicWatcher
    from magnetar.client.inline import InlineClient
    from magnetar.client.message import EARLIEST, LATEST, Message, MessageId, Position
    from magnetar.client.produce.producer import AsyncProducer
    from magnetar.client.schema import Schema
    from magnetar.security.credentials import Security
    from magnetar.security.oauth2 import OAuth2

__all__ = [
    "EARLIEST",
    "LATEST",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncCursor",
    "AsyncEntryReader",
    "AsyncProducer",
    "AsyncReader",
    "AsyncTopicTail",
    "AsyncTopicWatcher",
    "Bounds",
    "Client",
    "Consumer",
    "Cursor",
    "Entry",
    "InlineClient",
    "Message",
    "MessageId",
    "OAuth2",
    "Position",
    "Producer",
    "Reader",
    "Schema",
    "Security",
    "TopicTail",
    "TopicWatcher",
]

_MODULES = {
    "AsyncClient": "magnetar.client.async_client",
    "AsyncConsumer": "magnetar.client.consume.consumer",
    "AsyncCursor": "magnetar.client.consume.cursor",
    "AsyncEntryReader": "magnetar.client.consume.entry_reader",
    "AsyncProducer": "magnetar.client.produce.producer",
    "AsyncReader": "magnetar.client.consume.reader",
    "AsyncTopicTail": "magnetar.client.consume.tail",
    "AsyncTopicWatcher": "magnetar.client.consume.topic_watcher",
    "Bounds": "magnetar.client.consume.raw_consumer",
    "Client": "magnetar.client.blocking.client",
    "Consumer": "magnetar.client.blocking.readers",
    "Cursor": "magnetar.client.blocking.readers",
    "EARLIEST": "magnetar.client.message",
    "Entry": "magnetar.client.consume.entry",
    "InlineClient": "magnetar.client.inline",
    "LATEST": "magnetar.client.message",
    "Message": "magnetar.client.message",
    "MessageId": "magnetar.client.message",
    "OAuth2": "magnetar.security.oauth2",
    "Position": "magnetar.client.message",
    "Producer": "magnetar.client.blocking.producer",
    "Reader": "magnetar.client.blocking.readers",
    "Schema": "magnetar.client.schema",
    "Security": "magnetar.security.credentials",
    "TopicTail": "magnetar.client.blocking.readers",
    "TopicWatcher": "magnetar.client.blocking.readers",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value

"""A client of the Pulsar protocol, blocking (`Client`) and for asyncio (`AsyncClient`).

    with magnetar.client.Client("pulsar://localhost:6650") as client:
        client.producer("hello").send(b"world")

`errors` has every error; `protocol` is the conversation itself, without input or output.
"""

from magnetar.client.aio import AsyncClient
from magnetar.client.blocking import Client
from magnetar.client.blocking_producer import Producer
from magnetar.client.blocking_reading import Consumer, Cursor, Reader, TopicWatch
from magnetar.client.catalogue import Schema
from magnetar.client.consumer import AsyncConsumer
from magnetar.client.cursor import AsyncCursor
from magnetar.client.entries import AsyncEntryReader
from magnetar.client.entry import Entry
from magnetar.client.inline import InlineClient
from magnetar.client.message import EARLIEST, LATEST, Message, MessageId
from magnetar.client.producer import AsyncProducer
from magnetar.client.reader import AsyncReader
from magnetar.client.security import Security
from magnetar.client.tap import Bounds
from magnetar.client.watch import AsyncTopicWatch

__all__ = [
    "EARLIEST",
    "LATEST",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncCursor",
    "AsyncEntryReader",
    "AsyncProducer",
    "AsyncReader",
    "AsyncTopicWatch",
    "Bounds",
    "Client",
    "Consumer",
    "Cursor",
    "Entry",
    "InlineClient",
    "Message",
    "MessageId",
    "Producer",
    "Reader",
    "Schema",
    "Security",
    "TopicWatch",
]

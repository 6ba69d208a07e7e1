"""A client of the Pulsar protocol, blocking (`Client`) and for asyncio (`AsyncClient`).

    with magnetar.client.Client("pulsar://localhost:6650") as client:
        client.producer("hello").send(b"world")

`errors` has every error; `protocol` is the conversation itself, without input or output.
"""

from magnetar.client.aio import AsyncClient
from magnetar.client.blocking import Client, Consumer, Producer, Reader
from magnetar.client.consumer import AsyncConsumer
from magnetar.client.message import EARLIEST, LATEST, Message, MessageId
from magnetar.client.producer import AsyncProducer
from magnetar.client.reader import AsyncReader

__all__ = [
    "EARLIEST",
    "LATEST",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncReader",
    "Client",
    "Consumer",
    "Message",
    "MessageId",
    "Producer",
    "Reader",
]

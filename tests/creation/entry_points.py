"""An in-memory broker and every entry point that can create a topic: three commands and two REST calls.

`ask` returns the response: a number of partitions, "ok", or an error as (code, text), where the code is the protocol's
or the HTTP status.
"""

from __future__ import annotations

from itertools import count
from typing import Any
from urllib.parse import quote

from magnetar.names import TopicName
from magnetar.session.handles import ClientAddress
from magnetar.session.session import Session
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import FrameDecoder, encode_frame
from tests.admin.driver import Admin

Command = pb.BaseCommand
Answer = int | str | tuple[int, str]

TOPIC_NOT_FOUND, NOT_ALLOWED = 11, 22

BINARY_ENTRY_POINTS = ("PRODUCER", "SUBSCRIBE", "PARTITIONED_METADATA")
REST_ENTRY_POINTS = ("GET partitions", "PUT subscription")
ENTRY_POINTS = BINARY_ENTRY_POINTS + REST_ENTRY_POINTS


class EntryPoints:
    def __init__(self, **settings: Any) -> None:
        self.admin = Admin(**settings)
        self._ids = count(1)
        self._connect()

    def _connect(self) -> None:
        address = ClientAddress("10.0.0.9:1234", "pulsar://here:6650", "http://here:8080")
        self._session = Session(self.admin.broker, address, lambda: None, lambda: None)
        self._send(Command(type=Command.CONNECT, connect=pb.CommandConnect(client_version="t", protocol_version=21)))

    def restart(self) -> None:
        """Crashes the broker and restarts it on its disk, with the same settings."""
        self.admin = Admin(self.admin.storage.crash(), **_as_dict(self.admin))
        self._connect()

    def ask(self, entry_point: str, topic: str, *, create: bool = True, subscription: str = "s") -> Answer:
        if entry_point == "PRODUCER":
            return self._producer(topic)
        if entry_point == "SUBSCRIBE":
            return self._subscribe(topic, subscription, create)
        if entry_point == "PARTITIONED_METADATA":
            return self.metadata(topic, create)
        if entry_point == "GET partitions":
            return self.rest_partitions(topic, "true" if create else "false")
        response = self.admin("PUT", f"{_path(topic)}/subscription/{quote(subscription, safe='')}")
        return "ok" if response.status_code == 204 else (response.status_code, response.json()["reason"])

    def metadata(self, topic: str, create: bool | None) -> Answer:
        request = pb.CommandPartitionedTopicMetadata(topic=topic, request_id=next(self._ids))
        if create is not None:
            request.metadata_auto_creation_enabled = create
        reply = self._send(Command(type=Command.PARTITIONED_METADATA, partitionMetadata=request))
        answer = reply.partitionMetadataResponse
        if answer.response == pb.CommandPartitionedTopicMetadataResponse.Success:
            return answer.partitions
        return answer.error, answer.message

    def rest_partitions(self, topic: str, flag: str | None) -> Answer:
        query = "" if flag is None else f"?checkAllowAutoCreation={flag}"
        response = self.admin("GET", f"{_path(topic)}/partitions{query}")
        if response.status_code == 200:
            return int(response.json()["partitions"])
        return response.status_code, response.json()["reason"]

    def create(self, topic: str, partitions: int = 0) -> None:
        """Creates a topic as an administrator."""
        if partitions:
            self.admin.done("PUT", f"{_path(topic)}/partitions", json=partitions)
        else:
            self.admin.done("PUT", _path(topic))

    def properties(self, topic: str) -> Any:
        return self.admin.get(f"{_path(topic)}/properties")

    @property
    def existing(self) -> tuple[list[str], dict[str, int]]:
        """Local names of all topics, and of the partitioned ones with their count."""
        topics, partitioned = self.admin.existing()
        return [_local(full) for full in topics], {_local(full): count for full, count in partitioned.items()}

    def _producer(self, topic: str) -> Answer:
        number = next(self._ids)
        request = pb.CommandProducer(topic=topic, producer_id=number, request_id=number)
        return _outcome(self._send(Command(type=Command.PRODUCER, producer=request)))

    def _subscribe(self, topic: str, subscription: str, create: bool) -> Answer:
        number = next(self._ids)
        request = pb.CommandSubscribe(
            topic=topic,
            subscription=subscription,
            subType=pb.CommandSubscribe.Shared,
            consumer_id=number,
            request_id=number,
            force_topic_creation=create,
        )
        return _outcome(self._send(Command(type=Command.SUBSCRIBE, subscribe=request)))

    def _send(self, command: Command) -> Command:
        self._session.receive(encode_frame(command))
        self.admin.commit()
        (reply,) = (frame[0] for frame in FrameDecoder(1 << 20).receive_data(b"".join(self._session.take_output())))
        assert reply is not None
        return reply


def _outcome(reply: Command) -> Answer:
    return (reply.error.error, reply.error.message) if reply.type == Command.ERROR else "ok"


def _path(topic: str) -> str:
    name = TopicName.parse(topic)
    return f"/admin/v2/{name.domain}/{name.tenant}/{name.namespace}/{quote(name.local, safe='')}"


def _local(full: str) -> str:
    return full.rpartition("/")[2]


def _as_dict(admin: Admin) -> dict[str, Any]:
    return {name: getattr(admin.settings, name) for name in admin.settings.__struct_fields__}

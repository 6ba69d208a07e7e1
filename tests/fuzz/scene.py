"""A broker with topics, clients and messages, on which a hostile conversation is played and its consequences checked.

The rule: the client gets an answer or its connection ends with a reason; no exception is left over; other clients,
maintenance and a restart notice nothing, and everything that the broker stored is delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from urllib.parse import quote

from magnetar.broker.broker import Broker
from magnetar.broker.host import FaultKind, ManualHost
from magnetar.broker.subscription.consumer import Consumer, SubscriptionType
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.clock import ManualClock
from magnetar.names import TopicName
from magnetar.session.handles import ClientAddress, SessionState, request_id_of
from magnetar.session.session import Session
from magnetar.settings.settings import Settings
from magnetar.storage.api import Space
from magnetar.storage.memory import MemoryStorage
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.frames import Frame, FrameDecoder
from tests.admin.driver import Admin
from tests.admin.route_requests import send as request
from tests.broker.world import Client

from . import vandal
from .limits import cpu_limit

Command = pb.BaseCommand
START_MS = 1_800_000_000_000
READ_SIZE = 256 << 10  # of a socket, at most
_BYSTANDER = "persistent://public/default/bystander"
_LATER_MS = (1_000, 61_000, 660_000)  # the last runs every round of maintenance
_TURNS_MAX = 100_000
_SHARE_OF_A_FRAME = 0.002  # of the time of a large one, where many arrive in one read
_KEY_SIZE_MAX = 4096
# These have no answer of their own; the others are answered by request id.
_UNANSWERED = {"ack", "flow", "redeliverUnacknowledgedMessages", "send", "ping", "pong", "connect"}


class Broken(AssertionError):
    """The rule does not hold for an input."""


def hold(condition: object, reason: str) -> None:
    if not condition:
        raise Broken(reason)


class FaultCollector(ManualHost):
    """Collects faults: a hostile input must not cause any."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[tuple[FaultKind, Exception, str]] = []

    def fault(self, kind: FaultKind, error: Exception, where: str = "") -> None:
        self.faults.append((kind, error, where))


class Scene:
    def __init__(self, storage: MemoryStorage, settings: Settings) -> None:
        self.settings = settings
        self.storage = storage
        self.clock = ManualClock(START_MS)
        self.host = FaultCollector()
        self.broker = Broker(settings, storage, self.clock, self.host)
        self.settle()

    def settle(self) -> None:
        """Commits and dispatches until there is no more work."""
        for _ in range(_TURNS_MAX):
            is_busy = self.broker.has_work
            self.broker.pump()
            while (group := self.broker.commits.take()) is not None:
                self.storage.write(group.batch)
                self.storage.sync()
                group.complete()
                is_busy = True
            if not is_busy:
                break
        else:
            raise Broken("the broker never has enough")
        self.check_faults()

    def check_faults(self) -> None:
        for kind, error, where in self.host.faults:
            raise Broken(f"fault of kind {kind} {where}: {type(error).__name__}: {error}") from error

    def session(self, name: str) -> ClientSession:
        return ClientSession(self, name)

    def pass_time(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        with cpu_limit(5):
            self.broker.tick()
            self.settle()


class ClientSession:
    """A client's connection to the broker of a scene."""

    def __init__(self, scene: Scene, name: str) -> None:
        address = ClientAddress(f"{name}:1", "pulsar://scene:6650", "http://scene:8080")
        self._scene = scene
        self._decoder = FrameDecoder(64 << 20)
        self.session = Session(scene.broker, address, lambda: None, lambda: None)
        self.has_reason = False  # an ERROR was sent

    @property
    def is_open(self) -> bool:
        return self.session.state is not SessionState.CLOSED

    def send(self, *frames: bytes) -> list[Frame]:
        """Sends the frames in one read and returns the replies, once everything is durable."""
        replies: list[Frame] = []
        with cpu_limit(1 + len(frames) * _SHARE_OF_A_FRAME):
            for part in _reads(b"".join(frames)):
                self.session.receive(part)
                replies += self._taken()
            self._scene.settle()
            replies += self._taken()
        return replies

    def _taken(self) -> list[Frame]:
        """Replies are the caller's: a client that kept them would use up the memory that the broker is allowed."""
        replies = self._decoder.receive_data(b"".join(self.session.take_output()))
        hold(self._decoder.error is None, f"the broker sent {self._decoder.error}")
        self.has_reason |= any(reply.type == Command.ERROR for reply, _ in replies if reply is not None)
        return replies

    def lose(self) -> None:
        with cpu_limit():
            self.session.connection_lost()
            self._scene.settle()


def _reads(data: bytes) -> list[bytes]:
    return [data[start : start + READ_SIZE] for start in range(0, len(data), READ_SIZE)]


@cache
def _prepared(deduplicates: bool) -> MemoryStorage:
    """Topics with messages, subscriptions of three types, a partitioned topic and a schema."""
    scene = Scene(MemoryStorage(), _settings(deduplicates))
    scene.broker.catalog.create_partitioned(TopicName.parse("p"), 2, {})
    client = scene.session("preparation")
    schema = pb.Schema(name="R", schema_data=vandal.RECORD, type=pb.Schema.Avro)
    client.send(
        vandal.CONNECT,
        vandal.subscribe("t", "s", 1, sub_type=1),
        vandal.subscribe("t", "f", 2, sub_type=2),
        vandal.subscribe("t", "k", 3, sub_type=3),
        vandal.produce("t", 1),
        vandal.produce("typed", 2, schema=schema),
        vandal.produce("t-s-DLQ", 3),
    )
    client.send(*(vandal.good_send(number, batch=number % 2 * 3) for number in range(5)))
    client.lose()
    return scene.storage


def _settings(deduplicates: bool) -> Settings:
    return Settings(brokerDeduplicationEnabled=deduplicates, forceDeleteTenantAllowed=True)


def play(frames: Sequence[bytes], *, in_one_read: bool = False, deduplicates: bool = False) -> None:
    """Plays a conversation and checks its consequences. Raises Broken, TooExpensive, or what the broker raised."""
    scene = Scene(_prepared(deduplicates).crash(), _settings(deduplicates))
    bystander = _Bystander(scene)
    hostile = scene.session("vandal")
    if in_one_read:
        hostile.send(*frames)
    else:
        for frame in frames:
            if not hostile.is_open:
                break
            _check_answer(hostile, frame, hostile.send(frame))
    if not hostile.is_open:
        hold(hostile.has_reason, "closed without a reason")
    bystander.works()
    scene.pass_time(_LATER_MS[0])
    hostile.lose()
    for ms in _LATER_MS[1:]:
        scene.pass_time(ms)
    bystander.works()
    scene.broker.invariants()
    _check_delivery(scene)
    _check_restart(scene)


def _check_answer(client: ClientSession, frame: bytes, replies: Sequence[Frame]) -> None:
    """An open connection has an answer to each request."""
    if not client.is_open:
        return
    decoded = FrameDecoder(64 << 20).receive_data(frame)
    for command, _ in decoded:
        if command is None or any(field.name in _UNANSWERED for field, _ in command.ListFields()):
            continue
        wanted = request_id_of(command)
        answered = {request_id_of(reply) for reply, _ in replies if reply is not None}
        hold(wanted is None or wanted in answered, f"no answer to {Command.Type.Name(command.type)} {wanted}")


class _Bystander:
    """Another client, which publishes and consumes on its own topic."""

    def __init__(self, scene: Scene) -> None:
        self._client = scene.session("bystander")
        self._client.send(
            vandal.CONNECT,
            vandal.produce(_BYSTANDER, 1, producer_name="bystander"),
            vandal.subscribe(_BYSTANDER, "own", 1),
            vandal.flow(1, 1000),
        )
        self._sent = 0

    def works(self) -> None:
        replies = self._client.send(vandal.good_send(self._sent), vandal.good_send(self._sent + 1))
        self._sent += 2
        kinds = [reply.type for reply, _ in replies if reply is not None]
        hold(self._client.is_open, "another client lost its connection")
        hold(kinds.count(Command.SEND_RECEIPT) == 2, "another client got no receipt")
        messages = [reply.message for reply, _ in replies if reply is not None and reply.type == Command.MESSAGE]
        hold(len(messages) == 2, "another client got no message")


def _check_delivery(scene: Scene) -> None:
    """New consumers of every type receive everything that is stored."""
    for full in list(scene.broker.catalog.topics):
        topic = scene.broker.topic(TopicName.parse(full))
        assert isinstance(topic, PersistentTopic)
        stored = set(range(topic.log.first, topic.log.confirmed + 1))
        for kind in (SubscriptionType.Exclusive, SubscriptionType.Failover, SubscriptionType.Key_Shared):
            received = _received(scene, topic, kind)
            delayed = stored - received if topic.has_delayed and kind is SubscriptionType.Key_Shared else set()
            hold(received | delayed == stored, f"{full}, {kind.name}: {len(received)} of {len(stored)} are delivered")


def _received(scene: Scene, topic: PersistentTopic, kind: SubscriptionType) -> set[int]:
    peer = Client()
    consumer = Consumer(peer, 1, f"check-{kind.name}", kind, connected_at_ms=START_MS)
    with cpu_limit(5):
        topic.subscribe(consumer, SubscribeRequest(f"check-{kind.name}", durable=False, from_earliest=True))
        assert consumer.subscription is not None
        consumer.subscription.flow(consumer, 1 << 30)
        scene.settle()
        topic.remove_consumer(consumer)
        scene.settle()
    return set(peer.take())


def _check_restart(scene: Scene) -> None:
    """After a restart every topic opens, shows its statistics and can be deleted."""
    for space in Space:
        longest = max((len(key) for key, _ in scene.storage.scan(space, b"", b"\xff" * 16)), default=0)
        hold(longest <= _KEY_SIZE_MAX, f"a key of {longest} bytes is stored")
    admin = Admin(scene.storage.crash(), forceDeleteTenantAllowed=True)
    names = list(admin.broker.catalog.topics)
    for full in names:
        admin.broker.topic(TopicName.parse(full))
    admin.broker.invariants()
    asyncio.run(_inspect(admin, names))


async def _inspect(admin: Admin, names: Sequence[str]) -> None:
    for full in names:
        local = "/".join(quote(part, safe="") for part in full.split("://")[1].split("/", 2))
        base = f"/admin/v2/persistent/{local}"
        paths = [f"{base}/stats", f"{base}/deadLetters", f"/admin/v2/schemas/{local}/schemas"]
        subscriptions = list(admin.broker.topics[full].subscriptions)[:5]
        paths += [f"{base}/subscription/{quote(name, safe='')}/position/1" for name in subscriptions]
        for path in paths:
            with cpu_limit():
                answer = await request(admin, "GET", path, b"", b"")
            hold(answer.status < 500, f"GET {path} is {answer.status}: {answer.body[:500]!r}")
        answer = await request(admin, "DELETE", base, b"force=true", b"")
        hold(answer.status in (204, 404, 409), f"DELETE {base} is {answer.status}: {answer.body[:500]!r}")

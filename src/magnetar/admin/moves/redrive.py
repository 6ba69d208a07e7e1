"""Redriving plain letters of a dead letter topic inside the broker; `pipelines/redrive` decides where they go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from magnetar.access.needs import Need, Right, right_on_topic
from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.http.errors import BadRequest
from magnetar.admin.http.request import Call
from magnetar.admin.http.time_slice import Checkpoint
from magnetar.admin.needs import CONSUME, may_use
from magnetar.admin.opened import open_persistent
from magnetar.admin.resource.subscriptions import LONG_MAX
from magnetar.broker.moves.redrive import BrokerRedrive, Destination, RedriveOrder
from magnetar.deadletter.redriven import OriginKey
from magnetar.names import TopicName
from magnetar.pipeline_bounds import REDRIVE_TARGETS, REDRIVE_TIME, REDRIVE_WAITING, REDRIVEN_PER_REQUEST

Count = Annotated[int, msgspec.Meta(ge=1, le=REDRIVEN_PER_REQUEST.limit)]
Entry = Annotated[int, msgspec.Meta(ge=-1, le=LONG_MAX)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]
Time = Annotated[int, msgspec.Meta(ge=0, le=LONG_MAX)]


class TargetBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Where letters of an origin go; without `topic` they stay."""

    origin_topic: str | None
    origin_partition: int | None
    origin_subscription: str | None
    topic: str = ""
    only: str = ""

    @property
    def origin(self) -> OriginKey:
        return OriginKey(self.origin_topic, self.origin_partition, self.origin_subscription)


class RedriveBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Letters after entry `after`, up to entry `upTo`. `to` is where those go whose origin is not in `targets`."""

    ledger_id: Time
    after: Entry
    up_to: Entry
    letters: Count
    max_generations: Positive
    published_until: Time = LONG_MAX
    targets: Annotated[list[TargetBody], msgspec.Meta(max_length=REDRIVE_TARGETS.limit)] = []
    to: str = ""


class UnknownOrigin(msgspec.Struct, rename="camel"):
    topic: str | None
    partition: int | None
    subscription: str | None


class RedriveResult(msgspec.Struct, rename="camel"):
    """All letters up to `upTo` are sent, or stay. `sent` and `kept` have the order of `targets`; `sentTo` is for `to`.

    Without `plain` the next letter is a batch, encrypted, or redriven too often; `unknown` are origins that come next.
    """

    up_to: int
    plain: bool
    sent: list[int]
    kept: list[int]
    sent_to: int
    unknown: list[UnknownOrigin]


_redrive: BodyReader[RedriveBody] = BodyReader(RedriveBody)


def _body(call: Call) -> RedriveBody:
    body = call.body_as(_redrive)
    if body is None:
        raise BadRequest("the request body is empty: positions and targets are expected")
    return body


def _targets(call: Call) -> Iterator[Right]:
    body = _body(call)
    names = [one.topic for one in body.targets] + [body.to]
    return (right_on_topic(Need.PRODUCE, TopicName.parse(name)) for name in dict.fromkeys(names) if name)


REDRIVE = CONSUME.with_targets("on every subscription of the topic, and produce on each target", _targets)


async def redrive(call: Call) -> RedriveResult:
    """Redrive plain letters to their targets, each with its acknowledgement in one commit; see `magnetar redrive`."""
    body, broker = _body(call), call.broker
    name = call.topic.full
    topic = open_persistent(
        call,
        partitioned=f"Letters are redriven from one partition of {name} at a time",
        non_persistent="A non-persistent topic has no letters",
    )
    if len({one.origin for one in body.targets}) < len(body.targets):
        raise BadRequest("an origin occurs twice among the targets")
    destinations = [Destination(_full(one.topic), one.only) for one in body.targets]
    order = RedriveOrder(
        ledger_id=body.ledger_id,
        after=body.after,
        up_to=body.up_to,
        letters=body.letters,
        published_until_ms=body.published_until,
        generations_max=body.max_generations,
        targets=dict(zip([one.origin for one in body.targets], destinations, strict=True)),
        anywhere=Destination(_full(body.to)) if body.to else None,
    )
    run = BrokerRedrive(topic, order, lambda subscription: may_use(call, topic.name, subscription))
    clock = broker.clock
    ends_at_ms = clock.monotonic_ms() + 1000 * REDRIVE_TIME.limit
    while run.turn() and clock.monotonic_ms() < ends_at_ms:
        await Checkpoint()
        if broker.commits.waiting_bytes > REDRIVE_WAITING.limit:
            alarm = call.alarm()
            broker.commits.after(alarm.ring)
            if not await alarm.wait(REDRIVE_TIME.limit):
                break  # the client disconnected: what it asked for would only fill the memory
    found = run.found
    return RedriveResult(
        up_to=found.up_to,
        plain=found.is_plain,
        sent=[found.sent[origin] for origin in order.targets],
        kept=[found.kept[origin] for origin in order.targets],
        sent_to=found.sent_anywhere,
        unknown=[UnknownOrigin(*origin) for origin in sorted(found.unknown, key=str)],
    )


def _full(name: str) -> str:
    return TopicName.parse(name).full if name else ""

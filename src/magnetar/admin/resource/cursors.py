"""Where the subscriptions of many topics are, in one answer. The path is ours.

For pipelines that let subscriptions follow to other clusters: asking topic by topic costs a request each, every second.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import msgspec

from magnetar.admin.http.errors import BadRequest
from magnetar.admin.http.request import Call
from magnetar.admin.http.turn import Turns
from magnetar.admin.stats.internal import InternalStats, internal_stats
from magnetar.errors import InvalidName, ServiceNotReady
from magnetar.names import TopicName

TOPICS_MAX = 1000

_topics = msgspec.json.Decoder(Annotated[list[str], msgspec.Meta(max_length=TOPICS_MAX)])


async def of_topics(call: Call) -> dict[str, InternalStats]:
    """Positions of the topics or partitions in the body, and of their subscriptions; what does not exist is left out"""
    names = call.body_as(_topics)
    if names is None:
        raise BadRequest("the request body is empty: a list of topics is expected")
    broker, turns = call.broker, Turns()
    found: dict[str, InternalStats] = {}
    for name in map(_name, names):
        with suppress(ServiceNotReady):  # it is being unloaded, and soon is there again
            if broker.catalog.exists(name):
                found[name.full] = internal_stats(broker.topic(name))
        await turns.maybe()
    return found


def _name(text: str) -> TopicName:
    try:
        return TopicName.parse(text)
    except InvalidName as error:
        raise BadRequest(f"{text[:100]!r} is not the name of a topic: {error}") from error

"""Failure policies of a subscription: dead letters, back-off and circuit breaker, as data.

Owns their bounds, and the form in which consumers declare a dead letter policy in their metadata. They are stored in
the record of the subscription, or of the namespace as a default. Knows nothing of how they are applied.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from magnetar.access.principal import Author
from magnetar.bounds import BACKOFF_STEPS
from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX
from magnetar.errors import InvalidName, NotAllowed
from magnetar.names import SUBSCRIPTION_NAME_BYTES_MAX, TopicName

COUNT_MAX = 2**31 - 1
BACKOFF_MS_MAX = 30 * 24 * 3_600_000
BACKOFF_STEPS_MAX = BACKOFF_STEPS.limit

_PREFIX = "deadLetterPolicy."
_COUNT, _TOPIC, _SUBSCRIPTION = (
    _PREFIX + "maxRedeliverCount",
    _PREFIX + "deadLetterTopic",
    _PREFIX + "initialSubscriptionName",
)


class DeadLetterPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that failed more than `max_redeliver_count` times goes to the dead letter topic.

    An empty topic is the default, `{topic}-{subscription}-DLQ`; an empty subscription creates none there. Without an
    `author` it was set while the broker had no authorization.
    """

    max_redeliver_count: int
    topic: str = ""
    initial_subscription: str = ""
    author: Author | None = None

    def topic_for(self, name: TopicName, subscription: str) -> TopicName:
        """The dead letter topic of a subscription, one for all partitions."""
        return TopicName.parse(self.topic or f"{name.base.full}-{subscription}{DEAD_LETTER_SUFFIX}")

    def declared_topic_for(self, name: TopicName, subscription: str) -> TopicName:
        """The same for a policy that a consumer declares. Raises NotAllowed."""
        try:
            return self.topic_for(name, subscription)
        except InvalidName as error:
            raise NotAllowed(
                f"subscription {subscription[:100]!r} cannot have the default dead letter topic: {error};"
                f" name one in the consumer property {_TOPIC}"
            ) from error


class BreakerPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pauses the subscription when more than `percent` of the messages finished within `window_s` are dead.

    Fewer than `minimum` messages never trip it.
    """

    percent: int
    window_s: int = 60
    minimum: int = 10


def policy_from(metadata: Mapping[str, str]) -> DeadLetterPolicy | None:
    """The policy that a consumer declares in its metadata, if any (DL3). Raises NotAllowed."""
    declared = {key: value for key, value in metadata.items() if key.startswith(_PREFIX)}
    if not declared:
        return None
    unknown = sorted(declared.keys() - {_COUNT, _TOPIC, _SUBSCRIPTION})
    if unknown:
        raise NotAllowed(f"consumer property {unknown[0][:100]} is unknown: {_COUNT}, {_TOPIC}, {_SUBSCRIPTION}")
    text = declared.get(_COUNT)
    if text is None:
        raise NotAllowed(f"consumer property {_COUNT} is missing beside {', '.join(sorted(declared))}")
    if not text.isascii() or not text.isdecimal() or len(text) > 10 or not 1 <= int(text) <= COUNT_MAX:
        raise NotAllowed(f"consumer property {_COUNT}={text[:100]!r} is not a number from 1 to {COUNT_MAX}")
    topic, subscription = declared.get(_TOPIC, ""), declared.get(_SUBSCRIPTION, "")
    if topic:
        try:
            TopicName.parse(topic)
        except InvalidName as error:  # its code makes clients retry for half a minute: the topic is not theirs
            raise NotAllowed(f"consumer property {_TOPIC}={topic[:100]!r} is not a topic name: {error}") from error
    size = len(subscription.encode())
    if size > SUBSCRIPTION_NAME_BYTES_MAX:
        raise NotAllowed(
            f"consumer property {_SUBSCRIPTION} of {size} bytes exceeds the limit of {SUBSCRIPTION_NAME_BYTES_MAX}"
        )
    return DeadLetterPolicy(int(text), topic, subscription)

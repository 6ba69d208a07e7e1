"""Rights that a policy needs elsewhere, since with it the broker itself publishes there.

Without them a tenant could send messages to another one's topics. The rights of the path are in `admin.needs`.
"""

from __future__ import annotations

from collections.abc import Iterator

from magnetar.access.needs import Need, Right, right_on_topic
from magnetar.admin.policy import bodies
from magnetar.names import TopicName

TO_DEAD_LETTERS = "produce on its dead letter topic"


def of_dead_letter_policy(given: bodies.DeadLetterPolicyBody) -> Iterator[Right]:
    """Where no topic is given, it is one of the namespace, whose admin sets the policy."""
    policy = given.kept()
    if policy.topic:
        name = TopicName.parse(policy.topic)
        yield right_on_topic(Need.PRODUCE, name)
        if policy.initial_subscription:
            yield right_on_topic(Need.CONSUME, name, policy.initial_subscription)

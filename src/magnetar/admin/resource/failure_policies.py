"""What a subscription does with messages that fail, as an administrator sets it: the policy of dead letters, the
back-off of redeliveries, the circuit breaker, and pausing.

Only a durable subscription of a persistent topic has these. Of a partitioned topic they are set on all partitions or on
none. What the broker does about them is in its `failures`; the letters themselves are in `letters`.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from magnetar.admin.http.errors import BadRequest
from magnetar.admin.http.request import Call
from magnetar.admin.policy import bodies
from magnetar.admin.policy.policy import EMPTY
from magnetar.admin.resource.subscriptions import persistent_in_all_partitions
from magnetar.admin.stats.topic import policy_in_force
from magnetar.broker.catalog import creation
from magnetar.broker.subscription.failure_policy import (
    BACKOFF_MS_MAX,
    BACKOFF_STEPS_MAX,
    BreakerPolicy,
    DeadLetterPolicy,
)
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.errors import NotAllowed

T = TypeVar("T")
Found = list[tuple[PersistentTopic, Subscription]]

BY_REST = "REST"
"""Who set a policy, where it was an administrator."""

BREAKER_WINDOW_S_MAX = 24 * 3600
BREAKER_MINIMUM_MAX = 1_000_000
PAUSE_REASON_MAX = 1000
PAUSE_REASON_DEFAULT = "paused by an administrator"


def _subscriptions(call: Call, what: str) -> Found:
    """The called subscription of every partition; `what` of it is asked for."""
    found = persistent_in_all_partitions(call, f"{what} of a subscription needs a persistent topic")
    for topic, subscription in found:
        if not subscription.durable:
            raise NotAllowed(
                f"{what} needs a durable subscription: {subscription.name} of {topic.name.full} ends with its consumers"
            )
    return found


def _required(call: Call, decoder: msgspec.json.Decoder[T], what: str) -> T:
    value = call.body_as(decoder)
    if value is None:
        raise BadRequest(f"the request body is empty: {what} is expected")
    return value


def _save(found: Found, **changes: object) -> None:
    for topic, subscription in found:
        topic.save_subscription(subscription, msgspec.structs.replace(subscription.record, **changes))


# -- the policy of dead letters


_policy = msgspec.json.Decoder(bodies.DeadLetters)


def get_policy(call: Call) -> object:
    """The policy of dead letters that is in force, with its `source`; empty when there is none."""
    found = _subscriptions(call, "a dead letter policy")
    policies = {topic.name.full: policy_in_force(topic, subscription) for topic, subscription in found}
    shown = next((policy for policy in policies.values() if policy is not None), None)
    if shown is None:
        return EMPTY
    return msgspec.structs.replace(shown, differs=[name for name, policy in policies.items() if policy != shown])


def set_policy(call: Call) -> None:
    """Sets when a message becomes a dead letter, and in which topic; whoever sets it last wins, consumers too."""
    found = _subscriptions(call, "a dead letter policy")
    policy = _required(call, _policy, "a policy with maxRedeliverCount").kept()
    _check_target(found, policy)
    for _, subscription in found:
        subscription.set_dead_letter_policy(policy, BY_REST)


def remove_policy(call: Call) -> None:
    """Forgets the policy of a subscription, whoever set it; that of the namespace holds then."""
    for _, subscription in _subscriptions(call, "a dead letter policy"):
        subscription.set_dead_letter_policy(None, "")


def _check_target(found: Found, policy: DeadLetterPolicy) -> None:
    topic, subscription = found[0]
    target = policy.topic_for(topic.name, subscription.name)
    creation.check_dead_letter_topic(topic.broker.catalog, target, topic.name)


# -- the back-off


Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=BACKOFF_MS_MAX)]
_backoff = msgspec.json.Decoder(Annotated[list[Milliseconds], msgspec.Meta(min_length=1, max_length=BACKOFF_STEPS_MAX)])


def get_backoff(call: Call) -> object:
    """How long a failed message waits for its next delivery, in ms: after its first failure, its second, and so on."""
    found = _subscriptions(call, "a redelivery back-off")
    return found[0][1].record.backoff_ms or EMPTY


def set_backoff(call: Call) -> None:
    """Sets it; the last time holds for all further failures."""
    found = _subscriptions(call, "a redelivery back-off")
    _save(found, backoff_ms=_required(call, _backoff, "a list of times in ms"))


def remove_backoff(call: Call) -> None:
    """Failed messages are delivered again at once."""
    _save(_subscriptions(call, "a redelivery back-off"), backoff_ms=[])


# -- the circuit breaker


class BreakerBody(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """More than 100 % cannot be dead: a breaker of 100 would never do anything."""

    percent: Annotated[int, msgspec.Meta(ge=0, le=99)]
    window_seconds: Annotated[int, msgspec.Meta(ge=1, le=BREAKER_WINDOW_S_MAX)] = 60
    minimum: Annotated[int, msgspec.Meta(ge=1, le=BREAKER_MINIMUM_MAX)] = 10


_breaker = msgspec.json.Decoder(BreakerBody)


def get_breaker(call: Call) -> object:
    """When dead letters pause the subscription; empty when they never do."""
    breaker = _subscriptions(call, "a circuit breaker")[0][1].record.breaker
    return EMPTY if breaker is None else BreakerBody(breaker.percent, breaker.window_s, breaker.minimum)


def set_breaker(call: Call) -> None:
    """Pauses the subscription when more than `percent` of the messages finished within a window are dead."""
    found = _subscriptions(call, "a circuit breaker")
    body = _required(call, _breaker, "a circuit breaker with percent")
    _save(found, breaker=BreakerPolicy(body.percent, body.window_seconds, body.minimum))
    for _, subscription in found:
        subscription.failed.resumed()  # a window of its own


def remove_breaker(call: Call) -> None:
    """Dead letters pause the subscription no more; one that is paused stays so."""
    _save(_subscriptions(call, "a circuit breaker"), breaker=None)


# -- pausing


class PauseBody(msgspec.Struct, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=PAUSE_REASON_MAX)] = PAUSE_REASON_DEFAULT


_pause = msgspec.json.Decoder(PauseBody)


def pause(call: Call) -> None:
    """Delivers nothing until the subscription is resumed; the body may have a `reason`, which its statistics show."""
    found = _subscriptions(call, "pausing")
    body = call.body_as(_pause) or PauseBody()
    for _, subscription in found:
        subscription.pause(body.reason)


def resume(call: Call) -> None:
    """Delivers again, whatever paused the subscription."""
    for _, subscription in _subscriptions(call, "resuming"):
        subscription.resume()

"""The policy table of subscriptions: dead letter policy, redelivery back-off and circuit breaker.

Only a durable subscription of a persistent topic has these. On a partitioned topic a policy is set in all partitions
or in none. The JSON of values is in `bodies`, the handlers are in `routes`; the broker carries the policies out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from magnetar.access.needs import Right
from magnetar.access.principal import Author
from magnetar.admin.opened import PersistentSubscriptions
from magnetar.admin.policy import bodies, targets
from magnetar.admin.policy.policy import EMPTY
from magnetar.admin.stats.topic import policy_in_force
from magnetar.broker.catalog import creation

SET_BY_REST = "REST"
"""The source of a dead letter policy that was set by an administrator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionPolicy:
    """One row. `path` is the last part of its path, `shape` the type of its JSON.

    `feature` and `expected` are for errors. The functions take the subscription of every partition.
    """

    title: str
    path: str
    shape: Any
    feature: str
    expected: str
    show: Callable[[PersistentSubscriptions], object]
    put: Callable[[PersistentSubscriptions, Any, Author | None], None]
    remove: Callable[[PersistentSubscriptions], None]
    targets: Callable[[Any], Iterable[Right]] | None = None  # as of `Policy`


def _save(found: PersistentSubscriptions, **changes: object) -> None:
    for topic, subscription in found:
        topic.save_subscription(subscription, msgspec.structs.replace(subscription.record, **changes))


# -- dead letter policy


def _show_dead_letter_policy(found: PersistentSubscriptions) -> object:
    """The policy in force; `differs` names the partitions that have another one."""
    policies = {topic.name.full: policy_in_force(topic, subscription) for topic, subscription in found}
    shown = next((policy for policy in policies.values() if policy is not None), None)
    if shown is None:
        return EMPTY
    return msgspec.structs.replace(shown, differs=[name for name, policy in policies.items() if policy != shown])


def _set_dead_letter_policy(
    found: PersistentSubscriptions, body: bodies.DeadLetterPolicyBody, author: Author | None
) -> None:
    policy, (topic, subscription) = msgspec.structs.replace(body.kept(), author=author), found[0]
    target = policy.topic_for(topic.name, subscription.name)
    creation.check_dead_letter_topic(topic.broker.catalog, target, topic.name)
    for _, subscription in found:
        subscription.set_dead_letter_policy(policy, SET_BY_REST)


def _remove_dead_letter_policy(found: PersistentSubscriptions) -> None:
    for _, subscription in found:
        subscription.set_dead_letter_policy(None, "")


# -- circuit breaker


def _show_breaker(found: PersistentSubscriptions) -> object:
    breaker = found[0][1].record.breaker
    return EMPTY if breaker is None else bodies.CircuitBreakerBody.of(breaker)


def _set_breaker(found: PersistentSubscriptions, body: bodies.CircuitBreakerBody, author: Author | None) -> None:
    _save(found, breaker=body.kept())
    for _, subscription in found:
        subscription.dead_letters.begin_breaker_window()


SUBSCRIPTION_POLICIES: tuple[SubscriptionPolicy, ...] = (
    SubscriptionPolicy(
        title="dead letter policy: number of redeliveries before a message becomes a dead letter, and its topic",
        path="deadLetterPolicy",
        shape=bodies.DeadLetterPolicyBody,
        feature="a dead letter policy",
        expected="a policy with maxRedeliverCount",
        show=_show_dead_letter_policy,
        put=_set_dead_letter_policy,
        remove=_remove_dead_letter_policy,
        targets=targets.of_dead_letter_policy,
    ),
    SubscriptionPolicy(
        title="redelivery back-off: delays in ms after the first failure, the second, …; the last one repeats",
        path="redeliveryBackoff",
        shape=bodies.RedeliveryBackoff,
        feature="a redelivery back-off",
        expected="a list of delays in ms",
        show=lambda found: found[0][1].record.backoff_ms or EMPTY,
        put=lambda found, delays, author: _save(found, backoff_ms=delays),
        remove=lambda found: _save(found, backoff_ms=[]),
    ),
    SubscriptionPolicy(
        title="circuit breaker: pause when more than `percent` of the messages finished in a window are dead letters",
        path="circuitBreaker",
        shape=bodies.CircuitBreakerBody,
        feature="a circuit breaker",
        expected="a circuit breaker with percent",
        show=_show_breaker,
        put=_set_breaker,
        remove=lambda found: _save(found, breaker=None),
    ),
)

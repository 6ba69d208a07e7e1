"""Administrative steps on topics and subscriptions: create, delete, terminate, trim, expire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from magnetar.broker.topic import backlog_quota
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.errors import MagnetarError
from magnetar.names import TopicName

from .behaviour import one_of

if TYPE_CHECKING:
    from .world import World


class Administrator:
    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng

    def administrate(self) -> str | None:
        name = TopicName.parse(self._rng.choice(self._world.topics))
        if not name.is_persistent:
            return None
        act = self._rng.choice((self._keep_limits, self._keep_limits, self._change_topic, self._change_subscription))
        try:
            return act(name)
        except MagnetarError as error:
            return f"admin request rejected: {error}"

    def _keep_limits(self, name: TopicName) -> str | None:
        topic = self._world.broker.topics.get(name.full)
        if not isinstance(topic, PersistentTopic):
            return None
        self._world.is_maintained = True
        now_ms = self._world.clock.now_ms()
        what = self._rng.choice(("trim", "expire", "quota"))
        if what == "trim":
            topic.trim(now_ms)
        elif what == "expire":
            topic.expire(now_ms)
        else:
            backlog_quota.enforce(topic, now_ms)
        return f"{what} of {name.local}"

    def _change_topic(self, name: TopicName) -> str | None:
        broker = self._world.broker
        kind = self._rng.random()
        if kind < 0.5:
            topic = broker.topic(name, create=True)
            return f"admin creates {name.local}, ledger {topic.ledger_id}"
        topic = broker.topic(name)
        if kind < 0.85:
            ledger = topic.ledger_id
            broker.delete_topic(name, force=self._rng.random() < 0.5)
            self._world.deleted.add(ledger)
            return f"admin deletes {name.local}, ledger {ledger}"
        assert isinstance(topic, PersistentTopic)
        topic.terminate()
        return f"admin terminates {name.local} at {topic.log.last}"

    def change_rules(self) -> str | None:
        """Changes a subscription's handling of failed messages."""
        setup, rng = self._world.dead_letter_setup, self._rng
        topic = one_of(rng, (t for t in self._world.broker.topics.values() if isinstance(t, PersistentTopic)))
        cursors = [] if topic is None else [s for s in topic.cursors if s.durable and not s.is_internal]
        subscription = one_of(rng, cursors)
        if setup is None or topic is None or subscription is None:
            return None
        model = self._world.oracle.model_of(topic, subscription)
        if rng.random() < 0.5:
            policy = setup.policy(rng) if rng.random() < 0.8 else None
            subscription.set_dead_letter_policy(policy, "admin")
            model.rules = model.rules._replace(policy=policy, source="admin")
        else:
            backoff_ms = setup.backoff_ms(rng)
            topic.save_subscription(subscription, msgspec.structs.replace(subscription.record, backoff_ms=backoff_ms))
            model.rules = model.rules._replace(backoff_ms=tuple(backoff_ms))
        return f"admin sets {model.rules} of {topic.name.local}/{subscription.name}"

    def _change_subscription(self, name: TopicName) -> str | None:
        topic = self._world.broker.topic(name)
        assert isinstance(topic, PersistentTopic)
        subscription = self._rng.choice(self._world.subscriptions)
        if subscription not in topic.subscriptions:
            topic.create_subscription(SubscribeRequest(subscription, from_earliest=self._rng.random() < 0.5))
            return f"admin creates {name.local}/{subscription}"
        topic.delete_subscription(subscription, force=self._rng.random() < 0.3)
        return f"admin deletes {name.local}/{subscription}"

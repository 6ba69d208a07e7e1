"""What happens to topics and subscriptions from outside: made, deleted, terminated, trimmed, expired."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.persistent import PersistentTopic
from magnetar.broker.topic import SubscribeRequest
from magnetar.errors import MagnetarError
from magnetar.names import TopicName

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
            return f"admin is refused: {error}"

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
            topic.enforce_quota(now_ms)
        return f"{what} of {name.local}"

    def _change_topic(self, name: TopicName) -> str | None:
        broker = self._world.broker
        kind = self._rng.random()
        if kind < 0.5:
            topic = broker.topic(name, create=True)
            return f"admin opens {name.local}, ledger {topic.ledger_id}"
        topic = broker.topic(name)
        if kind < 0.85:
            ledger = topic.ledger_id
            broker.delete_topic(name, force=self._rng.random() < 0.5)
            self._world.deleted.add(ledger)
            return f"admin deletes {name.local}, ledger {ledger}"
        assert isinstance(topic, PersistentTopic)
        topic.terminate()
        return f"admin terminates {name.local} at {topic.log.last}"

    def _change_subscription(self, name: TopicName) -> str | None:
        topic = self._world.broker.topic(name)
        assert isinstance(topic, PersistentTopic)
        subscription = self._rng.choice(self._world.subscriptions)
        if subscription not in topic.subscriptions:
            topic.create_subscription(SubscribeRequest(subscription, from_earliest=self._rng.random() < 0.5))
            return f"admin creates {name.local}/{subscription}"
        topic.delete_subscription(subscription, force=self._rng.random() < 0.3)
        return f"admin deletes {name.local}/{subscription}"

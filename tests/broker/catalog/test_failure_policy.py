"""Dead letter policies declared by consumers, and which one applies (DL3)."""

from __future__ import annotations

import pytest

from magnetar.broker.catalog.failure_policy import DeadLetterPolicy, policy_from
from magnetar.errors import NotAllowed
from tests.broker.dead_letters import (
    with_policy,
)
from tests.broker.world import World


class TestDeclared:
    def test_dl3_in_the_metadata_of_a_consumer(self) -> None:
        assert policy_from({"app": "x"}) is None
        assert policy_from({"deadLetterPolicy.maxRedeliverCount": "3"}) == DeadLetterPolicy(3)
        full = {
            "deadLetterPolicy.maxRedeliverCount": "3",
            "deadLetterPolicy.deadLetterTopic": "dead",
            "deadLetterPolicy.initialSubscriptionName": "s",
        }
        assert policy_from(full) == DeadLetterPolicy(3, "dead", "s")

    @pytest.mark.parametrize(
        "metadata",
        [
            {"deadLetterPolicy.deadLetterTopic": "dead"},
            {"deadLetterPolicy.maxRedeliverCount": "many"},
            {"deadLetterPolicy.maxRedeliverCount": "0"},
            {"deadLetterPolicy.maxRedeliverCount": "-1"},
            {"deadLetterPolicy.maxRedeliverCount": "99999999999"},
            {"deadLetterPolicy.maxRedeliverCount": "٣"},
            {"deadLetterPolicy.maxRedeliverCount": "1", "deadLetterPolicy.limit": "2"},
            {"deadLetterPolicy.maxRedeliverCount": "1", "deadLetterPolicy.deadLetterTopic": "a/b"},
            {"deadLetterPolicy.maxRedeliverCount": "1", "deadLetterPolicy.initialSubscriptionName": "x" * 1025},
        ],
    )
    def test_dl3_an_invalid_policy_is_rejected_by_name(self, metadata: dict[str, str]) -> None:
        with pytest.raises(NotAllowed, match="consumer property deadLetterPolicy"):
            policy_from(metadata)

    def test_dl3_the_latest_wins_and_the_namespace_is_the_default(self) -> None:
        world = World()
        world.publish(1)
        world.consumer()
        catalog = world.broker.catalog
        catalog.namespaces["public/default"].overrides.dead_letters = DeadLetterPolicy(9)
        catalog.settings_changed()
        assert world.subscription().dead_letter_policy == DeadLetterPolicy(9)
        with_policy(world, 1)
        with_policy(world, 5)
        again = world.restart()
        assert again.subscription().dead_letter_policy == DeadLetterPolicy(5)
        assert again.subscription().record.dead_letters_from == "test"

"""The setup of a seed: settings, topics, and the probability of each kind of step."""

from __future__ import annotations

from random import Random

from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.names import TopicName
from magnetar.settings.settings import INT_MAX, Settings


def settings_for(rng: Random) -> Settings:
    values: dict[str, object] = {
        "brokerDeduplicationEnabled": rng.random() < 0.5,
        "brokerDeduplicationProducerInactivityTimeoutMinutes": INT_MAX,
        "dispatcherMaxReadBatchSize": rng.choice((1, 3, 100)),
        "dispatcherMaxRoundRobinBatchSize": rng.choice((1, 3, 20)),
        "dispatcherMaxReadSizeBytes": rng.choice((1, 500, 5242880)),
        "managedLedgerCacheSizeMB": rng.choice((0, 64)),
        "managedLedgerMinLedgerRolloverTimeMinutes": rng.choice((0, 0, 1, 10)),
        "retentionCheckIntervalInSeconds": rng.choice((1, 30, 120)),
        "activeConsumerFailoverDelayTimeMillis": rng.choice((0, 1000)),
        "subscriptionKeySharedUseConsistentHashing": rng.random() < 0.5,
        "subscriptionKeySharedConsistentHashingReplicaPoints": rng.choice((1, 10)),
        "acknowledgmentAtBatchIndexLevelEnabled": rng.random() < 0.85,
        "maxUnackedMessagesPerConsumer": rng.choice((0, 5, 50000)),
        "maxUnackedMessagesPerSubscription": rng.choice((0, 8, 200000)),
        "keySharedLookAheadMsgInReplayThresholdPerConsumer": rng.choice((0, 1, 4000)),
        "keySharedLookAheadMsgInReplayThresholdPerSubscription": rng.choice((0, 2, 40000)),
    }
    if rng.random() < 0.2:
        values["ttlDurationDefaultInSeconds"] = rng.choice((5, 60, 3600))
        values["messageExpiryCheckIntervalInMinutes"] = 1
    if rng.random() < 0.2:
        values["backlogQuotaDefaultLimitBytes"] = rng.choice((500, 5000))
        values["backlogQuotaCheckIntervalInSeconds"] = rng.choice((1, 60))
        values["backlogQuotaDefaultRetentionPolicy"] = rng.choice(
            ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
        )
    if rng.random() < 0.2:
        values["defaultRetentionTimeInMinutes"] = rng.choice((-1, 1))
        values["defaultRetentionSizeInMB"] = rng.choice((-1, 1))
    return Settings(**values)  # type: ignore[arg-type]


PARTITIONED = "persistent://public/default/p"
PARTITIONS = 2


REMOTE = "remote"


def is_replicated(seed: int) -> bool:
    """Whether all topics are replicated to another cluster, which never connects."""
    return Random(f"replicated {seed}").random() < 0.2


def topic_names(rng: Random) -> list[str]:
    kind = rng.random()
    if kind < 0.15:
        return [f"{PARTITIONED}-partition-{number}" for number in range(PARTITIONS)]
    names = [f"persistent://public/default/t{number}" for number in range(rng.choice((1, 1, 2, 3)))]
    return [*names, "non-persistent://public/default/n"] if kind < 0.3 else names


def subscription_names(rng: Random) -> list[str]:
    return [f"s{number}" for number in range(rng.choice((1, 1, 2, 3)))]


class DeadLetterSetup:
    """Dead letter policies and target topics of a seed."""

    TARGET = "persistent://public/default/dead0"

    def __init__(self, rng: Random, topics: list[str], subscriptions: list[str]) -> None:
        self._limits = rng.choice(((1,), (1, 2), (1, 3)))
        self._targets = rng.choice((("",), ("",), ("", self.TARGET), (self.TARGET,)))
        self.includes_expired = rng.random() < 0.4  # whether expired and evicted messages become dead letters
        # Not both: such a subscription could be created and lose entries in one step, before it has a model.
        self._initial = rng.choice(("", "analysis")) if not self.includes_expired else ""
        self.default = self.policy(rng) if rng.random() < 0.15 else None  # of the namespace
        self.target_partitions = PARTITIONS if rng.random() < 0.2 else 0
        self.topics: list[str] = []  # used by clients like any other topic
        if rng.random() < 0.5:
            base = TopicName.parse(topics[0]).base.full
            self.topics.append(f"{base}-{subscriptions[0]}-DLQ")
        if rng.random() < 0.5:
            self.topics += [f"{self.TARGET}-partition-{n}" for n in range(self.target_partitions)] or [self.TARGET]

    def policy(self, rng: Random) -> DeadLetterPolicy:
        return DeadLetterPolicy(rng.choice(self._limits), rng.choice(self._targets), self._initial)

    def properties(self, rng: Random) -> dict[str, str]:
        """The same policy as a consumer declares it."""
        policy = self.policy(rng)
        declared = {"maxRedeliverCount": str(policy.max_redeliver_count)}
        if policy.topic:
            declared["deadLetterTopic"] = policy.topic
        if policy.initial_subscription:
            declared["initialSubscriptionName"] = policy.initial_subscription
        return {f"deadLetterPolicy.{key}": value for key, value in declared.items()}

    @staticmethod
    def backoff_ms(rng: Random) -> list[int]:
        return rng.choice(([], [1], [500, 5000], [60_000], [1, 0, 1000]))


def dead_letter_setup_for(rng: Random, topics: list[str], subscriptions: list[str]) -> DeadLetterSetup | None:
    return DeadLetterSetup(rng, topics, subscriptions) if rng.random() < 0.85 else None


# Weights of the steps, before the seed makes some rare and others frequent.
_WEIGHTS = {
    "arrive": 40,
    "deliver": 25,
    "commit": 30,
    "pump": 20,
    "produce": 15,
    "acknowledge": 15,
    "nack": 4,
    "flow": 2,
    "leave": 1.5,
    "open_something": 5,
    "close_producer": 0.3,
    "connect_a_client": 30,
    "lose_a_connection": 0.5,
    "change_writable": 1,
    "let_time_pass": 3,
    "administrate": 0.7,
    "change_rules": 1,
    "crash_or_fail": 0.5,
    "send_malformed": 0.3,
}


# Factors for seeds with dead letters.
_WITH_FAILURES = {"nack": 5, "acknowledge": 0.6, "lose_a_connection": 4, "crash_or_fail": 2}


def weights_for(rng: Random, *, with_failures: bool) -> dict[str, float]:
    return {
        name: weight * rng.choice((0.3, 1, 1, 1, 3)) * (_WITH_FAILURES.get(name, 1) if with_failures else 1)
        for name, weight in _WEIGHTS.items()
    }

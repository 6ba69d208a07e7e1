"""What differs from seed to seed before anything happens: settings, topics, and how likely each kind of step is."""

from __future__ import annotations

from random import Random

from magnetar.broker.subscription.failure_policy import DeadLetterPolicy
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
    """Whether all topics are replicated to another cluster, which is never there. Seeds are otherwise as they were."""
    return Random(f"replicated {seed}").random() < 0.2


def topic_names(rng: Random) -> list[str]:
    kind = rng.random()
    if kind < 0.15:
        return [f"{PARTITIONED}-partition-{number}" for number in range(PARTITIONS)]
    names = [f"persistent://public/default/t{number}" for number in range(rng.choice((1, 1, 2, 3)))]
    return [*names, "non-persistent://public/default/n"] if kind < 0.3 else names


def subscription_names(rng: Random) -> list[str]:
    return [f"s{number}" for number in range(rng.choice((1, 1, 2, 3)))]


class Letters:
    """Of seeds with dead letters: which policies there are, and which topics they go to."""

    GRAVE = "persistent://public/default/grave"

    def __init__(self, rng: Random, topics: list[str], subscriptions: list[str]) -> None:
        self._limits = rng.choice(((1,), (1, 2), (1, 3)))
        self._targets = rng.choice((("",), ("",), ("", self.GRAVE), (self.GRAVE,)))
        self.of_the_given_up = rng.random() < 0.4  # whether what expires or is evicted becomes a letter
        # Not both: such a subscription may be made and lose entries in one step, where nobody sees it begin.
        self._initial = rng.choice(("", "mourners")) if not self.of_the_given_up else ""
        self.default = self.policy(rng) if rng.random() < 0.15 else None  # of the namespace
        self.grave_partitions = PARTITIONS if rng.random() < 0.2 else 0
        self.topics: list[str] = []  # those that clients use like any other
        if rng.random() < 0.5:
            base = TopicName.parse(topics[0]).base.full
            self.topics.append(f"{base}-{subscriptions[0]}-DLQ")
        if rng.random() < 0.5:
            self.topics += [f"{self.GRAVE}-partition-{n}" for n in range(self.grave_partitions)] or [self.GRAVE]

    def policy(self, rng: Random) -> DeadLetterPolicy:
        return DeadLetterPolicy(rng.choice(self._limits), rng.choice(self._targets), self._initial)

    def properties(self, rng: Random) -> dict[str, str]:
        """The same as a consumer declares it."""
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


def letters_for(rng: Random, topics: list[str], subscriptions: list[str]) -> Letters | None:
    return Letters(rng, topics, subscriptions) if rng.random() < 0.85 else None


# How often each kind of step is taken, before the seed makes some of them rare and others frequent.
_WEIGHTS = {
    "arrive": 40,
    "hear": 25,
    "commit": 30,
    "pump": 20,
    "produce": 15,
    "acknowledge": 15,
    "give_back": 4,
    "flow": 2,
    "leave": 1.5,
    "open_something": 5,
    "close_producer": 0.3,
    "connect_somebody": 30,
    "lose_somebody": 0.5,
    "change_writable": 1,
    "let_time_pass": 3,
    "administrate": 0.7,
    "change_rules": 1,
    "crash_or_fail": 0.5,
    "vandalize": 0.3,
}


# What is more frequent where messages are to die.
_DEADLY = {"give_back": 5, "acknowledge": 0.6, "lose_somebody": 4, "crash_or_fail": 2}


def weights_for(rng: Random, *, deadly: bool) -> dict[str, float]:
    return {
        name: weight * rng.choice((0.3, 1, 1, 1, 3)) * (_DEADLY.get(name, 1) if deadly else 1)
        for name, weight in _WEIGHTS.items()
    }

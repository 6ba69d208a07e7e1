"""What a check has read so far: topics and subscriptions by id, and the ids that records and data use."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.broker.catalog.record import SubscriptionRecord, TopicRecord


@dataclass(slots=True)
class CheckedTopic:
    """`first` and `last` are the bounds of its entries, as its runs have them."""

    name: str
    record: TopicRecord
    first: int = 0
    last: int = -1
    entries: int = 0


@dataclass(slots=True)
class CheckedSubscription:
    name: str
    topic: CheckedTopic
    record: SubscriptionRecord
    mark: int | None = None


@dataclass(slots=True)
class Inventory:
    topics: dict[int, CheckedTopic] = field(default_factory=dict)
    subscriptions: dict[int, CheckedSubscription] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)
    tenants: set[str] = field(default_factory=set)
    lost_topics: dict[str, bytes] = field(default_factory=dict)
    """Names of topics whose record cannot be read, and not even their id, with the key."""
    orphans: set[int] = field(default_factory=set)
    """Ids of topics that have data and no record."""
    is_recovering: bool = False
    """Whether a topic is created for data that has none."""
    highest_id: int = 0
    records: int = 0

    def saw(self, number: int) -> None:
        if self.highest_id < number < 1 << 63:
            self.highest_id = number

    def new_id(self) -> int:
        self.highest_id += 1
        return self.highest_id

    @property
    def is_complete(self) -> bool:
        """Whether every topic is known: until then, data that no record names may belong to one of them."""
        return not self.lost_topics and not self.is_recovering

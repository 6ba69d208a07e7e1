"""The broker: topics, catalog, schemas, replication, group commit and timers, put together.

Synchronous: no socket, no thread, no clock. Its `Host` calls `pump` and `tick` when the broker requests it, and writes
the groups of `commits`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from typing import Protocol

from magnetar.access.authentication import Authentication
from magnetar.access.authorization import Authorization
from magnetar.access.needs import Need, Right
from magnetar.access.principal import Author
from magnetar.broker import accepted_loss, keys, own_cluster, stored_globals
from magnetar.broker.catalog import creation, permissions
from magnetar.broker.catalog.catalog import Catalog
from magnetar.broker.catalog.policies import Policies
from magnetar.broker.catalog.record import WAS_AUTO_CREATED, TopicRecord
from magnetar.broker.commit import Commits
from magnetar.broker.damage.erasure import erase_topic
from magnetar.broker.damage_list import UNREADABLE, DamageList
from magnetar.broker.deleted_space import DeletedSpace
from magnetar.broker.host import FaultKind, Host
from magnetar.broker.maintenance import Maintenance
from magnetar.broker.pipelines.declared import DeclaredPipelines
from magnetar.broker.replication.declaration import DeclaredRoutes
from magnetar.broker.schema.registry import SchemaRegistry, schema_id
from magnetar.broker.schema.waiting import Examinations
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.throttling.limits import BrokerLimits
from magnetar.broker.timers import Timers
from magnetar.broker.topic.log import TailCache
from magnetar.broker.topic.nonpersistent import NonPersistentTopic
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import Topic
from magnetar.clock import Clock, SteadyTime
from magnetar.deadletter.topics import is_dead_letter_or_retry_topic
from magnetar.errors import (
    EntriesDamaged,
    NotAllowed,
    SchemaDamaged,
    ServiceNotReady,
    TopicBusy,
    TopicDamaged,
    TopicNotFound,
    TopicTerminated,
)
from magnetar.log.events import CLOCK_JUMPED
from magnetar.names import TopicName
from magnetar.settings.settings import Settings
from magnetar.storage.api import Batch, Storage

_MB = 1 << 20


class Pumpable(Protocol):
    where: tuple[str, str]
    """The names of its topic and of itself."""

    def pump(self) -> None: ...


class Broker:
    def __init__(self, settings: Settings, storage: Storage, clock: Clock, host: Host) -> None:
        self._host = host
        self.event = host.event
        self.fault = host.fault
        self.run_aside = host.run_aside
        self.check_login = host.check_login
        self.examinations = Examinations(self)
        self._started_with = settings
        self.storage = storage
        self.damage = DamageList(host.event, clock.now_ms)
        self.dynamic_settings = stored_globals.read_dynamic_settings(storage)
        self.settings = settings.with_texts(self.dynamic_settings)
        self.console_url = ""  # of a console that runs beside the broker
        self.authentication = Authentication()  # the server replaces both
        self.authorization = Authorization()
        self.clock = clock
        self._opened_ms = clock.monotonic_ms()
        self.commits = Commits(storage, host)
        self.cache = TailCache(settings.managedLedgerCacheSizeMB * _MB)
        self.policies = Policies.of(self.settings)
        self.timers = Timers(host, clock.now_ms)
        self.intervals = Timers(host, clock.monotonic_ms)
        self.steady = SteadyTime(clock, self._clock_jumped)
        self.limits = BrokerLimits(clock.monotonic_ms, self.intervals.at, self.settings)
        self.schemas = SchemaRegistry(storage, self.commits, clock.now_ms, self.damage)
        self.catalog = Catalog(self)
        self.replication = DeclaredRoutes(self)
        self.pipelines = DeclaredPipelines(self)
        self.topics: dict[str, Topic] = {}
        self.refused_messages: Counter[int] = Counter()  # by the wire code of the error
        self._pumpable: dict[Pumpable, None] = {}
        self._names = count()
        self.deleted_space = DeletedSpace(settings.retentionCheckIntervalInSeconds * 1000)
        self._unloading: set[str] = set()
        self.held = ""  # why producers are held
        last_id = stored_globals.read_last_id(storage)
        self.is_new = last_id is None
        self._last_id = last_id or 0
        self.catalog.load()
        if storage.lost_writes:
            self._last_id += accepted_loss.ID_GAP
            accepted_loss.renumber_topics(self, self.commits.batch())
        # An id per start of the broker makes generated producer names unique, which deduplication needs.
        self.life = self.next_id(self.commits.batch())
        own_cluster.record_name(storage, self.commits.batch(), settings.clusterName)
        self.replication.load()
        self.maintenance = Maintenance(self)
        self.maintenance.start()

    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def uptime_ms(self) -> int:
        return self.clock.monotonic_ms() - self._opened_ms

    def next_id(self, batch: Batch) -> int:
        """A new number for a topic or a subscription, never used before."""
        self._last_id += 1
        batch.put(keys.LAST_ID, keys.ID.pack(self._last_id))
        return self._last_id

    def write_something(self) -> None:
        """A change that changes nothing, to see whether the disk takes it: the last id is written again."""
        self.commits.batch().put(keys.LAST_ID, keys.ID.pack(self._last_id))

    def new_name(self) -> str:
        return f"{self.settings.clusterName}-{self.life}-{next(self._names)}"

    # -- topics

    def topic(self, name: TopicName, *, create: bool = False) -> Topic:
        """The open topic; it is loaded or, with `create` and if allowed, created."""
        topic = self.topics.get(name.full)
        if topic is not None:
            return topic
        self._check_unloaded(name)
        creation.require(self.catalog, name, create=create)
        topic = self.topics.get(name.full)
        if topic is None:
            topic = self.topics[name.full] = self._load(name)
            if isinstance(topic, PersistentTopic):
                self.replication.opened(topic)
        return topic

    def _load(self, name: TopicName) -> Topic:
        if not name.is_persistent:
            return NonPersistentTopic(self, name)
        self.catalog.check_readable(name)
        try:
            topic = PersistentTopic(self, name, self.catalog.topics[name.full], is_new=False)
        except UNREADABLE as error:
            reason = self.damage.note("topic", name.full, error)
            raise TopicDamaged(f"topic {name.full} is damaged: {reason}") from error
        if self.damage:
            self.damage.clear("topic", name.full)
        return topic

    def created(self, name: TopicName, topic_record: TopicRecord) -> None:
        """Opens a persistent topic that the catalog just created: it has nothing on disk to load."""
        topic = self.topics[name.full] = PersistentTopic(self, name, topic_record, is_new=True)
        self.replication.opened(topic)

    def recorded(self, name: TopicName, topic_record: TopicRecord) -> None:
        """The catalog changed the record of a topic."""
        topic = self.topics.get(name.full)
        if isinstance(topic, PersistentTopic):
            topic.record = topic_record

    def apply_policies(self, names: Iterable[str]) -> None:
        """Applies the effective policies to those of these topics that are open; the others get them when opened."""
        for full in list(names):
            topic = self.topics.get(full)
            if topic is not None:
                self._apply_policies(topic)

    def _apply_policies(self, topic: Topic) -> None:
        try:
            topic.apply_policies(self.catalog.policies_of_topic(topic.name))
        except Exception as error:  # the policies are stored already: the other topics get them all the same
            self.fault("maintenance", error, f"policies of {topic.name.full}")

    def unload(self, name: TopicName) -> None:
        """Disconnects the clients of a topic and closes it. It can be opened again once all of it is on disk."""
        topic = self.topics.pop(name.full, None)
        if topic is None:
            return
        topic.disconnect_all()
        topic.is_unloaded = True
        self._unloading.add(name.full)
        self.commits.after(lambda: self._unloading.discard(name.full))

    def close_deserted(self, full: str) -> None:
        """Closes a non-persistent topic that has had no client since the last call, with its subscriptions.

        One that clients created is gone then, except for its schema: none of them would ever delete it.
        """
        name, topic = TopicName.parse(full), self.topics.get(full)
        if isinstance(topic, NonPersistentTopic):
            if not topic.is_deserted():
                return
            topic.disconnect_all()
            topic.is_unloaded = True
            del self.topics[full]
        is_partition = name.is_partition and name.base.full in self.catalog.partitioned
        if not is_partition and WAS_AUTO_CREATED in self.catalog.non_persistent.get(full, ()):
            self.maintenance.forget(full)
            self.catalog.forget(name)

    def _check_unloaded(self, name: TopicName) -> None:
        if name.full in self._unloading:
            raise ServiceNotReady(f"topic {name.full} is being unloaded")

    def dead_letter_topic(self, name: TopicName, source: TopicName, author: Author | None) -> PersistentTopic:
        """An existing topic, prepared for dead letters of `source`; raises MagnetarError if it cannot store them.

        `author` set the policy that leads there.
        """
        topic = self.topic(name)
        if not isinstance(topic, PersistentTopic):
            raise NotAllowed(f"dead letters cannot go to {name.full}, which is not persistent")
        if topic.is_terminated:
            raise TopicTerminated(f"dead letters cannot go to {name.full}, which was terminated")
        if self.mark_for_failed_messages(topic, author):
            with contextlib.suppress(SchemaDamaged):  # listed already: the failed message is not lost because of it
                self.schemas.copy(schema_id(source), schema_id(name))
        return topic

    def mark_for_failed_messages(self, topic: PersistentTopic, author: Author | None, *, retries: bool = False) -> bool:
        """From now on the topic keeps them, whatever its policies are. Returns whether it does.

        A right to publish does not include that for a topic that others use already: only for those named so, for
        empty ones, and for its administrators.
        """
        name = topic.name
        is_for_them = is_dead_letter_or_retry_topic(name) or topic.log.last < 0 or self.catalog.holds_dead_letters(name)
        if not is_for_them and not self.authorization.allows_author(author, [Right(Need.TENANT_ADMIN, name.tenant)]):
            return False
        self.catalog.mark(name, retries=retries)
        return True

    def delete_topic(self, name: TopicName, *, force: bool = False) -> None:
        try:
            topic = self.topic(name)
        except TopicDamaged:
            if not force:
                raise
            self._erase(name)
            return
        if not force:
            topic.check_unused()
            topic.check_replicated()
        batch = self.commits.batch()
        if isinstance(topic, PersistentTopic):
            topic.delete(batch)
        else:
            topic.disconnect_all()
        del self.topics[name.full]
        self._deleted(name, batch)

    def _erase(self, name: TopicName) -> None:
        """Deletes a topic that cannot be opened. Without its id, its messages stay on disk until they are found."""
        batch, kept = self.commits.batch(), self.catalog.topics.get(name.full)
        topic_id = self.catalog.damaged.get(name.full) if kept is None else kept.id
        if topic_id is not None:
            erase_topic(self.storage, batch, topic_id)
        batch.delete(keys.named(keys.TOPIC, name.full))
        self._deleted(name, batch)

    def _deleted(self, name: TopicName, batch: Batch) -> None:
        self.maintenance.forget(name.full)
        self.catalog.forget(name)
        permissions.forget_topic(self.catalog, name)
        if not self.catalog.has_relatives(name):
            self.schemas.forget(schema_id(name), batch)

    def delete_partitioned(self, name: TopicName, *, force: bool = False) -> None:
        if name.full not in self.catalog.partitioned:
            raise TopicNotFound(f"Topic {name.full} not found")
        partitions = [
            name.with_partition(index)
            for index in range(self.catalog.partitioned[name.full].partitions)
            if self.catalog.exists(name.with_partition(index))
        ]
        for partition in partitions:
            self._check_unloaded(partition)
        if not force:
            for partition in partitions:
                topic = self.topic(partition)
                if len(topic.producers) or topic.user_count:
                    raise TopicBusy("Topic has active producers/subscriptions")
                topic.check_replicated()
        for partition in partitions:
            self.delete_topic(partition, force=True)
        self.catalog.forget_partitioned(name)
        permissions.forget_topic(self.catalog, name)
        if not self.catalog.has_relatives(name):
            self.schemas.forget(schema_id(name), self.commits.batch())

    # -- producers of persistent topics, while storage needs room

    def hold_producers(self, reason: str) -> None:
        """Disconnects all, and refuses them until they are released; their clients wait and retry."""
        is_new = not self.held
        self.held = reason
        if is_new:
            for topic in list(self.topics.values()):
                if isinstance(topic, PersistentTopic):
                    try:
                        topic.producers.close_all()
                    except Exception as error:
                        self._host.fault("maintenance", error, topic.name.full)

    def release_producers(self) -> None:
        self.held = ""

    # -- settings that change while the broker runs

    def set_dynamic_setting(self, name: str, text: str) -> None:
        """Raises InvalidSetting if the value is not allowed."""
        self._apply_dynamic_settings({**self.dynamic_settings, name: text})
        self.commits.put(keys.named(keys.DYNAMIC_SETTING, name), text.encode())

    def remove_dynamic_setting(self, name: str) -> None:
        self._apply_dynamic_settings({key: text for key, text in self.dynamic_settings.items() if key != name})
        self.commits.batch().delete(keys.named(keys.DYNAMIC_SETTING, name))

    def _apply_dynamic_settings(self, texts: dict[str, str]) -> None:
        self.settings = self._started_with.with_texts(texts)
        self.dynamic_settings = texts
        self.policies = Policies.of(self.settings)
        self.limits.apply(self.settings)
        self.catalog.settings_changed()

    # -- steps, pump and timers

    def attempt(self, kind: FaultKind, where: str, step: Callable[[], None]) -> bool:
        """Runs one step by itself: an error in it is reported, and the steps after it run. False if there was one."""
        try:
            step()
        except Exception as error:
            self.fault(kind, error, where)
            return False
        return True

    def pump_later(self, pumpable: Pumpable) -> None:
        if not self._pumpable:
            self._host.pump_soon()
        self._pumpable[pumpable] = None

    def pump(self) -> None:
        """One turn of dispatch for everything that requested it; more work requests another turn."""
        pumpable, self._pumpable = self._pumpable, {}
        for one in pumpable:
            try:
                one.pump()
            except UNREADABLE as error:
                self._met_damage(*one.where, error)
            except Exception as error:
                topic, subscription = one.where
                self.fault("dispatch", error, f"subscription {subscription} of {topic}")
                self.restore(one)

    def restore(self, pumpable: Pumpable) -> None:
        """After an unexpected error: if it left positions of a subscription in no place, its consumers are closed and
        come back, and everything unacknowledged is delivered again. An error that changed nothing costs nothing.
        """
        if isinstance(pumpable, Subscription) and not pumpable.places.is_consistent(pumpable.consumers):
            pumpable.disconnect_consumers()
            pumpable.places.rewind()

    def _met_damage(self, topic: str, subscription: str, error: Exception) -> None:
        """A subscription cannot read on. It stops where it is, and tries again whenever it is woken."""
        first = error.first if isinstance(error, EntriesDamaged) else None
        position = "" if first is None else f"{self.catalog.topics[topic].ledger_id}:{first}"
        self.damage.note("subscription", topic, error, subscription, position)

    @property
    def has_work(self) -> bool:
        return bool(self._pumpable)

    def wake_at(self, time_ms: int, action: Callable[[], None]) -> None:
        """At a time of the clock."""
        self.timers.at(time_ms, action)

    def wake_after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """After an interval, whether the clock is set meanwhile or not."""
        self.intervals.at(self.clock.monotonic_ms() + delay_ms, action)

    @property
    def wait_ms(self) -> int | None:
        """Until the next timer is due; None if there is none."""
        waits = [wait_ms for timers in (self.timers, self.intervals) if (wait_ms := timers.wait_ms) is not None]
        return min(waits, default=None)

    def tick(self) -> None:
        self.steady.now_ms()  # notices a jump of the clock
        self.timers.run_due()
        self.intervals.run_due()

    def _clock_jumped(self, jump_ms: int) -> None:
        self.event(CLOCK_JUMPED, direction="forward" if jump_ms > 0 else "back", seconds=abs(jump_ms) // 1000)

    def invariants(self) -> None:
        for topic in self.topics.values():
            if isinstance(topic, PersistentTopic):
                topic.invariants()

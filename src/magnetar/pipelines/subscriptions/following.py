"""One round of replicated subscriptions, for one topic or partition and one remote cluster.

Owns which positions are read in which order, how many entries are read, and what is acknowledged in the remote
cluster. `consumed` decides what is consumed; `cursors` sends the requests. Positions only move forward, so two rounds
at the same time, or both directions, do no harm.
"""

from __future__ import annotations

import time
from contextlib import aclosing, suppress

import msgspec

from magnetar.client.errors import Conflict, ConsumerBusy, NotFound
from magnetar.client.message import Position
from magnetar.names import TopicName
from magnetar.pipelines.subscriptions.consumed import Consumed, Trace, Verdict, Walk, classify, trace
from magnetar.pipelines.subscriptions.cursors import CursorClient, Cursors
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import FOREIGN_SUBSCRIPTION_PREFIX, SUBSCRIPTION_PREFIX

ENTRIES_MAX = 20_000
BYTES_MAX = 32 << 20
"""Read in each cluster for one subscription in one round."""


class Memory(msgspec.Struct):
    """The memory of one subscription from the round before."""

    consumed: Consumed = msgspec.field(default_factory=Consumed)
    was_there: bool = False  # the remote cluster had it
    position: Position | None = None  # of the subscription in the remote cluster
    reached: Position | None = None  # the last decided entry, if one after `position` is held
    is_ragged: bool = False  # entries after `position` were acknowledged there
    unknown: frozenset[str] = frozenset()  # origins of held entries of which no position is known
    seen: tuple[object, ...] = ()  # all positions of the last complete round


class FollowTask(msgspec.Struct, frozen=True):
    """One topic without partitions, or one partition."""

    source: ClusterEndpoint
    remote: ClusterEndpoint
    topic: str
    target: str  # its name in the remote cluster
    subscriptions: tuple[str, ...]
    memories: dict[str, Memory] = {}


class FollowResult(msgspec.Struct):
    topic: str
    remote: str
    memories: dict[str, Memory] = {}
    moved: dict[str, Position] = {}  # the new positions of subscriptions in the remote cluster
    notes: dict[str, str] = {}
    error: str = ""
    is_behind: bool = False
    is_quiet: bool = True


class FollowedTopic(msgspec.Struct, frozen=True):
    """In both clusters."""

    source: CursorClient
    remote: CursorClient
    name: TopicName
    target: TopicName
    deadline_s: float


class Round:
    """Fills a `FollowResult`."""

    def __init__(self, topic: FollowedTopic, subscriptions: tuple[str, ...], result: FollowResult) -> None:
        self._topic = topic
        self._subscriptions = subscriptions
        self._result = result

    async def run(self, there: Cursors | None = None, here: Cursors | None = None) -> None:
        """Cursors that are known already were read from the remote cluster first, as `_read_cursors` does."""
        topic, result = self._topic, self._result
        try:
            if there is None or here is None:
                there, here = await self._read_cursors()
            if await self._create_missing(there, here):
                there, here = await self._read_cursors()
        except NotFound as error:
            result.memories = {}  # a new topic may have the same name
            result.error = error.text
            return
        for name in self._subscriptions:
            memory = result.memories.setdefault(name, Memory())
            if name not in here.marks:
                result.notes[name] = f"it does not exist in cluster {topic.source.name}"
            elif name not in there.marks:
                result.notes[name] = f"it was deleted in cluster {topic.remote.name}"
            else:
                await Following(topic, name, memory, there, here, result).run()

    async def _read_cursors(self) -> tuple[Cursors, Cursors]:
        """The remote first: entries that it reports as copied are stored here by then, see `_know_returned`."""
        there = await self._topic.remote.cursors(self._topic.target)
        return there, await self._topic.source.cursors(self._topic.name)

    async def _create_missing(self, there: Cursors, here: Cursors) -> bool:
        """A subscription that existed before was deleted by a user, and is not created again."""
        known = self._result.memories
        missing = [
            name
            for name in self._subscriptions
            if name in here.marks and name not in there.marks and not (name in known and known[name].was_there)
        ]
        for name in missing:
            with suppress(Conflict):  # another client was faster
                await self._topic.remote.create(self._topic.target, name)
        return bool(missing)


class Following:
    """One subscription in one round. `mark` is its position here, `position` the one in the remote cluster."""

    def __init__(
        self, topic: FollowedTopic, name: str, memory: Memory, there: Cursors, here: Cursors, result: FollowResult
    ) -> None:
        self._topic = topic
        self._name = name
        self._memory = memory
        self._there = there
        self._here = here
        self._result = result
        self._mark = here.marks[name]
        self._position = there.marks[name]
        self._exact: set[str] = {topic.source.name}  # origins whose position is exact without reading
        self._unknown: set[str] = set()
        self._is_behind = False  # there are more entries to read
        self._is_done = True  # all decisions were carried out
        self._entries_left = ENTRIES_MAX
        if here.entry_size:
            self._entries_left = min(ENTRIES_MAX, 1 + int(BYTES_MAX / here.entry_size))

    async def run(self) -> None:
        memory, there = self._memory, self._there
        memory.was_there = True
        returned = self._returned()
        seen = (self._mark, self._position, there.last, returned)
        if memory.seen == seen:
            return
        self._result.is_quiet = False
        if self._name in there.active and await self._is_in_use():
            return
        memory.consumed.move_to(self._topic.source.name, self._mark)
        self._know_returned(returned)
        begin = await self._begin()
        walk = Walk(holds=begin > self._position)
        if begin < there.last:
            await self._go_through(walk, begin)
            if not await self._acknowledge(walk):
                return
        memory.position = max(self._position, walk.up_to or self._position)
        memory.is_ragged = walk.holds and (bool(walk.each) or (begin > self._position and memory.is_ragged))
        memory.reached = (walk.reached or begin) if walk.holds else None
        memory.unknown = frozenset(self._unknown) if walk.holds else frozenset()
        memory.seen = seen if self._is_done and not self._is_behind else ()
        self._result.is_behind |= self._is_behind

    # -- known without reading entries

    def _returned(self) -> Position | None:
        """The position up to which the remote's own entries are copied to the source, by either replicator."""
        names = (prefix + self._topic.source.name for prefix in (SUBSCRIPTION_PREFIX, FOREIGN_SUBSCRIPTION_PREFIX))
        return max((self._there.marks[name] for name in names if name in self._there.marks), default=None)

    def _know_returned(self, returned: Position | None) -> None:
        """A subscription that has consumed all entries of its cluster has consumed all copies that arrived."""
        if returned is not None and self._mark >= self._here.last:
            self._memory.consumed.know(self._topic.remote.name, returned)
            self._exact.add(self._topic.remote.name)

    async def _begin(self) -> Position:
        """The start of the walk: the position, or if an entry is held there, the last decided entry."""
        memory, position = self._memory, self._position
        if memory.reached is None or memory.position is None or not memory.position <= position < memory.reached:
            return position
        if memory.is_ragged and self._name not in self._there.ragged:
            return position  # a user moved it back
        for origin in memory.unknown:
            if not await self._settle(origin):
                self._is_behind = True
        if memory.unknown & memory.consumed.marks.keys():
            return position
        self._unknown.update(memory.unknown)
        return memory.reached

    # -- reading entries

    async def _go_through(self, walk: Walk, begin: Position) -> None:
        topic, entries_left, bytes_left = self._topic, ENTRIES_MAX, BYTES_MAX
        async with aclosing(topic.remote.entries(topic.target, begin, self._there.last)) as parts:
            async for entries in parts:
                for entry in entries:
                    if entries_left <= 0 or bytes_left <= 0:
                        self._is_behind = True
                        return
                    traced = trace(entry, topic.remote.name)
                    verdict = classify(traced, topic.source.name, self._memory.consumed.marks)
                    if verdict is not Verdict.CONSUMED:
                        verdict = await self._classify_again(traced)
                    walk.step(traced.position, verdict)
                    if walk.is_over:
                        return
                    entries_left -= 1
                    bytes_left -= len(entry.blob)
                if time.monotonic() > topic.deadline_s:
                    self._is_behind = True
                    return

    async def _classify_again(self, traced: Trace) -> Verdict:
        """For an entry that is not known to be consumed: after all that can be known was read."""
        source, consumed, origin = self._topic.source.name, self._memory.consumed, traced.origin
        if traced.source is None or (traced.goes_to and source not in traced.goes_to and origin != source):
            return Verdict.HELD
        if origin not in self._exact and not await self._settle(origin):
            self._is_behind = True
            return Verdict.OPEN
        verdict = classify(traced, source, consumed.marks)
        if verdict is Verdict.HELD:
            self._unknown.add(origin)
        return verdict

    async def _settle(self, origin: str) -> bool:
        """Reads the source's topic for copies from an origin; False if that takes more than this round."""
        topic, consumed, ledgers = self._topic, self._memory.consumed, self._here.ledgers
        while not consumed.is_settled(origin, self._mark, ledgers):
            span = consumed.next_range(self._mark, ledgers, self._entries_left)
            if span is None or time.monotonic() > topic.deadline_s:
                return False
            traces: list[Trace] = []
            async with aclosing(topic.source.entries(topic.name, *span)) as parts:
                async for entries in parts:
                    traces += [trace(entry, topic.source.name) for entry in entries]
            consumed.learn(span, topic.source.name, traces)
            self._entries_left -= ledgers.count(*span)
        return True

    # -- acknowledging

    async def _acknowledge(self, walk: Walk) -> bool:
        """False if the subscription is in use."""
        topic, name = self._topic, self._name
        moves = walk.up_to is not None and walk.up_to > self._position
        if not (moves or walk.each):
            return True
        if await self._is_in_use():
            return False
        try:
            if moves and walk.up_to is not None:
                await topic.remote.move_up_to(topic.target, name, walk.up_to)
                self._result.moved[name] = walk.up_to
            if walk.each:
                await topic.remote.acknowledge_each(topic.target, name, walk.each)
                self._result.moved[name] = walk.each[-1]
        except Conflict:  # Apache Pulsar still handles the last request: again in the next round
            self._is_done = False
        except ConsumerBusy:
            self._leave_alone()
            return False
        return True

    async def _is_in_use(self) -> bool:
        if not await self._topic.remote.has_consumers(self._topic.target, self._name):
            return False
        self._leave_alone()
        return True

    def _leave_alone(self) -> None:
        self._memory.seen = ()
        self._result.notes[self._name] = f"a consumer is connected in cluster {self._topic.remote.name}"

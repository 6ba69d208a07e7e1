"""State that clients fill by inventing names and numbers: each kind has a limit, in memory and on disk."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from magnetar.bounds import ERRORS_OF_ENTRY, INBOUND_SOURCES, INDEX_COUNTS, LETTERS_OF_BATCH, LETTERS_OF_MESSAGE
from magnetar.broker import keys
from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.commit import GROUP_SIZE_MAX
from magnetar.broker.subscription import cursor as cursor_module
from magnetar.broker.subscription.cursor import Cursor
from magnetar.broker.topic.inbound import OTHERS
from magnetar.errors import NotAllowed
from magnetar.storage.api import Space
from magnetar.wire.metadata import build_blob
from magnetar.wire.schema_pb2 import MessageMetadata
from tests.broker.world import World
from tests.session.test_repeated_dead_letters import Connection, stored


def rows(world: World, kind: bytes) -> list[bytes]:
    start = keys.under(kind, world.topic().ledger_id)
    return [key[9:] for key, _ in world.storage.scan(Space.STATE, start, keys.after(start))]


def publish_as(world: World, name: str, sequence_id: int = 1) -> None:
    producer = world.producer(name=name)
    blob = build_blob(MessageMetadata(producer_name=name, sequence_id=sequence_id, publish_time=1), b"x")
    world.topic().publish(producer, [(sequence_id, sequence_id, 1, blob, False, False)])
    world.settle()
    world.topic().producers.remove(producer)


class TestProducersRemembered:
    LIMIT = 5

    def test_bound_producers_remembered_for_deduplication(self) -> None:
        world = World(brokerDeduplicationEnabled=True, brokerDeduplicationMaxNumberOfProducers=self.LIMIT)
        for number in range(20):
            publish_as(world, f"p{number}")
            world.clock.advance(seconds=1)
        assert len(rows(world, keys.DEDUPLICATION)) == self.LIMIT
        assert world.topic().last_sequence_id("p19") == 1 and world.topic().last_sequence_id("p14") == -1
        again = world.restart(brokerDeduplicationEnabled=True, brokerDeduplicationMaxNumberOfProducers=self.LIMIT)
        publish_as(again, "p15", 2)
        publish_as(again, "new")
        assert again.topic().last_sequence_id("p15") == 2 and again.topic().last_sequence_id("p16") == -1

    @pytest.mark.parametrize("prefix", ["magnetar.repl.{}/t/1", "pulsar.repl.{}"])
    def test_bound_producers_remembered_of_replication(self, prefix: str) -> None:
        world = World(brokerDeduplicationMaxNumberOfProducers=self.LIMIT)
        kind = keys.REPLICATED if prefix.startswith("magnetar") else keys.PULSAR_REPLICATED
        for number in range(20):
            name = prefix.format(f"c{number}")
            producer = world.producer(name=name, knows_positions=True)
            metadata = MessageMetadata(producer_name=name, sequence_id=1, publish_time=1, replicated_from="c")
            metadata.properties.add(key="__MSG_PROP_REPL_SOURCE_POSITION", value="1:2")
            world.topic().publish(producer, [(1, 1, 1, build_blob(metadata, b"x"), False, False)])
            world.settle()
            world.topic().producers.remove(producer)
        assert 0 < len(rows(world, kind)) <= self.LIMIT


def test_bound_inbound_sources() -> None:
    world = World()
    for number in range(INBOUND_SOURCES.limit + 20):
        publish_as(world, f"magnetar.repl.c{number}/t/1")
    inbound = world.topic().inbound
    assert len(inbound) == INBOUND_SOURCES.limit + 1
    assert inbound[OTHERS].messages_in == 20
    assert sum(one.messages_in for one in inbound.values()) == INBOUND_SOURCES.limit + 20


class TestLetters:
    def test_bound_letters_of_message_are_hashes_and_few(self) -> None:
        """A thousand letters of two kilobytes wrote a gigabyte: each was noted with all before it."""
        world = World()
        world.publish(1)
        client = Connection(world)
        for number in range(LETTERS_OF_MESSAGE.limit * 2):
            client.letter(generation=f"{number}-{'x' * 2000}")
        state = world.subscription().cursor.state_of(0)
        assert state is not None and len(state.published) == LETTERS_OF_MESSAGE.limit
        assert sum(map(len, state.published)) < 1000
        before = stored(world)
        client.letter(generation=f"{LETTERS_OF_MESSAGE.limit * 2 - 1}-{'x' * 2000}")
        assert stored(world) == before, "the latest are still known"

    def test_bound_letters_of_batch(self) -> None:
        world = World()
        world.publish(1, messages=2000)
        client = Connection(world)
        world.subscription().flow(client.session.consumers[1].consumer, 2000)
        world.settle()
        for index in range(LETTERS_OF_BATCH.limit + 5):
            client.letter(batch=index)  # type: ignore[arg-type]
        state = world.subscription().cursor.state_of(0)
        assert state is not None and len(state.published) == LETTERS_OF_BATCH.limit

    def test_a_letter_noted_by_an_earlier_version_is_known(self) -> None:
        world = World()
        world.publish(1)
        client = Connection(world)
        key = "-1   persistent://public/default/t-s-DLQ"
        world.subscription().cursor.change(0, lambda state: state.publish(key, 64))
        client.letter()
        assert stored(world) == 0


class TestCounts:
    @pytest.fixture(autouse=True)
    def few_states(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(cursor_module, "STATES_KEPT", 100)
        monkeypatch.setattr(cursor_module, "STATES_OF_READER", 100)
        yield

    def test_bound_index_counts_are_read_from_disk_beyond(self) -> None:
        world = World()
        world.publish(3, messages=60_000)
        world.consumer(permits=1)
        cursor = world.subscription().cursor
        for entry_id in range(3):
            cursor.count_redelivery(entry_id, 1, (1 << 60_000) - 1)
            world.settle()
        assert sum(len(state.index_counts) for state in cursor._states.values()) <= INDEX_COUNTS.limit
        state = cursor.state_of(0)
        assert state is not None and len(state.index_counts) == 60_000

    def test_a_cursor_that_is_only_in_memory_forgets_the_oldest(self) -> None:
        cursor = Cursor(None, 0, -1)
        for entry_id in range(1, 1000):
            cursor.count_redelivery(entry_id, 1)
        assert len(cursor._states) <= 100 and cursor.state_of(999) is not None
        for entry_id in range(1, 1000, 2):
            cursor.ack(entry_id)
        assert not cursor._changed


def test_bound_errors_of_entry() -> None:
    world = World()
    world.publish(1, messages=200)
    world.consumer(permits=1)
    cursor = world.subscription().cursor
    for index in range(ERRORS_OF_ENTRY.limit):
        cursor.report_error(0, index, "no")
    with pytest.raises(NotAllowed, match=f"has {ERRORS_OF_ENTRY.limit} errors already"):
        cursor.report_error(0, ERRORS_OF_ENTRY.limit, "no")
    cursor.report_error(0, 0, "yes")


def test_records_count_as_bytes_that_wait_for_the_disk() -> None:
    world = World()
    world.consumer()
    subscription, commits = world.subscription(), world.broker.commits
    for number in range(3):
        subscription.set_properties({"k": f"{number}" * GROUP_SIZE_MAX})
    assert commits.waiting_bytes > 3 * GROUP_SIZE_MAX
    group = commits.take()
    assert group is not None and group.size < 2 * GROUP_SIZE_MAX, "they do not all share a group"
    world.storage.write(group.batch)
    group.complete()
    subscription.set_dead_letter_policy(DeadLetterPolicy(1), "test")
    world.settle()
    assert commits.waiting_bytes == 0

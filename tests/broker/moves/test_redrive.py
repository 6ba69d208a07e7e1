"""SP3: plain letters are redriven inside the broker: stored in their targets and acknowledged in one commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from magnetar.broker import keys
from magnetar.broker.catalog.policies import BacklogQuota, Overrides, QuotaKind, QuotaPolicy
from magnetar.broker.host import ManualHost
from magnetar.broker.moves import redrive as redriving_module
from magnetar.broker.moves.redrive import PRODUCER, Destination, RedriveFound
from magnetar.broker.topic import run as runs
from magnetar.deadletter.redriven import OriginKey
from magnetar.errors import (
    EntriesDamaged,
    MagnetarError,
    NotAllowed,
    QuotaHold,
    RightMissing,
    ServiceNotReady,
    SubscriptionDamaged,
    SubscriptionNotFound,
    TopicNotFound,
    TopicTerminated,
)
from magnetar.names import TopicName
from magnetar.pipeline_bounds import REDRIVEN_AHEAD, REDRIVEN_BYTES, REDRIVEN_TOGETHER
from magnetar.storage.rocks import RocksStorage
from magnetar.wire.metadata import build_blob
from magnetar.wire.schema_pb2 import LZ4, EncryptionKeys, KeyValue, MessageMetadata
from tests.broker.moves.redriving import (
    ONLY_S,
    ORIGIN,
    SOURCE,
    TARGET,
    begin,
    letter,
    letters_left,
    numbered,
    open_of,
    payloads,
    publish,
    redrive,
    stored,
    subscribe,
    texts,
    with_letters,
)
from tests.broker.world import START_MS, SubscriptionType, World

HISTORY = '[{"topic":"t","subscription":"s","reason":"MaxRedeliveries","count":2,"first":1,"last":2}]'


class TestWhereTo:
    def test_sp3_to_the_origin_and_there_only_to_the_subscription_that_failed(self) -> None:
        world = with_letters(*numbered(range(3)))
        subscribe(world, "third", "t")
        assert redrive(world) == RedriveFound(2, sent={ORIGIN: 3})
        for one in (world, world.restart()):
            assert payloads(one) == [b"0", b"1", b"2"]
            assert letters_left(one) == []
            assert [open_of(one, name) for name in ("s", "other", "third")] == [[0, 1, 2], [], []]

    def test_sp3_consumers_of_that_subscription_receive_it(self) -> None:
        world = with_letters(*numbered(range(3)))
        for name in ("s", "other"):
            world.consumer(name, name=name)
        redrive(world)
        assert [name for name, _ in world.client.delivered] == ["s"] * 3

    def test_sp3_to_all_subscriptions_of_the_origin(self) -> None:
        world = with_letters(*numbered(range(3)))
        redrive(world, targets={ORIGIN: Destination(TARGET)})
        assert open_of(world, "s") == open_of(world, "other") == [0, 1, 2]

    def test_sp3_each_to_its_own_origin(self) -> None:
        other = OriginKey("persistent://public/default/u", None, "s")
        world = with_letters(letter(b"0"), letter(b"1", topic=other.topic), letter(b"2"))
        world.topic("u")
        found = redrive(world, targets={ORIGIN: ONLY_S, other: Destination(other.topic or "")})
        assert found.sent == {ORIGIN: 2, other: 1}
        assert (payloads(world), payloads(world, "u")) == ([b"0", b"2"], [b"1"])

    def test_sp3_by_key_and_else_by_number_to_a_partitioned_target(self) -> None:
        """Keys go where producers with Java's hash send them, which is their code for a single character."""
        source = "many-s-DLQ-partition-2"
        world = World()
        for name, partitions in (("many", 3), ("many-s-DLQ", 5)):
            world.broker.catalog.create_partitioned(TopicName.parse(name), partitions, {})
        world.settle()
        subscribe(world, "handled", source)
        many = "persistent://public/default/many"
        blobs = [letter(key.encode(), topic=many, partition_key=key) for key in "abcab"]
        publish(world, *blobs, letter(b"-", topic=many), source=source)
        origin = OriginKey(many, None, "s")
        assert redrive(world, source, targets={origin: Destination(many)}).sent == {origin: 6}
        expected = {ord("a") % 3: [b"a", b"a"], ord("b") % 3: [b"b", b"b"], ord("c") % 3: [b"c"]}
        expected[2] = [*expected[2], b"-"]
        assert [payloads(world, f"many-partition-{number}") for number in range(3)] == [
            expected[number] for number in range(3)
        ]

    def test_sp3_an_unpartitioned_source_without_keys_has_number_0(self) -> None:
        world = with_letters(letter(topic="persistent://public/default/many"))
        world.broker.catalog.create_partitioned(TopicName.parse("many"), 3, {})
        many = "persistent://public/default/many"
        redrive(world, targets={OriginKey(many, None, "s"): Destination(many)})
        assert [len(stored(world, f"many-partition-{number}")) for number in range(3)] == [1, 0, 0]

    def test_sp3_a_partition_that_is_missing_is_created_as_for_a_producer(self) -> None:
        many = "persistent://public/default/many"
        world = with_letters(letter(topic=many))
        world.broker.catalog.create_partitioned(TopicName.parse("many"), 1, {})
        world.broker.delete_topic(TopicName.parse("many-partition-0"))
        world.settle()
        redrive(world, targets={OriginKey(many, None, "s"): Destination(many)})
        assert len(stored(world.restart(), "many-partition-0")) == 1

    def test_sp3_kept_ones_stay_and_are_counted(self) -> None:
        other = OriginKey("persistent://public/default/gone", None, "s")
        world = with_letters(letter(b"0"), letter(b"1", topic=other.topic), letter(b"2"))
        found = redrive(world, targets={ORIGIN: ONLY_S, other: Destination("")})
        assert (found.up_to, found.sent, found.kept) == (2, {ORIGIN: 2}, {other: 1})
        assert (payloads(world), letters_left(world)) == ([b"0", b"2"], [1])

    def test_sp3_anywhere_takes_all_others_also_one_without_an_origin(self) -> None:
        world = with_letters(letter(b"0"), letter(b"1", topic="", subscription=""), letter(b"2", topic="bad name!"))
        world.topic("fix")
        fix = Destination("persistent://public/default/fix")
        found = redrive(world, anywhere=fix)
        assert (found.sent, found.sent_anywhere, found.unknown) == ({ORIGIN: 1}, 2, set())
        assert (payloads(world), payloads(world, "fix")) == ([b"0"], [b"1", b"2"])
        properties = [texts(metadata) for metadata, _ in stored(world, "fix")]
        assert "DEATH_HISTORY" not in properties[0] and properties[0]["REDRIVE_GENERATION"] == "1"
        assert not any("REDRIVE_SUBSCRIPTION" in one for one in properties)

    def test_sp3_back_to_its_own_topic(self) -> None:
        """A redrive ends before what it sends."""
        world = with_letters(*numbered(range(3)))
        found = redrive(world, targets={}, anywhere=Destination(f"persistent://public/default/{SOURCE}"))
        assert (found.sent_anywhere, found.up_to, letters_left(world)) == (3, 2, [3, 4, 5])

    def test_sp3_a_dead_letter_topic_with_several_subscriptions_is_acknowledged_for_all(self) -> None:
        world = with_letters(*numbered(range(4)))
        subscribe(world, "inspection", SOURCE)
        world.subscription("inspection", SOURCE).ack(1)  # it waits for `handled` still
        for name in ("handled", "inspection"):
            world.subscription(name, SOURCE).ack(3)
        assert redrive(world).sent == {ORIGIN: 3}
        assert letters_left(world) == open_of(world, "inspection", SOURCE) == []
        assert payloads(world) == [b"0", b"1", b"2"]


class TestMessage:
    def test_sp3_what_it_begins_its_new_life_with(self) -> None:
        old = {
            "own": "ü",
            "ORIGIN_MESSAGE_ID": "7:3:-1",
            "RECONSUMETIMES": "3",
            "DELAY_TIME": "1000",
            "DEATH_REASON": "MaxRedeliveries",
            "DEATH_ERROR": 'a "quoted" text',
            "DEATH_NOTE": "of the application",
            "REDRIVE_GENERATION": "1",
            "REDRIVE_SUBSCRIPTION": "earlier",
        }
        world = with_letters(letter(properties=old), letter(properties=old | {"DEATH_HISTORY": HISTORY}))
        redrive(world)
        first, second = (texts(metadata) for metadata, _ in stored(world))
        (death,) = json.loads(first.pop("DEATH_HISTORY"))
        assert second.pop("DEATH_HISTORY") == HISTORY
        expected = {"own": "ü", "DEATH_NOTE": "of the application", "REDRIVE_GENERATION": "2"}
        assert first == second == expected | {"REDRIVE_SUBSCRIPTION": "s"}
        assert death == {
            "topic": TARGET,
            "subscription": "s",
            "reason": "MaxRedeliveries",
            "count": 3,
            "first": START_MS,
            "last": START_MS,
            "error": 'a "quoted" text',
        }

    def test_sp3_the_rest_of_it_stays_byte_by_byte(self) -> None:
        compressed = bytes(range(256)) * 3
        kept: dict[str, Any] = {
            "partition_key": "k",
            "partition_key_b64_encoded": True,
            "ordering_key": b"\xff\x00",
            "event_time": 1_700_000_000_123,
            "schema_version": b"\x00\x07",
            "compression": LZ4,
            "uncompressed_size": 9999,
            "null_value": True,
            "chunk_id": 0,
            "num_chunks_from_msg": 1,
        }
        gone: dict[str, Any] = {"deliver_at_time": 5, "highest_sequence_id": 9, "replicate_to": ["west"]}
        world = with_letters(letter(compressed, **kept, **gone, replicated_from="east"))
        world.advance(seconds=5)
        redrive(world)
        ((metadata, payload),) = stored(world)
        assert payload == compressed
        shown = {field.name: value for field, value in metadata.ListFields() if field.name != "properties"}
        assert shown == kept | {"producer_name": PRODUCER, "sequence_id": 0, "publish_time": START_MS + 5000}

    def test_sp3_delays_are_over(self) -> None:
        world = with_letters(letter(deliver_at_time=START_MS + 3_600_000))
        world.consumer()
        redrive(world)
        assert world.client.take() == [0]

    def test_sp3_an_entry_without_a_checksum_or_with_a_broker_entry(self) -> None:
        plain = letter(b"0")
        world = with_letters(plain[6:], b"\x0e\x02\x00\x00\x00\x02\x08\x01" + plain)
        assert redrive(world).sent == {ORIGIN: 2}
        assert payloads(world) == [b"0", b"0"]

    def test_sp3_sequence_ids_deduplicate_nothing(self) -> None:
        world = with_letters(*numbered(range(3)))
        world.broker.catalog.set_overrides(TopicName.parse("t"), Overrides(deduplication=True))
        redrive(world)
        publish(world, *numbered(range(3, 6)))
        redrive(world)
        assert payloads(world) == [b"%d" % number for number in range(6)]

    def test_sp3_the_subscription_is_that_of_the_topic_where_the_letter_names_none(self) -> None:
        world = with_letters(letter(subscription=""))
        assert redrive(world).sent == {ORIGIN: 1}
        assert texts(stored(world)[0][0])["REDRIVE_SUBSCRIPTION"] == "s"


def damage(world: World, entry: int) -> None:
    """Overwrites a letter in a run of its own."""
    batch = world.storage.batch()
    batch.put_entry(keys.PAIR.pack(world.topic(SOURCE).record.id, entry), b"\xc1")
    world.storage.write(batch)
    world.storage.sync()


def _not_utf8(name: bytes, value: bytes) -> bytes:
    """A letter with one more property."""
    pair = KeyValue(key="nn", value="vv").SerializeToString().replace(b"nn", name).replace(b"vv", value)
    tag = bytes([MessageMetadata.PROPERTIES_FIELD_NUMBER << 3 | 2, len(pair)])
    section = _section(letter())
    return len(section + tag + pair).to_bytes(4) + section + tag + pair + b"x"


def _section(blob: bytes) -> bytes:
    return blob[10 : 10 + int.from_bytes(blob[6:10])]


def _no_text_key() -> bytes:
    section = _section(letter()) + bytes([MessageMetadata.PARTITION_KEY_FIELD_NUMBER << 3 | 2, 2]) + b"\xff\xfe"
    return len(section).to_bytes(4) + section + b"x"


def _damaged() -> bytes:
    good = letter(b"damaged")
    return good[:-1] + b"!"


NOT_PLAIN = {
    "batch": letter(num_messages_in_batch=3),
    "batch of one": letter(num_messages_in_batch=1),
    "encrypted": letter(encryption_keys=[EncryptionKeys(key="k", value=b"v")]),
    "chunk": letter(uuid="u", chunk_id=0, num_chunks_from_msg=2, total_chunk_msg_size=9),
    "value that is not UTF-8": _not_utf8(b"nn", b"\xff\xfe"),
    "name that is not UTF-8": _not_utf8(b"\xff\xfe", b"vv"),
    "key that is not UTF-8": _no_text_key(),
    "generation that is no number": letter(properties={"REDRIVE_GENERATION": "one"}),
    "negative generation": letter(properties={"REDRIVE_GENERATION": "-1"}),
    "generation of other digits": letter(properties={"REDRIVE_GENERATION": "٣"}),
    "too long a generation": letter(properties={"REDRIVE_GENERATION": "1" * 10}),
    "generation at the limit": letter(properties={"REDRIVE_GENERATION": "3"}),
    "damaged": _damaged(),
    "unreadable metadata": build_blob(MessageMetadata(), b"x").replace(b"\x00\x00\x00\x00", b"\x00\x00\x00\x01", 1)[6:],
    "no metadata": b"\x0e\x01",
    "empty": b"",
}


class TestEnds:
    @pytest.mark.parametrize("blob", NOT_PLAIN.values(), ids=NOT_PLAIN)
    def test_sp3_before_a_letter_that_is_not_plain(self, blob: bytes) -> None:
        world = with_letters(*numbered(range(2)))
        publish(world, blob, messages=3 if blob is NOT_PLAIN["batch"] else 1)
        publish(world, *numbered(range(3, 5)))
        assert redrive(world) == RedriveFound(1, is_plain=False, sent={ORIGIN: 2})
        assert redrive(world, after=1) == RedriveFound(1, is_plain=False)
        for one in (world, world.restart()):
            assert (payloads(one), letters_left(one)) == ([b"0", b"1"], [2, 3, 4])
        assert redrive(world, after=2).sent == {ORIGIN: 2}
        assert world.topic(SOURCE).log.read_one(2)[3] == blob  # type: ignore[index]

    def test_sp3_before_a_batch_whose_metadata_name_one_message(self) -> None:
        world = with_letters()
        publish(world, letter(), messages=3)
        assert redrive(world) == RedriveFound(-1, is_plain=False)

    def test_sp3_generations_below_the_limit_go(self) -> None:
        world = with_letters(letter(properties={"REDRIVE_GENERATION": "2"}))
        assert redrive(world).sent == {ORIGIN: 1}
        assert texts(stored(world)[0][0])["REDRIVE_GENERATION"] == "3"

    def test_sp3_not_with_a_marker_or_a_letter_for_another_redrive(self) -> None:
        limit = START_MS + 1000
        world = with_letters(
            letter(b"0"),
            letter(b"marker", marker_type=10),
            letter(b"later", publish_time=limit + 1, num_messages_in_batch=2),
            letter(b"3", publish_time=limit),
        )
        assert redrive(world, published_until_ms=limit) == RedriveFound(3, sent={ORIGIN: 2})
        assert (payloads(world), letters_left(world)) == ([b"0", b"3"], [1, 2])

    def test_sp3_before_an_unknown_origin_and_with_those_that_follow(self) -> None:
        unknown = [OriginKey(f"persistent://public/default/u{number}", number, "s") for number in range(3)]
        blobs = [letter(topic=f"{one.topic}-partition-{one.partition}") for one in unknown]
        marker = letter(topic="", marker_type=1)
        later = letter(topic="later", publish_time=START_MS + 1)
        batch = letter(num_messages_in_batch=2)
        world = with_letters(letter(), blobs[0], letter(), blobs[1], marker, later, blobs[0], batch, blobs[2])
        found = redrive(world, published_until_ms=START_MS)
        assert found == RedriveFound(0, sent={ORIGIN: 1}, unknown=set(unknown[:2]))
        assert letters_left(world) == list(range(1, 9))

    def test_sp3_at_its_letters_and_at_its_last_entry(self) -> None:
        world = with_letters(*numbered(range(9)))
        assert redrive(world, letters=2).up_to == 1
        assert redrive(world, after=1, up_to=4).up_to == 4
        assert redrive(world, after=6, up_to=7).up_to == 7
        assert (letters_left(world), payloads(world)) == ([5, 6, 8], [b"0", b"1", b"2", b"3", b"4", b"7"])
        assert redrive(world, up_to=1 << 62) == RedriveFound(8, sent={ORIGIN: 3})

    def test_sp3_kept_letters_count_as_well(self) -> None:
        world = with_letters(*numbered(range(9)))
        assert redrive(world, letters=2, targets={ORIGIN: Destination("")}).up_to == 1

    def test_sp3_where_nothing_is_open(self) -> None:
        world = with_letters(*numbered(range(3)))
        world.subscription("handled", SOURCE).ack_cumulative(2)
        assert redrive(world) == RedriveFound(2)
        assert redrive(world, after=2) == RedriveFound(2)
        assert payloads(world) == []

    def test_sp3_letters_that_are_acknowledged_meanwhile_are_left_out(self) -> None:
        world = with_letters(*numbered(range(2 * REDRIVEN_TOGETHER.limit)))
        run = begin(world)
        assert run.turn()
        gone = {0, 1, REDRIVEN_TOGETHER.limit, 2 * REDRIVEN_TOGETHER.limit - 1}
        for entry in gone:
            world.subscription("handled", SOURCE).ack(entry)
        while run.turn():
            pass
        world.settle()
        assert run.found.sent == {ORIGIN: 2 * REDRIVEN_TOGETHER.limit - 2}
        assert not {b"%d" % entry for entry in gone if entry > 1} & set(payloads(world))

    def test_sp3_many_acknowledged_positions_are_passed(self) -> None:
        world = with_letters()
        topic = world.topic(SOURCE)
        topic.log.last = topic.log.confirmed = 10_000_000
        world.subscription("handled", SOURCE).advance(10_000_000)
        world.settle()
        publish(world, letter())
        assert redrive(world) == RedriveFound(10_000_001, sent={ORIGIN: 1})

    def test_sp3_trimmed_and_lost_letters_are_passed(self) -> None:
        world = with_letters(*numbered(range(9)))
        topic = world.topic(SOURCE)
        prefix, batch = keys.ID.pack(topic.record.id), world.storage.batch()
        for entry in (4, 8):
            batch.put_entry(prefix + keys.ID.pack(entry), runs.void(1, START_MS, 0))
        topic.log.trim(batch, 2)
        world.storage.write(batch)
        world.storage.sync()
        world = world.restart()
        assert world.topic(SOURCE).log.first == 2
        assert redrive(world) == RedriveFound(8, sent={ORIGIN: 5})
        assert payloads(world) == [b"2", b"3", b"5", b"6", b"7"]

    def test_sp3_letters_before_damaged_ones_go(self) -> None:
        world = with_letters(*numbered(range(9)))
        damage(world, 5)
        world = world.restart()
        run = begin(world)
        assert run.turn()
        for _ in range(2):
            with pytest.raises(EntriesDamaged):
                run.turn()
        world.settle()
        assert run.found == RedriveFound(4, sent={ORIGIN: 5})
        assert letters_left(world) == [5, 6, 7, 8]
        assert redrive(world, after=5).sent == {ORIGIN: 3}

    def test_sp3_origins_are_searched_up_to_damaged_letters(self) -> None:
        unknown = OriginKey("persistent://public/default/u", None, "s")
        world = with_letters(letter(), letter(topic=unknown.topic), letter(topic="v"), letter())
        damage(world, 2)
        world = world.restart()
        assert redrive(world) == RedriveFound(0, sent={ORIGIN: 1}, unknown={unknown})


class TestOrder:
    def test_sp3_is_that_of_the_letters(self) -> None:
        count = 3 * REDRIVEN_TOGETHER.limit + 7
        world = with_letters(*numbered(range(count)))
        assert redrive(world).sent == {ORIGIN: count}
        for one in (world, world.restart()):
            assert payloads(one) == [b"%d" % number for number in range(count)]

    def test_sp3_also_among_targets_of_one_topic(self) -> None:
        """Letters of two subscriptions of the same origin: each is in the order of its own."""
        other = OriginKey(TARGET, None, "other")
        blobs = [letter(b"%d" % number, subscription=("s", "other")[number % 2]) for number in range(20)]
        world = with_letters(*blobs)
        redrive(world, targets={ORIGIN: ONLY_S, other: Destination(TARGET, "other")})
        for name, rest in (("s", 0), ("other", 1)):
            found = [payloads(world)[entry] for entry in open_of(world, name)]
            assert found == [b"%d" % number for number in range(20) if number % 2 == rest]


class TestRefused:
    """Nothing has happened then."""

    def unchanged(self, world: World, error: type[MagnetarError], text: str, **changes: Any) -> None:
        before, count = letters_left(world), len(payloads(world))
        run = begin(world, **changes)
        found = RedriveFound(run.found.up_to)
        with pytest.raises(error) as caught:
            run.turn()
        assert text in str(caught.value)
        assert run.found == found
        world.settle()
        for one in (world, world.restart()):
            assert (letters_left(one), len(payloads(one))) == (before, count)

    @pytest.mark.parametrize(
        ("target", "error", "text"),
        [
            (Destination("persistent://public/default/none"), TopicNotFound, "default/none not found"),
            (Destination("persistent://public/default/none-partition-0"), NotAllowed, "Partition metadata not found"),
            (Destination("persistent://public/default/many-partition-7"), TopicNotFound, "has 3 partitions"),
            (Destination("non-persistent://public/default/n"), NotAllowed, "which is not persistent"),
            (Destination("persistent://public/default/ended"), TopicTerminated, "default/ended was terminated"),
            (Destination(TARGET, "none"), SubscriptionNotFound, "subscription 'none' not found on topic"),
            (Destination(TARGET, "reader"), NotAllowed, "is not durable"),
            (Destination("persistent://public/default/many", "s"), SubscriptionNotFound, "many-partition-0"),
        ],
    )
    def test_sp3_a_target_that_cannot_take_them(
        self, target: Destination, error: type[MagnetarError], text: str
    ) -> None:
        other = OriginKey("persistent://public/default/u", None, "s")
        world = with_letters(letter(), letter(topic=other.topic))
        world.broker.catalog.create_partitioned(TopicName.parse("many"), 3, {})
        world.topic("ended").terminate()
        world.consumer("reader", durable=False)
        world.settle()
        self.unchanged(world, error, text, targets={ORIGIN: ONLY_S, other: target})
        assert not world.broker.catalog.exists(TopicName.parse("none"))

    def test_sp3_a_quota_of_a_target(self) -> None:
        world = with_letters(letter(b"x" * 200))
        world.publish(3, payload=b"x" * 200)
        quota = BacklogQuota(100, policy=QuotaPolicy.producer_request_hold)
        world.broker.catalog.set_overrides(
            TopicName.parse("t"), Overrides(backlog_quotas={QuotaKind.destination_storage: quota})
        )
        world.settle()
        self.unchanged(world, QuotaHold, "over its backlog quota")

    def test_sp3_producers_that_are_held(self) -> None:
        world = with_letters(letter())
        world.broker.hold_producers("the disk is full")
        self.unchanged(world, QuotaHold, "the disk is full")
        world.broker.release_producers()
        assert redrive(world).sent == {ORIGIN: 1}

    def test_sp3_a_subscription_of_another_role(self) -> None:
        world = with_letters(letter())
        subscribe(world, "private", SOURCE)
        self.unchanged(
            world, RightMissing, "'private' of persistent://public/default/t-s-DLQ", may_use=lambda n: n != "private"
        )

    def test_sp3_without_a_durable_subscription(self) -> None:
        world = with_letters(letter())
        world.topic(SOURCE).delete_subscription("handled")
        with pytest.raises(NotAllowed, match="has no durable subscription"):
            redrive(world)
        assert payloads(world) == []

    def test_sp3_a_damaged_subscription(self) -> None:
        world = with_letters(letter())
        subscribe(world, "other", SOURCE)
        world.broker.commits.put(world.topic(SOURCE)._subscription_key("other"), b"\xc1")
        world.settle()
        self.unchanged(world.restart(), SubscriptionDamaged, "other")

    def test_sp3_letters_that_are_older_than_every_durable_subscription(self) -> None:
        world = with_letters()
        world.topic(SOURCE).delete_subscription("handled")
        publish(world, *numbered(range(3)))
        subscribe(world, "handled", SOURCE, earliest=False)
        publish(world, *numbered(range(3, 5)))
        self.unchanged(world, NotAllowed, "entry 0 of persistent://public/default/t-s-DLQ is older than")
        self.unchanged(world, NotAllowed, "entry 2 of", after=1)
        self.unchanged(world, NotAllowed, "entry 1 of", after=0, up_to=2)
        assert redrive(world, after=2).sent == {ORIGIN: 2}

    def test_sp3_another_ledger(self) -> None:
        self.unchanged(with_letters(letter()), NotAllowed, "ledger 4711 is not one of", ledger_id=4711)

    def test_sp3_a_ledger_from_before_a_loss(self) -> None:
        world = with_letters(*numbered(range(5)))
        topic = world.topic(SOURCE)
        former = topic.ledger_id
        topic.record.former_ledgers[former] = 3
        topic.ledger_id = topic.record.ledger = 4711
        self.unchanged(world, NotAllowed, "does not exist: the last one is 2", ledger_id=former)
        assert redrive(world, ledger_id=former, up_to=2).sent == {ORIGIN: 3}
        assert redrive(world, ledger_id=4711).sent == {ORIGIN: 2}

    @pytest.mark.parametrize("is_opened_again", [True, False])
    def test_sp3_a_topic_that_is_unloaded_between_two_transactions(self, is_opened_again: bool) -> None:
        world = with_letters(*numbered(range(REDRIVEN_TOGETHER.limit + 5)))
        run = begin(world)
        assert run.turn()
        world.broker.unload(TopicName.parse(SOURCE))
        world.settle()
        if is_opened_again:
            world.topic(SOURCE)
        with pytest.raises(ServiceNotReady, match="was closed while its letters were redriven"):
            run.turn()
        world.settle()
        assert (len(letters_left(world)), len(payloads(world))) == (5, REDRIVEN_TOGETHER.limit)
        assert redrive(world).sent == {ORIGIN: 5}

    def test_sp3_a_topic_that_is_deleted_between_two_transactions(self) -> None:
        world = with_letters(*numbered(range(REDRIVEN_TOGETHER.limit + 5)))
        run = begin(world)
        assert run.turn()
        world.topic(SOURCE).producers.close_all()
        world.broker.delete_topic(TopicName.parse(SOURCE))
        world.settle()
        with pytest.raises(ServiceNotReady):
            run.turn()
        world.settle()
        assert len(payloads(world)) == REDRIVEN_TOGETHER.limit

    def test_sp3_a_partitioned_target_that_is_deleted_between_two_transactions(self) -> None:
        many = "persistent://public/default/many"
        world = with_letters(*numbered(range(REDRIVEN_TOGETHER.limit + 5), topic=many))
        world.broker.catalog.create_partitioned(TopicName.parse("many"), 3, {})
        world.settle()
        run = begin(world, targets={OriginKey(many, None, "s"): Destination(many)})
        assert run.turn()
        world.broker.delete_partitioned(TopicName.parse("many"))
        world.settle()
        with pytest.raises(TopicNotFound, match="default/many not found"):
            run.turn()
        assert len(letters_left(world)) == 5


class TestConsumers:
    """A letter is acknowledged wherever it is; the invariants are checked with every settled world."""

    @pytest.mark.parametrize("type", list(SubscriptionType))
    def test_sp3_letters_that_consumers_of_the_dead_letter_topic_hold(self, type: SubscriptionType) -> None:
        world = with_letters(*numbered(range(10)))
        consumer = world.consumer("handled", SOURCE, type=type)
        assert len(consumer.pending) == 10
        redrive(world, up_to=6)
        assert (list(consumer.pending), consumer.unacked) == ([7, 8, 9], 3)
        assert letters_left(world) == [7, 8, 9]

    def test_sp3_a_blocked_consumer_goes_on(self) -> None:
        world = with_letters(*numbered(range(10)), maxUnackedMessagesPerConsumer=4)
        consumer = world.consumer("handled", SOURCE)
        assert list(consumer.pending) == [0, 1, 2, 3]
        redrive(world, up_to=2)
        assert list(consumer.pending) == [3, 4, 5, 6]

    def test_sp3_letters_with_holes_between_them(self) -> None:
        world = with_letters(*numbered(range(10)))
        for entry in (2, 5):
            world.subscription("handled", SOURCE).ack(entry)
        consumer = world.consumer("handled", SOURCE)
        redrive(world, after=0)
        assert list(consumer.pending) == letters_left(world) == [0]


class TestCommit:
    def test_sp3_after_a_crash_at_any_write_every_letter_is_in_exactly_one_place(self) -> None:
        world = with_letters(*numbered(range(2 * REDRIVEN_TOGETHER.limit)))
        run = begin(world)
        while run.turn():
            world.broker.commits.open().grow(1 << 30)  # the next transaction is in another group
        seen = set()
        while True:
            after = world.restart()
            seen.add((len(letters_left(after)), len(payloads(after))))
            assert open_of(after, "other") == []
            group = world.broker.commits.take()
            if group is None:
                break
            world.storage.write(group.batch)
            world.storage.sync()
            group.complete()
        each = REDRIVEN_TOGETHER.limit
        assert seen == {(2 * each, 0), (each, each), (0, 2 * each)}

    def test_sp3_a_transaction_is_synced(self) -> None:
        world = with_letters(letter())
        assert begin(world).turn()
        group = world.broker.commits.take()
        assert group is not None and group.durable and group.size > 0

    def test_sp3_an_error_between_the_copy_and_its_acknowledgement_is_a_message_too_many(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = with_letters(*numbered(range(3)))

        def fail(*arguments: object) -> None:
            raise RuntimeError("planted")

        with monkeypatch.context() as patch:
            patch.setattr(redriving_module, "acknowledge", fail)
            run = begin(world)
            with pytest.raises(RuntimeError):
                run.turn()
        world.settle()
        assert letters_left(world.restart()) == [0, 1, 2]
        assert redrive(world).sent == {ORIGIN: 3}
        assert len(payloads(world)) == 6

    def test_sp3_on_rocksdb(self, tmp_path: Path) -> None:
        storage = RocksStorage(tmp_path)
        world = World(storage, host=ManualHost())  # type: ignore[arg-type]
        for name in ("s", "other"):
            subscribe(world, name, "t")
        subscribe(world, "handled", SOURCE)
        publish(world, *numbered(range(5)))
        redrive(world, up_to=3)
        storage.close()
        reopened = RocksStorage(tmp_path)
        again = World(reopened, host=ManualHost())  # type: ignore[arg-type]
        assert letters_left(again) == [4]
        assert [open_of(again, name) for name in ("s", "other")] == [[0, 1, 2, 3], []]
        assert redrive(again).sent == {ORIGIN: 1}
        reopened.close()


class TestBounds:
    def turns(self, world: World, **changes: Any) -> list[int]:
        """The letters of each transaction."""
        run, counts, before = begin(world, **changes), [], -1
        is_more = True
        while is_more:
            is_more = run.turn()
            counts.append(run.found.up_to - before)
            before = run.found.up_to
        return [count for count in counts if count]

    def test_bound_redriven_together_in_one_transaction(self) -> None:
        limit = REDRIVEN_TOGETHER.limit
        world = with_letters(*numbered(range(2 * limit + 3)))
        assert self.turns(world) == [limit, limit, 3]

    @pytest.mark.parametrize("changes", [{"published_until_ms": 1}, {"targets": {ORIGIN: Destination("")}}])
    def test_bound_redriven_together_counts_letters_that_stay(self, changes: dict[str, Any]) -> None:
        limit = REDRIVEN_TOGETHER.limit
        world = with_letters(*numbered(range(limit + 3)))
        assert self.turns(world, **changes) == [limit, 3]
        assert len(letters_left(world)) == limit + 3

    def test_bound_redriven_bytes_end_a_transaction(self) -> None:
        third = REDRIVEN_BYTES.limit // 3 + 1
        world = with_letters(*[letter(b"x" * third) for _ in range(7)], letter(b"x" * 4 * third), letter())
        assert self.turns(world) == [3, 3, 2, 1]

    def test_bound_redriven_ahead_is_the_search_for_unknown_origins(self) -> None:
        blobs = [letter(topic=f"u{number}") for number in range(REDRIVEN_AHEAD.limit + 5)]
        world = with_letters()
        producer = world.producer(SOURCE, "at once")
        world.topic(SOURCE).publish(producer, [(0, 0, 1, blob, False, False) for blob in blobs])
        world.settle()
        found = redrive(world)
        assert len(found.unknown) == REDRIVEN_AHEAD.limit
        assert OriginKey(f"persistent://public/default/u{REDRIVEN_AHEAD.limit}", None, "s") not in found.unknown

    def test_sp3_large_letters_end_the_search_earlier(self) -> None:
        world = with_letters(*[letter(b"x" * (1 << 20), topic=f"u{number}") for number in range(9)])
        assert len(redrive(world).unknown) == 4

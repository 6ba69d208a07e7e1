"""Forwarded letters are the same as those that go by columns; letters that are not plain keep their place."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pulsar
import pytest

from magnetar.bounds import REQUEST_BODY, Bound
from magnetar.client import Message
from magnetar.client.errors import ClientError, ServerFailure
from magnetar.client.message import MessageId
from magnetar.deadletter.redriven import ANY_ORIGIN, OriginKey
from magnetar.pipeline_bounds import REDRIVE_TARGETS, REDRIVEN_PER_REQUEST
from magnetar.pipelines.redrive import forward, rounds
from magnetar.pipelines.redrive.forward import Forwarded, Forwarder
from magnetar.pipelines.redrive.rounds import RedriveOutcome, Rounds
from magnetar.pipelines.redrive.stage import RedriveTarget
from magnetar.pipelines.run import RunFailed
from magnetar.spark.dead_letters.cursor_admin import CursorAdmin
from magnetar.spark.dead_letters.plan import LetterRange
from magnetar.spark.source.entry_range import EntryRange
from magnetar.wire import schema_pb2 as pb
from magnetar.wire.metadata import build_blob
from tests.pipelines.redrive.conftest import Site

HISTORY = '[{"topic":"t","subscription":"s","reason":"MaxRedeliveries","count":2,"first":1,"last":2}]'


def publish_all_kinds(site: Site) -> int:
    """Plain letters with batches and compressed ones between them; returns their number."""
    client = pulsar.Client(site.running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    plain = client.create_producer(site.letters, batching_enabled=False)
    zipped = client.create_producer(site.letters, batching_enabled=False, compression_type=pulsar.CompressionType.ZSTD)
    batched = client.create_producer(site.letters, batching_max_publish_delay_ms=1000)
    kinds: list[dict[str, Any]] = [
        {},
        {"DEATH_HISTORY": HISTORY, "DEATH_REASON": "MaxRedeliveries", "DEATH_ERROR": "why"},
        {"REDRIVE_GENERATION": "1", "RECONSUMETIMES": "3", "own": "ü"},
        {"DEATH_ERROR": 'a "quoted" text'},
    ]
    number = 0
    for producer in (plain, batched, plain, zipped, plain, batched):
        for kind in kinds * 2:
            origin = {"REAL_TOPIC": f"persistent://public/default/{site.orders}", "ORIGIN_MESSAGE_ID": "7:3:-1"}
            options: dict[str, Any] = {"partition_key": f"k{number % 3}"} if number % 5 else {}
            if number % 4 == 1:
                options |= {"event_timestamp": 1_700_000_000_000 + number, "ordering_key": "o"}
            producer.send_async(f"v{number}".encode(), None, properties=origin | kind | {"n": str(number)}, **options)
            number += 1
        producer.flush()
    client.close()
    return number


def shown(messages: list[Message]) -> list[tuple[object, ...]]:
    return sorted(
        (
            int(one.properties["n"]),
            one.value,
            one.key,
            one.event_time_ms,
            one.ordering_key,
            {
                name: json.loads(text) if name == "DEATH_HISTORY" else text
                for name, text in one.properties.items()
                if name != "DEATH_HISTORY" or json.loads(text)[0]["topic"] == "t"
            },
        )
        for one in messages
    )


def test_sp3_forwarded_letters_are_those_that_go_by_columns(site: Site) -> None:
    site.create(site.orders, "billing")
    count = publish_all_kinds(site)
    outcome = site.redrive()
    assert (outcome.total, outcome.sent) == (count, count) and site.waiting() == 0
    forwarded = site.received(site.orders, "billing")
    assert publish_all_kinds(site) == count
    assert site.redrive(where="true").sent == count
    by_columns = site.received(site.orders, "billing")
    assert shown(forwarded) == shown(by_columns)
    for messages in (forwarded, by_columns):
        for key in ("k0", "k1", "k2"):
            numbers = [int(one.properties["n"]) for one in messages if one.key == key]
            assert numbers == sorted(numbers)
    deaths = [json.loads(one.properties["DEATH_HISTORY"])[0] for one in forwarded]
    assert {one.get("error") for one in deaths} >= {None, 'a "quoted" text'}


@pytest.mark.parametrize("spec", [{}, {"where": "true"}], ids=["forwarded", "by columns"])
def test_sp3_letters_that_cannot_be_opened_stay(site: Site, spec: dict[str, Any]) -> None:
    """Without its value an encrypted message would become another one."""
    site.create(site.orders, "billing")
    site.publish_letters([{"n": 1}])
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.properties.add(key="REAL_TOPIC", value=f"persistent://public/default/{site.orders}")
    metadata.encryption_keys.add(key="k", value=b"v")
    send_entry(site, build_blob(metadata, b"secret"))
    site.publish_letters([{"n": 2}])
    outcome = site.redrive(**spec)
    assert outcome.sent == 2 and outcome.kept.total() == 1
    [reason] = outcome.kept
    assert "cannot be opened" in reason and "encrypted" in reason
    assert sorted(json.loads(one.value)["n"] for one in site.received(site.orders, "billing")) == [1, 2]
    assert site.waiting() == 1


def test_sp3_where_no_letter_can_be_opened_the_redrive_ends(site: Site) -> None:
    site.create(site.orders, "billing")
    site.create(site.letters, "inspection")
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.encryption_keys.add(key="k", value=b"v")
    send_entry(site, build_blob(metadata, b"secret"))
    for spec in ({}, {"where": "true"}):
        outcome = site.redrive(**spec)
        assert (outcome.sent, outcome.kept.total()) == (0, 1), spec
    assert site.waiting() == 1


def test_sp3_a_topic_without_a_chosen_letter_stays_as_it_is(site: Site) -> None:
    site.create(site.orders, "billing")
    site.publish_letters([{"n": 1}])
    assert site.redrive(where="payload.n > 1").total == 0
    assert site.ask("GET", f"persistent/public/default/{site.letters}/subscriptions") == []


def send_entry(site: Site, blob: bytes) -> None:
    from magnetar.client.inline import InlineClient

    with InlineClient(site.running.service_url) as client:
        producer = client.run(client.client.entry_producer(f"persistent://public/default/{site.letters}"))
        client.run(producer.send(blob, sequence_id=1, highest_sequence_id=1, messages=1))
        client.run(producer.flush())


# -- what fails in the middle


def test_sp3_a_round_whose_response_is_lost_is_repeated_and_counted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.create(site.orders, "billing")
    site.publish_letters([{"n": number} for number in range(30)])
    redrive, requests = CursorAdmin.redrive, []

    def losing(admin: CursorAdmin, topic: str, body: bytes) -> bytes:
        requests.append(topic)
        if len(requests) == 3:
            raise ServerFailure("away")
        content = redrive(admin, topic, body)
        if len(requests) == 2:
            raise ServerFailure("the response is lost")
        return content

    monkeypatch.setattr(CursorAdmin, "redrive", losing)
    outcome = site.redrive()
    assert (outcome.sent, outcome.total, outcome.kept) == (30, 30, {})
    assert len(requests) > 3
    assert [int(one.properties["n"]) for one in site.received(site.orders, "billing")] == list(range(30))
    assert any("after an error" in one.note for one in site.context.reports)


def test_sp3_letters_of_more_origins_than_a_request_names_go_by_columns(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "REDRIVE_TARGETS", Bound("", "", 2, "", ""))
    names = [f"{site.orders}-{number}" for number in range(4)]
    for name in names:
        site.create(name, "billing")
        site.publish_letters([{"n": 1}, {"n": 2}], REAL_TOPIC=f"persistent://public/default/{name}")
    assert site.redrive().sent == 8
    assert [len(site.received(name, "billing")) for name in names] == [2] * 4
    assert site.waiting() == 0


# -- requests, without Spark

SOURCE = "persistent://public/default/t-s-DLQ"
HERE = OriginKey("persistent://public/default/t", 1, "s")
GONE = OriginKey("persistent://public/default/gone", None, None)
TARGETS = {
    HERE: RedriveTarget("persistent://public/default/t-partition-1", "s"),
    GONE: RedriveTarget(problem="it is gone"),
}


class Answers:
    """A broker that answers in turn."""

    def __init__(self, *answers: dict[str, Any] | bytes | ClientError) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def redrive(self, topic: str, body: bytes) -> bytes:
        assert topic == SOURCE
        self.asked.append(json.loads(body))
        answer = self.answers.pop(0)
        if isinstance(answer, ClientError):
            raise answer
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()

    def unacknowledged(self, topic: str) -> None:
        return None


def answer(up_to: int, sent: Sequence[int] = (0, 0), kept: Sequence[int] = (0, 0), **more: Any) -> dict[str, Any]:
    return {"upTo": up_to, "plain": True, "sent": sent, "kept": kept, "sentTo": 0, "unknown": []} | more


def letters(start: int, end: int) -> LetterRange:
    return LetterRange(EntryRange(SOURCE, MessageId(5, start), MessageId(5, end)), None)


def forwarded(broker: Answers, targets: dict[OriginKey, RedriveTarget] | None = None) -> Forwarded:
    forwarder = Forwarder(broker, generations_max=3, published_until_ms=77)  # type: ignore[arg-type]
    return forwarder.run(letters(9, 40), TARGETS if targets is None else targets)


class TestRequest:
    def test_sp3_names_the_letters_and_their_targets(self) -> None:
        broker = Answers(answer(40, [3, 0], [0, 2]))
        found = forwarded(broker)
        assert broker.asked == [
            {
                "ledgerId": 5,
                "after": 9,
                "upTo": 40,
                "letters": REDRIVEN_PER_REQUEST.limit,
                "maxGenerations": 3,
                "publishedUntil": 77,
                "targets": [
                    {
                        "originTopic": HERE.topic,
                        "originPartition": 1,
                        "originSubscription": "s",
                        "topic": "persistent://public/default/t-partition-1",
                        "only": "s",
                    },
                    {"originTopic": GONE.topic, "originPartition": None, "originSubscription": None},
                ],
                "to": "",
            }
        ]
        sent, kept = {"persistent://public/default/t-partition-1": 3}, {"it is gone": 2}
        assert found == Forwarded(40, sent=Counter(sent), kept=Counter(kept))

    def test_sp3_all_go_to_one_topic(self) -> None:
        broker = Answers(answer(40, [], [], sentTo=7))
        found = forwarded(broker, {ANY_ORIGIN: RedriveTarget("persistent://public/default/fix")})
        assert (broker.asked[0]["to"], broker.asked[0]["targets"]) == ("persistent://public/default/fix", [])
        assert found.sent == {"persistent://public/default/fix": 7}

    def test_sp3_goes_on_where_a_response_ends(self) -> None:
        broker = Answers(answer(20, [1, 0], [0, 1]), answer(30, [2, 0]), answer(40, [4, 0], [0, 8]))
        found = forwarded(broker)
        assert [asked["after"] for asked in broker.asked] == [9, 20, 30]
        assert (found.up_to, found.sent.total(), found.kept.total()) == (40, 7, 9)

    @pytest.mark.parametrize(
        "ending", [{"plain": False}, {"unknown": [{"topic": "x", "partition": 1, "subscription": None}]}]
    )
    @pytest.mark.parametrize("up_to", [9, 20])
    def test_sp3_ends_at_what_a_broker_does_not_do(self, ending: dict[str, Any], up_to: int) -> None:
        broker = Answers(answer(15, [1, 0]), answer(max(15, up_to), [1, 0], **ending))
        found = forwarded(broker)
        assert (found.up_to, found.is_plain) == (max(15, up_to), "plain" not in ending)
        assert found.unknown == ({OriginKey("x", 1, None)} if "unknown" in ending else set())
        assert found.sent.total() == 2

    def test_sp3_more_targets_than_a_request_names_are_not_asked_for(self) -> None:
        many = {HERE._replace(partition=number): TARGETS[HERE] for number in range(REDRIVE_TARGETS.limit + 1)}
        assert forwarded(Answers(), many) == Forwarded(9, is_plain=False)
        del many[HERE]
        zeros = [0] * REDRIVE_TARGETS.limit
        assert forwarded(Answers(answer(40, zeros, zeros)), many).is_plain

    def test_sp3_nor_more_bytes_than_a_request_may_have(self) -> None:
        long = {OriginKey(f"{number}" + "\x01" * 1000, None, None): TARGETS[GONE] for number in range(900)}
        assert len(json.dumps([origin.topic for origin in long])) > REQUEST_BODY.limit
        assert forwarded(Answers(), long) == Forwarded(9, is_plain=False)

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", "the response has another form"),
            (b"<html>", "the response has another form"),
            (b"{}", "another form: Object missing required field `upTo`"),
            (answer(40, plain="yes"), "another form: Expected `bool`"),
            (answer(40, [1], [0, 0]), "the response has other targets than the request"),
            (answer(40, [1, 0], [0, 0, 0]), "the response has other targets than the request"),
            (answer(9), "no progress after entry 9"),
            (answer(3), "no progress after entry 9"),
        ],
        ids=str,
    )
    def test_sp3_an_answer_of_another_form_is_an_error(self, content: Any, reason: str) -> None:
        with pytest.raises(ServerFailure) as caught:
            forwarded(Answers(content))
        assert reason in str(caught.value) and SOURCE in str(caught.value)


class Steady:
    """A run, its topic and its clients, in which nothing happens and no time passes."""

    is_stopping = False

    def __init__(self, *ranges: LetterRange) -> None:
        self.plan = SimpleNamespace(ranges=ranges)
        self.notes: list[str] = []
        self.waits: list[float] = []

    def report(self, progress: Any) -> None:
        self.notes.append(progress.note)

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return False

    def check(self) -> None: ...


class Recorded:
    """Forwarding of all letters, or of some with an error or an end."""

    def __init__(self, *ends: Forwarded | ClientError) -> None:
        self.ends = list(ends)
        self.asked: list[tuple[int, int]] = []
        self.resolved: set[OriginKey] = set()

    def run(self, letters: LetterRange) -> Forwarded:
        start, end = letters.span.start.entry_id, letters.span.end.entry_id
        self.asked.append((start, end))
        found = self.ends.pop(0) if self.ends else Forwarded(end, sent=Counter({"t": end - start}))
        if isinstance(found, ClientError):
            raise found
        return found

    def resolve(self, origins: set[OriginKey]) -> None:
        self.resolved |= origins


def run_rounds(
    monkeypatch: pytest.MonkeyPatch, steady: Steady, forwarding: Recorded, rate: float | None = None
) -> tuple[Rounds, RedriveOutcome]:
    monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: 100.0))
    outcome = RedriveOutcome()
    any_: Any = steady
    made = Rounds(any_, any_, any_, any_, any_, outcome, rate, forwarding)  # type: ignore[arg-type]
    made.run(Answers())  # type: ignore[arg-type]
    return made, outcome


class TestRounds:
    def test_sp3_a_rate_is_kept_by_rounds_of_a_second(self, monkeypatch: pytest.MonkeyPatch) -> None:
        steady, forwarding = Steady(letters(-1, 24)), Recorded()
        _, outcome = run_rounds(monkeypatch, steady, forwarding, rate=10)
        assert forwarding.asked == [(-1, 9), (9, 19), (19, 24)]
        assert (outcome.sent, steady.waits) == (25, [1.0, 2.0, 2.5])

    def test_sp3_a_round_goes_on_where_the_last_one_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        origin = OriginKey("u", None, None)
        ends = [
            Forwarded(4, sent=Counter({"t": 5}), unknown={origin}),
            Forwarded(7, sent=Counter({"t": 2}), kept=Counter({"gone": 1})),
        ]
        steady, forwarding = Steady(letters(-1, 24)), Recorded(*ends)
        made, outcome = run_rounds(monkeypatch, steady, forwarding)
        assert forwarding.asked == [(-1, 24), (4, 24), (7, 24)]
        assert (outcome.sent, outcome.kept, forwarding.resolved) == (24, {"gone": 1}, {origin})
        assert not made.has_failed

    def test_sp3_a_round_that_failed_is_repeated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        steady, forwarding = Steady(letters(-1, 24)), Recorded(ServerFailure("away"))
        made, outcome = run_rounds(monkeypatch, steady, forwarding)
        assert forwarding.asked == [(-1, 24), (-1, 24)]
        assert made.has_failed and outcome.sent == 25, "the caller counts again"
        assert "after an error: away" in steady.notes[1]

    def test_sp3_too_many_failures_in_a_row_end_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        forwarding = Recorded(*[ServerFailure("away")] * 100)
        with pytest.raises(RunFailed, match="8 rounds in a row failed: away"):
            run_rounds(monkeypatch, Steady(letters(-1, 24)), forwarding)
        assert len(forwarding.asked) == 8

"""Replays of archives on a real broker: order, ranges, conditions, and each message once (SP5)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx
import pulsar
import pytest
from pulsar.schema import JsonSchema, Record, String

from magnetar.client import EARLIEST, Client
from magnetar.declared.topic_set import TopicSet
from magnetar.errors import InvalidSetting
from magnetar.pipelines.archive import replay as replaying
from magnetar.pipelines.archive.manifest import DataFile
from magnetar.pipelines.archive.replay import Preview, ReplayResult, ReplaySpec, preview, replay, steps_of
from magnetar.pipelines.archive.replay_task import Counts
from magnetar.pipelines.archive.selection import TimeRange
from magnetar.pipelines.run import RunFailed
from tests.pipelines.archive.conftest import Site, sets_of

HOUR_MS = 3_600_000
START_MS = 1_769_860_800_000  # 2026-01-31T12:00:00Z


def send(site: Site, reports_max: int = 1 << 30, **options: Any) -> ReplayResult:
    return replay(site.context(reports_max), ReplaySpec(path=site.path, **options))


def show(site: Site, samples: int = 5, **options: Any) -> Preview:
    return preview(site.context(), ReplaySpec(path=site.path, **options), samples)


def values(site: Site, topic: str) -> list[str]:
    return [message.value.decode() for message in site.read(topic)]


def test_sp5_a_replay_restores_messages_in_order_and_once(site: Site) -> None:
    topic, target = site.topic(), site.topic()
    client = pulsar.Client(site.running.service_url)
    batched = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1000)
    for number in range(10):
        batched.send_async(b"b%d" % number, None)
    batched.flush()
    client.close()
    site.publish(topic, "plain", key="k", properties={"a": "b"}, event_time_ms=1234, ordering_key=b"o")
    site.publish_entry(topic, b"", null_value=True, partition_key="gone")
    site.archive(topic)
    first = send(site, to=target)
    assert (first.read, first.sent, first.known, first.is_exactly_once, first.notes) == (12, 12, 0, True, [])
    messages = site.read(target)
    assert [message.value.decode() for message in messages] == [*(f"b{number}" for number in range(10)), "plain", ""]
    plain, tombstone = messages[10:]
    assert (plain.key, plain.properties, plain.event_time_ms, plain.ordering_key) == ("k", {"a": "b"}, 1234, b"o")
    assert tombstone.is_null and tombstone.key == "gone"
    again = send(site, to=target)
    assert (again.sent, again.known) == (0, 12) and len(site.read(target)) == 12
    assert send(site, to=target, name="again").sent == 12


def test_sp5_messages_go_to_their_own_topics_and_partitions(site: Site) -> None:
    one, several = site.topic(), site.topic(partitions=3)
    site.publish(one, "x")
    for number in range(12):
        site.publish(f"persistent://public/default/{several}-partition-{number % 3}", f"{number}", key="same")
    site.archive(one, several)
    for topic in (one, *(f"{several}-partition-{number}" for number in range(3))):
        site.keep(f"persistent://public/default/{topic}")
    assert send(site).sent == 13
    assert values(site, one)[-1:] == ["x"]
    for partition in range(3):
        found = values(site, f"persistent://public/default/{several}-partition-{partition}")
        assert found[-4:] == [str(number) for number in range(partition, 12, 3)]


def test_sp5_encrypted_messages_are_sent_as_they_were_stored(site: Site) -> None:
    source, target = site.topic(partitions=2), site.topic(partitions=2)
    partition = f"persistent://public/default/{source}-partition-1"
    site.publish(partition, "before")
    site.publish_entry(partition, b"sealed payload", encryption_keys="key")
    site.publish(partition, "after")
    site.archive(source)
    assert (send(site, to=target).sent, send(site, to=target).known) == (3, 3)
    copy = f"persistent://public/default/{target}-partition-1"
    with Client(site.running.service_url) as client:
        entries = [entry for each in client.entries(copy, EARLIEST, client.tail(copy).last()) for entry in each]
    assert [entry.blob.rpartition(b"\x00")[2][-7:] for entry in entries] == [b"before", b"payload", b"after"] or (
        len(entries) == 3 and entries[1].blob.endswith(b"sealed payload") and entries[2].blob.endswith(b"after")
    )


class Order(Record):  # type: ignore[misc]
    state = String()


class LongerOrder(Record):  # type: ignore[misc]
    state = String()
    reason = String(required_default=True)


def test_sp5_the_version_of_the_schema_is_kept(site: Site) -> None:
    topic = site.topic()
    client = pulsar.Client(site.running.service_url)
    client.create_producer(topic, schema=JsonSchema(Order)).send(Order(state="paid"))
    client.create_producer(topic, schema=JsonSchema(LongerOrder)).send(LongerOrder(state="open", reason="new"))
    client.close()
    site.archive(topic)
    site.keep(topic)
    send(site)
    versions = [message.schema_version for message in site.read(topic)]
    assert versions[-2:] == [(0).to_bytes(8, "big"), (1).to_bytes(8, "big")]


@pytest.fixture
def hourly(site: Site) -> Iterator[tuple[str, str]]:
    """An archived topic with a message in each of 48 hours, and another topic."""
    topic = site.topic()
    for hour in range(48):
        site.publish_entry(topic, b"%d" % hour, publish_time=START_MS + hour * HOUR_MS, partition_key=f"k{hour % 2}")
    site.archive(topic)
    yield topic, site.topic()


def test_sp5_time_ranges_and_conditions(site: Site, hourly: tuple[str, str]) -> None:
    _, target = hourly
    times = TimeRange(START_MS + 10 * HOUR_MS, START_MS + 14 * HOUR_MS)
    assert send(site, to=target, times=times).sent == 4
    assert values(site, target) == ["10", "11", "12", "13"]
    late = {"where": "__key = 'k0' and cast(value as string)::int >= 40", "times": TimeRange(until_ms=None)}
    assert send(site, to=target, **late).sent == 4
    assert values(site, target)[4:] == ["40", "42", "44", "46"]
    assert send(site, to=target, times=TimeRange(until_ms=START_MS)).sent == 0


def test_sp5_a_dry_run_counts_shows_and_sends_nothing(site: Site, hourly: tuple[str, str]) -> None:
    topic, target = hourly
    found = show(site, samples=2, to=target, where="__key = 'k1'", times=TimeRange(START_MS + HOUR_MS * 12))
    assert (found.selected, found.topics) == (18, {f"public/default/{topic}": 18})
    assert found.targets == {f"public/default/{topic}": f"persistent://public/default/{target}"}
    assert [(one["value"], one["key"]) for one in found.samples] == [("13", "k1"), ("15", "k1")]
    assert found.samples[0]["publishTime"] == "2026-02-01T01:00:00Z"
    assert values(site, target) == []


def test_sp5_a_replay_at_a_rate_goes_on_in_steps(site: Site) -> None:
    topic, target = site.topic(), site.topic()
    site.publish(topic, *[str(number) for number in range(60)])
    site.archive(topic)
    context = site.context()
    began_s = time.monotonic()
    assert replay(context, ReplaySpec(path=site.path, to=target, rate=40.0)).sent == 60
    assert time.monotonic() - began_s > 1.0
    assert values(site, target) == [str(number) for number in range(60)]


def test_sp5_steps_of_a_rate_cover_a_file_without_overlap() -> None:
    file = DataFile("f", "s", -1, "2026-01-31", "5:10", "5:109", 1000, 1, 0)
    steps = list(steps_of([file], rate=30.0))
    windows = [step.window for step in steps if step.window is not None]
    assert (windows[0][0], windows[-1][1], sum(step.rows for step in steps)) == (10, 109, 1000)
    assert all(high + 1 == low for (_, high), (low, _) in pairwise(windows))
    [whole] = steps_of([DataFile("f", "s", -1, "2026-01-31", "5:10", "6:1", 1000, 1, 0)], rate=30.0)
    assert whole.window is None


def test_sp5_a_killed_replay_continues_and_sends_nothing_twice(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, target = site.topic(), site.topic()
    for number in range(3):
        site.publish(topic, *[f"{number}-{index}" for index in range(5)])
        site.archive(topic)
    monkeypatch.setattr(replaying, "_STEP_BYTES", 1)  # a step for each file
    sent: list[Counts] = []
    write = replaying._replayed

    def dies_after_the_second(*arguments: Any) -> Counts:
        sent.append(write(*arguments))
        if len(sent) == 2:
            raise KeyboardInterrupt
        return sent[-1]

    with monkeypatch.context() as patch:
        patch.setattr(replaying, "_replayed", dies_after_the_second)
        with pytest.raises(KeyboardInterrupt):
            send(site, to=target)
    assert len(site.read(target)) == 10
    result = send(site, to=target)
    assert (result.sent, result.known) == (5, 10)
    assert values(site, target) == [f"{number}-{index}" for number in range(3) for index in range(5)]
    stopped = send(site, reports_max=1, to=target, name="stopped")
    assert (stopped.sent, stopped.is_complete) == (5, False)


def test_sp5_a_target_without_deduplication(site: Site) -> None:
    topic, target = site.topic(), site.topic()
    site.publish(topic, "a")
    site.archive(topic)
    path = f"{site.running.http_url}/admin/v2/persistent/public/default/{target}/deduplicationEnabled"
    httpx.post(path, json=False).raise_for_status()
    with pytest.raises(RunFailed, match="does not deduplicate, so messages cannot be replayed exactly once"):
        send(site, to=target, exactly_once="required")
    for _ in range(2):
        result = send(site, to=target)
        assert (result.sent, result.is_exactly_once) == (1, False)
        assert "does not deduplicate: a repeated or interrupted replay sends messages again" in result.notes[0]
    assert values(site, target) == ["a", "a"]


def test_sp5_mistakes_are_found_before_anything_is_sent(site: Site, hourly: tuple[str, str]) -> None:
    _, target = hourly
    for options, text in (
        ({"where": "__kee = 'x'"}, "where \"__kee = 'x'\" is wrong: .*__kee"),
        ({"where": "__key = "}, "where '__key = ' is wrong: .*"),
        ({"where": "value"}, "where 'value' is wrong"),
        ({"where": " "}, "where is empty"),
        ({"times": TimeRange(2000, 1000)}, "since 1970-01-01T00:00:02Z is not before until 1970-01-01T00:00:01Z"),
        ({"rate": 0.0}, "rate 0 is not above 0"),
        ({"to": f"non-persistent://public/default/{target}"}, "is not persistent"),
    ):
        with pytest.raises(InvalidSetting, match=text):
            send(site, **{"to": target, **options})
    with pytest.raises(RunFailed, match="topic persistent://public/default/nowhere does not exist"):
        send(site, to="nowhere")
    with pytest.raises(RunFailed, match=r"nowhere is not in the archive .*, which has public/default/"):
        send(site, to=target, topics=tuple(sets_of("nowhere")))
    with pytest.raises(RunFailed, match="is not an archive"):
        replay(site.context(), ReplaySpec(path=f"{site.path}-other", to=target))
    assert values(site, target) == []


def test_sp5_a_pattern_selects_archived_topics(site: Site) -> None:
    one, other, target = site.topic(), site.topic(), site.topic()
    site.publish(one, "a")
    site.publish(other, "b")
    site.archive(one, other)
    assert send(site, to=target, topics=(TopicSet("public/default", "sp5-*"),)).read == 2
    assert send(site, to=target, topics=tuple(sets_of(other))).read == 1

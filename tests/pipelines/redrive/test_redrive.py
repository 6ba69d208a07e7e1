"""Redrives of real brokers' dead letters on Spark."""

from __future__ import annotations

import json
import time

import pulsar
import pytest

from magnetar.errors import InvalidSetting
from magnetar.pipelines.moving.lock import TopicLocked, TopicLocks
from magnetar.pipelines.redrive.edit import Letter
from magnetar.pipelines.redrive.redrive import LOCK
from tests.pipelines.redrive.conftest import Site


def test_sp3_letters_go_back_to_the_subscription_that_failed(site: Site) -> None:
    site.create(site.orders, "billing", "shipping")
    site.publish_letters([{"amount": number} for number in range(30)], RECONSUMETIMES="3", own="kept")
    outcome = site.redrive()
    assert (outcome.total, outcome.sent, outcome.kept) == (30, 30, {})
    found = site.received(site.orders, "billing")
    for key in ("k0", "k1", "k2"):
        numbers = [json.loads(one.value)["amount"] for one in found if one.key == key]
        assert numbers == list(range(int(key[1]), 30, 3)), "in order per key"
    properties = found[0].properties
    assert properties["REDRIVE_GENERATION"] == "1" and properties["REDRIVE_SUBSCRIPTION"] == "billing"
    assert properties["own"] == "kept" and not {"RECONSUMETIMES", "REAL_TOPIC", "DEATH_REASON"} & properties.keys()
    [death] = json.loads(properties["DEATH_HISTORY"])
    assert (death["subscription"], death["reason"], death["count"]) == ("billing", "Client", 3)
    assert found[0].key == "k0"
    assert site.received(site.orders, "shipping") == []
    assert site.waiting() == 0
    assert site.redrive().total == 0


def test_sp3_where_set_and_preview(site: Site) -> None:
    site.create(site.orders, "billing")
    site.publish_letters([{"amount": number - 5, "note": "ü"} for number in range(10)])
    chosen = {
        "where": "payload.amount < 0",
        "set": {"payload.amount": "abs(payload.amount)", "properties.fixed": "'yes'"},
    }
    outcome, samples = site.preview(**chosen)
    assert (outcome.total, outcome.sent) == (5, 5) and len(samples) == 5
    assert json.loads(samples[0].before["value"]) == {"amount": -5, "note": "ü"}
    assert samples[0].after is not None and json.loads(samples[0].after["value"]) == {"amount": 5, "note": "ü"}
    assert site.waiting() == 10, "a preview changes nothing"
    assert site.redrive(**chosen).sent == 5
    found = site.received(site.orders, "billing")
    assert sorted(json.loads(one.value)["amount"] for one in found) == [1, 2, 3, 4, 5]
    assert {one.properties["fixed"] for one in found} == {"yes"}
    assert site.waiting() == 5


def test_sp3_letters_without_an_origin_stay_and_are_named(site: Site) -> None:
    site.create(site.letters, "inspection")
    site.publish_letters([{"n": 1}])  # of a topic that was never created
    site.publish_letters([{"n": 2}], REAL_TOPIC="", ORIGIN_MESSAGE_ID="")
    outcome = site.redrive()
    assert outcome.sent == 0 and outcome.kept.total() == 2
    assert f"the origin persistent://public/default/{site.orders} does not exist" in outcome.kept
    assert site.waiting() == 2
    site.create(f"{site.orders}-repaired", "billing")
    assert site.redrive(to=f"{site.orders}-repaired").sent == 2
    assert len(site.received(f"{site.orders}-repaired", "billing")) == 2


def test_sp3_generations_end_in_quarantine(site: Site) -> None:
    site.create(site.orders, "billing")
    site.publish_letters([{"n": 1}, {"n": 2}], REDRIVE_GENERATION="3")
    outcome = site.redrive()
    assert (outcome.sent, outcome.quarantined) == (2, 2)
    assert site.received(site.orders, "billing") == []
    quarantine = f"{site.orders}-billing-QUARANTINE-DLQ"
    assert site.waiting(quarantine) == 2 and site.waiting() == 0
    site.redrive("public/default", where=f"topic like '%{site.orders}'")
    assert site.waiting(quarantine) == 2, "only by its name"
    assert site.redrive(quarantine, to=site.orders, generations_max=9).sent == 2
    assert len(site.received(site.orders, "billing")) == 2


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"where": "amount <"}, "where 'amount <' is wrong"),
        ({"where": "missing = 1"}, "missing"),
        ({"where": "count + 1"}, "a condition is required"),
        ({"set": {"payload.amount": "nothing(1)"}}, "nothing"),
        ({"set": {"topic": "'x'"}}, "cannot be assigned"),
        ({"function": "no_such_module:f"}, "cannot be imported"),
        ({"function": "json:no_such_function"}, "has no function"),
    ],
)
def test_sp3_mistakes_are_refused_before_anything_is_sent(site: Site, spec: dict[str, object], reason: str) -> None:
    site.create(site.orders, "billing")
    site.publish_letters([{"amount": 1}])
    with pytest.raises(InvalidSetting, match=reason):
        site.redrive(**spec)
    assert site.waiting() == 1


def test_sp3_a_topic_that_holds_no_dead_letters_is_refused(site: Site) -> None:
    site.create(site.orders, "billing")
    site.publish_letters([{"amount": 1}])
    with pytest.raises(
        InvalidSetting, match=f"is not a dead letter topic: its dead letter topics are .*{site.letters}"
    ):
        site.redrive(site.orders)


def poison(letter: Letter) -> Letter | None:
    """Leaves one letter, fails for another."""
    if letter.payload["n"] == 1:
        return None
    if letter.payload["n"] == 2:
        raise ValueError("not this one")
    letter.payload["by"] = letter.subscription
    letter.properties["generation"] = str(letter.generation)
    return letter


def test_sp3_a_function_edits_leaves_and_fails(site: Site) -> None:
    site.create(site.orders, "billing")
    site.publish_letters([{"n": number} for number in range(5)])
    outcome = site.redrive(call=poison)
    assert outcome.sent == 3
    assert outcome.kept == {"the function left it where it is": 1, "the function raised ValueError: not this one": 1}
    found = [json.loads(one.value) for one in site.received(site.orders, "billing")]
    assert found == [{"n": number, "by": "billing"} for number in (0, 3, 4)]
    assert site.waiting() == 2


def test_sp3_a_message_that_dies_again_and_again_stops_at_its_limit(site: Site) -> None:
    """The broker moves it to the dead letter topic each time; the third redrive is the last."""
    site.create(site.orders, "billing")
    path = f"persistent/public/default/{site.orders}/subscription/billing/deadLetterPolicy"
    site.ask("POST", path, {"maxRedeliverCount": 1})
    with site.client.producer(site.orders) as producer:
        producer.send(b"poison")
    for generation in range(4):
        fail(site)
        assert site.waiting() == 1
        outcome = site.redrive(generations_max=3)
        assert outcome.quarantined == (generation == 3), generation
    assert site.waiting() == 0 and site.waiting(f"{site.orders}-billing-QUARANTINE-DLQ") == 1
    [letter] = site.ask("GET", f"persistent/public/default/{site.orders}-billing-QUARANTINE-DLQ/deadLetters")[
        "deadLetters"
    ]
    assert letter["originSubscription"] == "billing" and letter["reason"] == "MaxRedeliveries"


def fail(site: Site) -> None:
    """Until the broker gives up the message."""
    before = site.waiting() if exists(site) else 0
    client = pulsar.Client(site.running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(
        site.orders, "billing", consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=50
    )
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(20_000))
    deadline_s = time.monotonic() + 20
    while not exists(site) or site.waiting() == before:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    client.close()


def exists(site: Site) -> bool:
    return site.client.partition_count(site.letters) is not None


def test_sp3_partitions_and_their_order_are_kept(site: Site) -> None:
    site.create(site.orders, "billing", partitions=3)
    for partition in range(3):
        origin = f"persistent://public/default/{site.orders}-partition-{partition}"
        site.publish_letters([{"p": partition, "n": number} for number in range(40)], REAL_TOPIC=origin)
    assert site.redrive().sent == 120
    for partition in range(3):
        found = [json.loads(one.value) for one in site.received(f"{site.orders}-partition-{partition}", "billing")]
        for key in range(3):
            assert [one["n"] for one in found if one["n"] % 3 == key] == [n for n in range(40) if n % 3 == key]
        assert {one["p"] for one in found} == {partition}


def test_sp3_a_stopped_redrive_continues(site: Site) -> None:
    site.create(site.orders, "billing")
    site.publish_letters([{"n": number} for number in range(60)])
    site.context.reports_max = 4
    first = site.redrive(rate=20.0)
    assert 0 < first.sent < 60
    site.context.reports_max = 1 << 30
    assert site.redrive().sent == 60 - first.sent
    assert [json.loads(one.value)["n"] for one in site.received(site.orders, "billing") if one.key == "k0"] == list(
        range(0, 60, 3)
    )


def test_sp3_one_redrive_at_a_time_works_on_a_topic(site: Site) -> None:
    site.create(site.orders, "billing")
    site.publish_letters([{"n": 1}])
    with TopicLocks(site.endpoint, LOCK) as locks:
        locks.take([f"persistent://public/default/{site.letters}"])
        with pytest.raises(TopicLocked, match=f"{site.letters} is in use by another magnetar.redrive"):
            site.redrive()
    assert site.redrive().sent == 1


def test_sp3_letters_older_than_every_subscription_stay_and_are_named(site: Site) -> None:
    """No cursor can acknowledge them."""
    site.create(site.orders, "billing")
    site.publish_letters([{"n": 1}])
    site.ask("PUT", f"persistent/public/default/{site.letters}/subscription/late")
    site.publish_letters([{"n": 2}])
    outcome = site.redrive()
    assert outcome.sent == 1 and outcome.kept.total() == 1
    [reason] = outcome.kept
    assert "is older than the subscriptions" in reason
    assert [json.loads(one.value) for one in site.received(site.orders, "billing")] == [{"n": 2}]

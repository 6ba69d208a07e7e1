from __future__ import annotations

import asyncio
import re

import pytest

from magnetar.admin.http import time_slice
from magnetar.admin.stats import metrics
from magnetar.admin.stats.metrics import FAMILIES
from magnetar.broker.catalog.policies import BacklogQuota, Overrides, QuotaKind, QuotaPolicy
from magnetar.names import TopicName
from tests.admin.driver import Admin

NAMESPACE = 'cluster="standalone",namespace="public/default"'
TOPIC = f'{NAMESPACE},topic="persistent://public/default/t"'
LABEL = r'[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(rf"[a-zA-Z_]+\{{{LABEL}(?:,{LABEL})*\}} [-0-9.e+]+")


def scrape(admin: Admin) -> list[str]:
    response = admin("GET", "/metrics/")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return response.text.splitlines()


def check_format(lines: list[str]) -> None:
    """Every sample follows the one heading of its metric."""
    seen: list[str] = []
    for line in lines:
        if line.startswith("# TYPE "):
            assert line.split()[2] not in seen, "a metric in two places"
            seen.append(line.split()[2])
            kind = line.split()[3]
        else:
            assert SAMPLE.fullmatch(line), line
            name = line.partition("{")[0]
            assert re.sub("_(bucket|sum|count)$", "", name) == seen[-1] if kind == "histogram" else name == seen[-1]


def test_the_address_without_slash_redirects(admin: Admin) -> None:
    response = admin("GET", "/metrics")
    assert (response.status_code, response.headers["location"]) == (301, "/metrics/")


def test_samples(admin: Admin) -> None:
    admin.publish("t", b"a", b"b")
    admin.subscribe("t", "s", permits=1)
    size = admin.broker.topics["persistent://public/default/t"].bytes_in
    lines = scrape(admin)
    for line in (
        f"pulsar_topics_count{{{NAMESPACE}}} 1",
        f"pulsar_producers_count{{{TOPIC}}} 1",
        f"pulsar_subscriptions_count{{{TOPIC}}} 1",
        f"pulsar_consumers_count{{{TOPIC}}} 1",
        f"pulsar_in_messages_total{{{TOPIC}}} 2",
        f"pulsar_in_bytes_total{{{TOPIC}}} {size}",
        f"pulsar_average_msg_size{{{TOPIC}}} {size / 2}",
        f"pulsar_storage_size{{{TOPIC}}} {size}",
        f"pulsar_msg_backlog{{{TOPIC}}} 2",
        f"pulsar_storage_backlog_size{{{TOPIC}}} {size}",
        f"pulsar_storage_backlog_age_seconds{{{TOPIC}}} 0",
        f"pulsar_storage_backlog_quota_limit{{{TOPIC}}} -1",
        f'pulsar_subscription_back_log{{{TOPIC},subscription="s"}} 2',
        f'pulsar_subscription_unacked_messages{{{TOPIC},subscription="s"}} 1',
        f'pulsar_subscription_consumers_count{{{TOPIC},subscription="s"}} 1',
        f'pulsar_out_messages_total{{{TOPIC},subscription="s"}} 1',
        'pulsar_broker_topics_count{cluster="standalone"} 1',
        'pulsar_broker_msg_backlog{cluster="standalone"} 2',
        f'pulsar_broker_in_bytes_total{{cluster="standalone",system_topic="false"}} {size}',
        "# TYPE pulsar_in_messages_total counter",
        "# TYPE pulsar_storage_size gauge",
    ):
        assert line in lines
    assert not any("consumer_name" in line or "producer_name" in line for line in lines)


def test_rates_are_those_of_the_last_minute(admin: Admin) -> None:
    admin.publish("t", *[b"a"] * 60)
    admin.subscribe("t", "s", permits=30)
    admin.broker.topics["persistent://public/default/t"].update_rates(60.0)
    lines = scrape(admin)
    assert f"pulsar_rate_in{{{TOPIC}}} 1.0" in lines
    assert f"pulsar_rate_out{{{TOPIC}}} 0.5" in lines
    assert f'pulsar_subscription_msg_rate_out{{{TOPIC},subscription="s"}} 0.5' in lines
    assert 'pulsar_broker_rate_in{cluster="standalone"} 1.0' in lines


def test_quota_and_age_of_a_backlog(admin: Admin) -> None:
    admin.unsubscribe_idle(admin.subscribe("t", "s"))
    assert f"pulsar_storage_backlog_age_seconds{{{TOPIC}}} -1" in scrape(admin)
    admin.publish("t", b"a")
    quotas = {
        QuotaKind.destination_storage: BacklogQuota(1000, QuotaPolicy.producer_exception),
        QuotaKind.message_age: BacklogQuota(90, QuotaPolicy.producer_exception),
    }
    admin.broker.catalog.set_overrides(TopicName.parse("t"), Overrides(backlog_quotas=quotas))
    admin.broker.clock.advance_ms(7_900)  # type: ignore[attr-defined]  # the driver's clock is a manual one
    lines = scrape(admin)
    assert f"pulsar_storage_backlog_quota_limit{{{TOPIC}}} 1000" in lines
    assert f"pulsar_storage_backlog_quota_limit_time{{{TOPIC}}} 90" in lines
    assert f"pulsar_storage_backlog_age_seconds{{{TOPIC}}} 7" in lines


def test_consumer_and_producer_metrics_where_exposed() -> None:
    admin = Admin(exposeConsumerLevelMetricsInPrometheus=True, exposeProducerLevelMetricsInPrometheus=True)
    producer = admin.publish("t", b"a", b"b")
    admin.subscribe("t", "s", permits=1)
    lines = scrape(admin)
    check_format(lines)
    consumer = f'{TOPIC},subscription="s",consumer_name="c",consumer_id="3"'
    assert f"pulsar_consumer_unacked_messages{{{consumer}}} 1" in lines
    assert f"pulsar_consumer_available_permits{{{consumer}}} 0" in lines
    assert f"pulsar_out_messages_total{{{consumer}}} 1" in lines
    assert f'pulsar_out_messages_total{{{TOPIC},subscription="s"}} 1' in lines
    average = producer.bytes_in / 2
    assert f'pulsar_producer_msg_average_Size{{{TOPIC},producer_name="p",producer_id="7"}} {average}' in lines


def test_namespace_metrics_where_topics_are_not_exposed() -> None:
    admin = Admin(exposeTopicLevelMetricsInPrometheus=False, exposeConsumerLevelMetricsInPrometheus=True)
    for topic in ("t", "u"):
        admin.publish(topic, b"a", b"b")
        admin.subscribe(topic, "s", permits=1)
    lines = scrape(admin)
    check_format(lines)
    assert not any("topic=" in line for line in lines if "system_topic" not in line)
    for line in (
        f"pulsar_topics_count{{{NAMESPACE}}} 2",
        f"pulsar_subscriptions_count{{{NAMESPACE}}} 2",
        f"pulsar_consumers_count{{{NAMESPACE}}} 2",
        f"pulsar_in_messages_total{{{NAMESPACE}}} 4",
        f"pulsar_out_messages_total{{{NAMESPACE}}} 2",
        f'pulsar_msg_backlog{{{NAMESPACE},remote_cluster="local"}} 4',
        'pulsar_broker_msg_backlog{cluster="standalone"} 4',
    ):
        assert line in lines


def test_the_format_is_valid_for_any_name(admin: Admin) -> None:
    admin.subscribe('a"b\\c', 'x\n"y\\')
    admin.subscribe("non-persistent://public/default/n", "s")
    admin.publish("t", b"a")
    lines = scrape(admin)
    check_format(lines)
    assert any(r'subscription="x\n\"y\\"' in line for line in lines)


def test_an_unused_topic_is_counted_and_stays_closed(admin: Admin) -> None:
    admin.publish("t", b"a")
    restarted = admin.after_crash()
    lines = scrape(restarted)
    assert f"pulsar_topics_count{{{NAMESPACE}}} 1" in lines
    assert 'pulsar_broker_topics_count{cluster="standalone"} 1' in lines
    assert not any("topic=" in line for line in lines if "system_topic" not in line)
    assert restarted.broker.topics == {}


def test_all_topics_are_included_in_any_number_of_chunks(admin: Admin) -> None:
    count = metrics._LINES_PER_CHUNK + 1
    admin.done("PUT", "/admin/v2/persistent/public/default/t/partitions", json=count)
    lines = scrape(admin)
    check_format(lines)
    assert sum(line.startswith("pulsar_storage_size{") for line in lines) == count


def test_other_tasks_run_meanwhile_and_topics_may_be_deleted(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_slice, "SLICE_S", 0.0)
    admin.done("PUT", "/admin/v2/persistent/public/default/t/partitions", json=20)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            if turns == 100:
                admin.broker.delete_topic(TopicName.parse("t-partition-7"), force=True)
            await asyncio.sleep(0)

    async def both() -> str:
        task = asyncio.create_task(others())
        text = "".join([chunk async for chunk in metrics._text(admin.broker, {})])
        task.cancel()
        return text

    lines = asyncio.run(both()).splitlines()
    check_format(lines)
    assert turns > 20 * len(FAMILIES) / 2
    gone = 'topic="persistent://public/default/t-partition-7"'
    assert gone in "".join(line for line in lines if line.startswith("pulsar_subscriptions_count{"))
    assert gone not in "".join(line for line in lines if line.startswith("pulsar_storage_backlog_age_seconds{"))

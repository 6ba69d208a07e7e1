from __future__ import annotations

import re

from magnetar.admin import metrics
from tests.admin.driver import Admin

TOPIC = 'cluster="standalone",namespace="public/default",topic="persistent://public/default/t"'
SAMPLE = re.compile(r'[a-z_]+\{[a-z]+="(?:[^"\\\n]|\\[\\"n])*"(?:,[a-z]+="(?:[^"\\\n]|\\[\\"n])*")*\} [-0-9.e+]+')


def scrape(admin: Admin) -> list[str]:
    response = admin("GET", "/metrics/")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return response.text.splitlines()


def test_the_address_without_slash_redirects(admin: Admin) -> None:
    response = admin("GET", "/metrics")
    assert (response.status_code, response.headers["location"]) == (301, "/metrics/")


def test_samples(admin: Admin) -> None:
    admin.publish("t", b"a", b"b")
    admin.subscribe("t", "s", permits=1)
    size = admin.broker.topics["persistent://public/default/t"].bytes_in
    lines = scrape(admin)
    for line in (
        'pulsar_topics_count{cluster="standalone",namespace="public/default"} 1',
        f"pulsar_producers_count{{{TOPIC}}} 1",
        f"pulsar_subscriptions_count{{{TOPIC}}} 1",
        f"pulsar_consumers_count{{{TOPIC}}} 1",
        f"pulsar_in_messages_total{{{TOPIC}}} 2",
        f"pulsar_in_bytes_total{{{TOPIC}}} {size}",
        f"pulsar_storage_size{{{TOPIC}}} {size}",
        f"pulsar_msg_backlog{{{TOPIC}}} 2",
        f'pulsar_subscription_back_log{{{TOPIC},subscription="s"}} 2',
        f'pulsar_subscription_unacked_messages{{{TOPIC},subscription="s"}} 1',
        f'pulsar_out_messages_total{{{TOPIC},subscription="s"}} 1',
        "# TYPE pulsar_in_messages_total counter",
        "# TYPE pulsar_storage_size gauge",
    ):
        assert line in lines


def test_the_format_holds_for_any_name(admin: Admin) -> None:
    admin.subscribe('a"b\\c', 'x\n"y\\')
    admin.subscribe("non-persistent://public/default/n", "s")
    admin.publish("t", b"a")
    seen: list[str] = []
    for line in scrape(admin):
        if line.startswith("# TYPE "):
            assert line.split()[2] not in seen, "a metric in two places"
            seen.append(line.split()[2])
        else:
            assert SAMPLE.fullmatch(line), line
            assert line.partition("{")[0] == seen[-1]
    assert any(r'subscription="x\n\"y\\"' in line for line in scrape(admin))


def test_all_topics_are_there_however_many_slices_they_take(admin: Admin) -> None:
    count = metrics._TOPICS_PER_SLICE * 2 + 1
    admin.done("PUT", "/admin/v2/persistent/public/default/t/partitions", json=count)
    assert sum(line.startswith("pulsar_storage_size{") for line in scrape(admin)) == count

"""docs/monitoring.md, the dashboard and the alerts: only metrics and labels that the broker has, links that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest
import yaml

from magnetar.admin.stats import pipeline_metrics, replication_metrics
from magnetar.admin.stats.broker_metrics import METRICS
from magnetar.admin.stats.metrics import FAMILIES
from magnetar.cli.app import command_for
from magnetar.cli.main import main
from magnetar.deadletter.properties import Reason
from magnetar.declared.model import RunState
from magnetar.log.events import EVENTS
from magnetar.replication.model import State
from magnetar.testing import broker

command_for([])  # imported here: pytest rewrites modules, and in two threads at once Python 3.11 cannot

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
ALERTS = ROOT / "monitoring" / "alerts.yaml"
ALERTS_TEST = ROOT / "monitoring" / "alerts_test.yaml"
DASHBOARD = json.loads((ROOT / "monitoring" / "grafana-dashboard.json").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
PROMETHEUS = {"up"}
"""Metrics of Prometheus itself."""
ADDED = {"instance", "job"}
"""Labels that Prometheus adds to every line that it scrapes."""
LABELS_OF_CLIENTS = {"consumer_name", "consumer_id", "producer_name", "producer_id"}

SELECTOR = re.compile(r"\b((?:pulsar|magnetar|process)_\w+|up)\b(\{[^}]*\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")

QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
VARIABLES = [one["query"] for one in DASHBOARD["templating"]["list"] if one["type"] == "query"]
EXPRESSIONS = [*QUERIES, *VARIABLES, *(rule["expr"] for rule in RULES)]


def tables() -> dict[str, set[str]]:
    """Labels by metric, from the tables in code."""
    topic = {"cluster", "namespace", "topic"}
    found: dict[str, set[str]] = {
        "pulsar_version_info": {"cluster", "version"},
        "pulsar_topics_count": {"cluster", "namespace"},
        "pulsar_broker_topics_count": {"cluster"},
    }
    for metric in (*METRICS, *pipeline_metrics.METRICS):
        labels = {"cluster", *metric.labels}
        found[metric.name] = labels
        if metric.kind == "histogram":
            found |= {f"{metric.name}_bucket": labels | {"le"}, f"{metric.name}_sum": labels}
    for family in FAMILIES:
        labels = set(topic)
        labels |= {"subscription"} if family.subscription or family.by_reason else set()
        labels |= {"reason"} if family.by_reason else set()
        labels |= {"origin_topic", "origin_subscription"} if family.topic_labels else set()
        labels |= LABELS_OF_CLIENTS if family.consumer or family.producer else set()
        found[family.name] = labels
        if family.broker_name:
            found[family.broker_name] = {"cluster", *re.findall(r"(\w+)=", family.broker_labels)}
    for name in replication_metrics.NAMES:
        found[name] = {*topic, "remote_cluster"} | ({"state"} if name == replication_metrics.STATE else set())
    return found


TABLES = tables()


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """Labels by metric of a broker with a dead letter, a route without its remote cluster, a pipeline, and refusals."""
    with pytest.MonkeyPatch.context() as patch, broker(tmp_path_factory.mktemp("data")) as running:
        patch.setenv("MAGNETAR_URL", running.http_url)
        client = pulsar.Client(running.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        consumer = client.subscribe(
            "orders",
            "billing",
            consumer_type=pulsar.ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            properties={"deadLetterPolicy.maxRedeliverCount": "1", "deadLetterPolicy.initialSubscriptionName": "look"},
        )
        client.create_producer("orders").send(b"broken")
        for _ in range(2):
            consumer.negative_acknowledge(consumer.receive(10_000))
        client.subscribe("orders-billing-DLQ", "look").receive(10_000)
        spec = '{"sources": ["orders-billing-DLQ"]}'
        unreachable = "http://127.0.0.1:9"
        for line in (
            ["clusters", "create", "west", "--service-url", unreachable, "--broker-url", "pulsar://127.0.0.1:9"],
            ["tenants", "update", "public", "--allowed-clusters", "standalone,west"],
            ["replication", "enable", "public/default", "--to", "west"],
            ["pipelines", "declare", "public/default", "fix", "redrive", "--spec", spec],
        ):
            assert main(line) == 0, line
        httpx.get(f"{running.http_url}/admin/v2/nothing")
        with pytest.raises(pulsar.PulsarException):
            client.subscribe("orders", "billing", consumer_type=pulsar.ConsumerType.Exclusive)
        text = httpx.get(f"{running.http_url}/metrics/").text
        client.close()
    found: dict[str, set[str]] = defaultdict(set)
    for name, labels in re.findall(r"^(\w+)\{(.*)\} \S+$", text, re.MULTILINE):
        found[name].update(re.findall(r'(\w+)="', labels))
    yield found


def test_the_tables_are_what_a_broker_exposes(scraped: dict[str, set[str]]) -> None:
    """A live scrape has nothing that the tables lack, and all that is used here and needs no rare event."""
    counts = {f"{name}_count" for name in TABLES if f"{name}_bucket" in TABLES}
    assert set(scraped) - set(TABLES) - counts == set()
    assert {name: labels - TABLES[name] for name, labels in scraped.items() if labels - TABLES.get(name, labels)} == {}
    rare = {"magnetar_faults_total", "pulsar_authentication_failures_total"}
    rare |= {"magnetar_pipeline_expected", "magnetar_pipeline_rate"}  # of a pipeline that runs
    used = {name for expression in EXPRESSIONS for name, _ in SELECTOR.findall(expression)}
    assert used - PROMETHEUS - set(scraped) - rare == set()
    for name in ("magnetar_replication_state", "magnetar_pipeline_state", "magnetar_dead_letters_waiting"):
        assert name in scraped


def test_every_metric_is_in_the_reference(scraped: dict[str, set[str]]) -> None:
    page = (ROOT / "docs" / "admin.md").read_text(encoding="utf-8")
    histograms = {metric.name for metric in METRICS if metric.kind == "histogram"}
    names = {re.sub(r"_(bucket|sum|count)$", "", name) if "_seconds_" in name else name for name in scraped}
    assert histograms <= names
    assert {name for name in names if f"`{name}`" not in page} == set()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_has_only_metrics_and_labels_of_the_broker(expression: str) -> None:
    names = {name for name, _ in SELECTOR.findall(re.sub(r'"[^"]*"', '""', expression))}
    assert names and names <= PROMETHEUS | set(TABLES)
    possible: set[str] = set()
    for name, matchers in SELECTOR.findall(expression):
        labels = TABLES.get(name, set()) | ADDED
        possible |= labels
        for label, _, value in MATCHER.findall(matchers):
            assert label in labels, f"{name} has no label {label}"
            check_value(name, label, value)
    for group in GROUPED.findall(expression):
        assert {label.strip() for label in group.split(",")} <= possible


def check_value(name: str, label: str, value: str) -> None:
    """Values of a closed set exist: states, reasons, events."""
    sets: dict[tuple[str, str], set[str]] = {
        ("magnetar_replication_state", "state"): {state.value for state in State},
        ("magnetar_pipeline_state", "state"): {state.value for state in RunState},
        ("magnetar_events_total", "event"): {event.name for event in EVENTS},
        ("magnetar_subscription_dead_lettered_total", "reason"): set(Reason),
    }
    if (name, label) in sets:
        assert set(value.split("|")) <= sets[name, label], value


# -- the dashboard


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids)) and len(PANELS) > 30
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells, panel["title"]
        cells |= own


def test_the_dashboard_covers_every_subject() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == [
        "Health",
        "Rates",
        "Backlog",
        "Failed messages",
        "Replication",
        "Pipelines",
        "Storage and disk",
        "Connections and process",
    ]
    assert {panel["type"] for panel in PANELS} <= {"stat", "table", "timeseries"}, "panels of Grafana itself"
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(QUERIES + VARIABLES))) <= variables


# -- the alerts


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_is_explained(rule: dict[str, Any]) -> None:
    assert set(rule["annotations"]) == {"summary", "description", "runbook"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["runbook"] == f"docs/monitoring.md#{rule['alert'].lower()}"
    assert f"\n### {rule['alert']}\n" in PAGE
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    metrics = [name for name, _ in SELECTOR.findall(rule["expr"])]
    everywhere = set.intersection(*(TABLES.get(name, set()) | ADDED for name in metrics))
    assert named <= everywhere


def test_every_section_is_of_an_alert() -> None:
    sections = re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)
    assert sections == [rule["alert"] for rule in RULES]


def test_every_alert_has_a_test() -> None:
    text = ALERTS_TEST.read_text(encoding="utf-8")
    assert [rule["alert"] for rule in RULES if rule["alert"] not in text] == []


def promtool(*words: str) -> None:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (on Debian: apt install prometheus)")
    done = subprocess.run([found, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_rules() -> None:
    promtool("check", "rules", str(ALERTS))


def test_promtool_fires_the_alerts() -> None:
    promtool("test", "rules", str(ALERTS_TEST))


@pytest.mark.parametrize("name", ["prometheus", "prometheus-secure"])
def test_promtool_accepts_the_configuration(name: str, tmp_path: Path) -> None:
    (block,) = re.findall(rf"<!-- test: {name} -->\n```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "alerts.yaml").write_bytes(ALERTS.read_bytes())
    for text, file in re.findall(r"(/etc/prometheus/(\S+))", block):
        (tmp_path / file).write_text("", encoding="utf-8")
        block = block.replace(text, str(tmp_path / file))
    (tmp_path / "prometheus.yml").write_text(block, encoding="utf-8")
    promtool("check", "config", "--syntax-only", str(tmp_path / "prometheus.yml"))


# -- numbers


def test_sizing_has_the_numbers_of_the_benchmarks() -> None:
    operations = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    part = operations.partition("## Sizing")[2].partition("- **Cores")[0]
    measured = benchmarks.partition("## Results")[2].partition("Measured on")[0]
    numbers = re.findall(r"\d[\d,.]*\d(?= (?:MB|KB|messages|a second|ms))", part.partition("| what |")[2])
    assert len(numbers) > 12
    calculated = {"150", "33"}  # 10,000 times 14.6 KB; docs/replication.md
    assert [number for number in numbers if number not in measured and number not in calculated] == []

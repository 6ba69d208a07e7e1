"""SP3 and SP4 on Apache Pulsar: dead letters as rows, and redrives of them; once where the origin deduplicates."""

from __future__ import annotations

import json

import official
import pulsar
import pytest
from letters import AUDIT, KEYS, REVIEW, Site, in_order, numbers
from pyspark.sql import SparkSession
from small_ledgers import ENTRIES_PER_LEDGER, KEEPS, ONCE, Pulsar

from magnetar.cli.main import main
from magnetar.errors import InvalidSetting
from magnetar.pipelines.moving.lock import TopicLocked, TopicLocks
from magnetar.pipelines.redrive.edit import Letter
from magnetar.pipelines.redrive.redrive import LOCK
from magnetar.pipelines.run import RunFailed
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.spark import deadletters

COUNT = 2 * ENTRIES_PER_LEDGER + 20


@pytest.fixture
def site(spark: SparkSession, broker: Pulsar, client: pulsar.Client, name: str) -> Site:
    """In a namespace with deduplication."""
    return Site(spark, broker, client, f"persistent://{ONCE}/{name}")


@pytest.fixture
def plain(spark: SparkSession, broker: Pulsar, client: pulsar.Client, name: str) -> Site:
    """In a namespace without."""
    return Site(spark, broker, client, f"persistent://{KEEPS}/{name}")


@pytest.mark.parametrize("through", ["service.url", "admin.url"])
def test_sp3_letters_of_the_official_client_go_back_once(site: Site, through: str) -> None:
    site.fail(COUNT)
    assert len(site.broker.ledgers(site.letters)) > 2
    if through == "admin.url":  # as a command that was given no other address
        site.context.endpoint = ClusterEndpoint("standalone", site.broker.http_url, site.broker.http_url)
    chosen = {
        "where": f"payload.n >= {COUNT - 10}",
        "set": {"payload.amount": "-payload.amount", "properties.fixed": "'yes'"},
    }
    expected, samples = site.preview(**chosen)
    assert (expected.total, expected.sent) == (10, 10) and samples[0].after is not None
    assert site.waiting(REVIEW) == COUNT and site.again() == []

    outcome = site.redrive(**chosen)
    assert (outcome.total, outcome.sent, outcome.kept) == (10, 10, {})
    found = site.again()
    assert sorted(numbers(found)) == list(range(COUNT - 10, COUNT)) and in_order(found)
    assert all((body := json.loads(one.data()))["amount"] == 10 - body["n"] for one in found)
    assert {key.partition_key() for key in found} == {f"k{number}" for number in range(KEYS)}
    for one in found:
        properties = one.properties()
        assert (properties["fixed"], properties["REDRIVE_GENERATION"]) == ("yes", "1")
        assert properties["own"] == str(numbers([one])[0])
        assert not {"RECONSUMETIMES", "REAL_TOPIC", "ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_IDY_TIME"} & properties.keys()
    assert [site.waiting(name) for name in (REVIEW, AUDIT)] == [COUNT - 10] * 2

    # The others by the same name: they are before letters that this name has sent.
    outcome = site.redrive()
    assert (outcome.total, outcome.sent) == (COUNT - 10, COUNT - 10)
    assert sorted(numbers(site.again())) == list(range(COUNT))
    assert [site.waiting(name) for name in (REVIEW, AUDIT)] == [0, 0]
    assert site.redrive().total == 0


def test_sp3_partitions_of_the_origin_are_kept(site: Site) -> None:
    site.fail(COUNT, partitions=3)
    before = {message.properties()["own"]: message.properties()["REAL_TOPIC"] for message in site.read()}
    assert site.redrive().sent == COUNT
    found = site.again()
    assert sorted(numbers(found)) == list(range(COUNT)) and in_order(found)
    assert all(before[one.properties()["own"]] == one.topic_name() for one in found)


def test_sp3_a_stopped_redrive_continues_under_its_name(site: Site) -> None:
    site.fail(COUNT)
    site.context.reports_max = 5
    first = site.redrive("stopped", rate=20.0)
    assert 0 < first.sent < COUNT
    site.context.reports_max = 1 << 30
    second = site.redrive("stopped")
    assert first.sent + second.sent == COUNT
    found = site.again()
    assert sorted(numbers(found)) == list(range(COUNT)) and in_order(found)


def test_sp3_letters_that_were_sent_and_not_acknowledged_are_not_sent_twice(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the run had been killed between the two."""
    site.fail(COUNT)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("magnetar.pipelines.redrive.rounds.acknowledge_handled", killed)
        with pytest.raises(KeyboardInterrupt):
            site.redrive("killed")
    sent = len(site.again())
    assert sent and site.waiting(REVIEW) == COUNT
    assert site.redrive("killed").sent == COUNT
    assert sorted(numbers(site.again())) == list(range(COUNT))
    assert [site.waiting(name) for name in (REVIEW, AUDIT)] == [0, 0]


def test_sp3_without_deduplication_it_is_refused_or_at_least_once(plain: Site) -> None:
    plain.fail(COUNT)
    with pytest.raises(RunFailed, match=r"does not deduplicate.*--at-least-once"):
        plain.redrive()
    assert plain.again() == [] and plain.waiting(REVIEW) == COUNT
    assert plain.redrive(at_least_once=True).sent == COUNT
    found = plain.again()
    assert sorted(numbers(found)) == list(range(COUNT)) and in_order(found)
    assert [plain.waiting(name) for name in (REVIEW, AUDIT)] == [0, 0]


def test_sp3_a_function_may_decide_otherwise_the_second_time(site: Site) -> None:
    def odd(letter: Letter) -> Letter | None:
        return letter if letter.payload["n"] % 2 else None

    site.fail(20)
    with pytest.raises(RunFailed, match=r"function.*--at-least-once"):
        site.call(odd)
    outcome = site.call(odd, at_least_once=True)
    assert outcome.sent == 10 and outcome.kept == {"the function left it where it is": 10}
    assert sorted(numbers(site.again())) == list(range(1, 20, 2))
    assert site.waiting(REVIEW) == 10
    with pytest.raises(InvalidSetting, match="decides otherwise each time"):
        site.redrive(where="rand() < 0.5")


def test_sp3_a_subscription_in_use_is_named_before_anything_is_sent(site: Site, client: pulsar.Client) -> None:
    site.fail(20)
    reviewer = client.subscribe(site.letters, REVIEW)
    with pytest.raises(RunFailed, match=f"subscription '{REVIEW}' of {site.letters} is in use"):
        site.redrive()
    assert site.again() == []
    reviewer.close()
    assert site.redrive().sent == 20
    assert sorted(numbers(site.again())) == list(range(20))


def test_sp3_one_redrive_at_a_time(site: Site) -> None:
    site.fail(1)
    with TopicLocks(site.context.endpoint, LOCK) as locks:
        locks.take([site.letters])
        with pytest.raises(TopicLocked, match=r"is in use by another magnetar\.redrive"):
            site.redrive()
    assert site.redrive().sent == 1


def test_sp3_generations_end_in_quarantine(site: Site, client: pulsar.Client) -> None:
    site.fail(1)
    [letter] = site.read()
    again = {**letter.properties(), "REDRIVE_GENERATION": "3", "own": "tired"}
    with official.producer(client, site.letters) as producer:
        producer.send(letter.data(), properties=again)
    outcome = site.redrive()
    assert (outcome.sent, outcome.quarantined) == (2, 1) and len(site.again()) == 1
    quarantine = site.letters.replace("-DLQ", "-QUARANTINE-DLQ")
    [tired] = official.read(client, quarantine)
    assert tired.properties()["REDRIVE_QUARANTINED"] == "redriven 3 times, the limit is 3"
    assert tired.properties()["REAL_TOPIC"] == site.topic
    assert site.redrive(sources=[quarantine], generations_max=9).sent == 1
    assert [one.properties()["REDRIVE_GENERATION"] for one in site.again()] == ["1", "4"]


def test_sp3_the_command_runs_here(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.fail(20)
    start = ("redrive", "start", "--from", site.letters, "--where", "payload.n < 5")

    def run(*words: str, url: tuple[str, ...] = site.words) -> dict[str, object]:
        capsys.readouterr()
        code = main([*words, *url, "--json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        found: dict[str, object] = json.loads(out)
        return found

    preview = run(*start, "--dry-run", "--samples", "1", url=site.words[:2])
    assert (preview["total"], preview["sent"], preview["targets"]) == (5, 5, {site.topic: 5})
    assert site.again() == []
    assert run(*start)["sent"] == 5, "by itself: there is no broker that runs it"
    assert run(*start, "--local")["total"] == 0
    assert main([*start, "--detach", *site.words]) == 2
    assert "--detach needs a Magnetar broker" in capsys.readouterr().err
    assert sorted(numbers(site.again())) == list(range(5))
    by_namespace = ("redrive", "start", "--from", site.namespace, "--where", f"topic = '{site.topic}'")
    assert run(*by_namespace)["sent"] == 15
    assert sorted(numbers(site.again())) == list(range(20))


def test_sp4_letters_of_the_official_client_are_rows(
    site: Site, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    site.fail(20, partitions=2)
    options = {"service.url": site.broker.service_url, "admin.url": site.broker.http_url}
    rows = deadletters(spark, site.letters, **options).orderBy("payload.n").collect()
    assert [row.payload.n for row in rows] == list(range(20))
    for row in rows:
        assert (row.topic, row.subscription, row.reason, row.handled) == (site.topic, "billing", "Client", False)
        assert (row.generation, row.key, row.kind) == (0, f"k{row.payload.n % KEYS}", "DLQ")
        assert row.properties["REAL_TOPIC"] == f"{row.topic}-partition-{row.partition}"
    assert site.redrive(where="payload.n < 5").sent == 5

    query = "select reason, count(*) as letters from letters group by reason"
    capsys.readouterr()
    code = main(["deadletters", "sql", query, "--topic", site.letters, *site.words, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert json.loads(out) == [{"reason": "Client", "letters": 15}], "handled ones are no dead letters any more"
    assert deadletters(spark, site.letters, handled=True, **options).where("handled").count() == 5

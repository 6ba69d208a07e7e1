"""The order of causes, from facts alone, without a broker."""

from __future__ import annotations

import dataclasses
import shlex

import pytest

from magnetar.cli.doctor.case import Case, Kind
from magnetar.cli.doctor.causes import causes_of
from magnetar.cli.doctor.facts import NextEntry, ProducerProblem, RemoteFacts, SourceFacts, TopicFacts
from magnetar.replication.model import DeclaredRoute, Mismatch, Problem, Process, RoutePolicy, State, Status
from magnetar.replication.partitions import decide_remote
from magnetar.security.tls import Fault

ORDERS = "persistent://acme/shop/orders"
SOURCE = SourceFacts("http://a:8080", "a", {"pipelinesEnabled": "true"})
REMOTE = RemoteFacts("b", "http://b:8080", "pulsar://b:6650", own_name="b", is_ours=True)


def status(
    state: State = State.RUNNING,
    reason: str = "",
    *,
    backlog: int = 0,
    error: str = "",
    process: Process = Process.REPORTING,
    problem: Problem = Problem.OTHER,
) -> Status:
    figures = (backlog, 0, 7.0, 0.0, 0.0)
    return Status(ORDERS, "b", state, reason, 0, error, 0, *figures, process=process, problem=problem)


def case(*statuses: Status, remote: RemoteFacts = REMOTE, policy: RoutePolicy | None = None, **facts: object) -> Case:
    declared = DeclaredRoute(ORDERS, 0, "b", policy or RoutePolicy())
    topic = TopicFacts(declared, ORDERS, list(statuses) or [status()])
    for name, value in facts.items():
        assert hasattr(topic, name)
        setattr(topic, name, value)
    return Case(SOURCE, remote, topic)


def kinds(one: Case) -> list[Kind]:
    return [cause.kind for cause in causes_of(one)]


def remote(**facts: object) -> RemoteFacts:
    return dataclasses.replace(REMOTE, **facts)  # type: ignore[arg-type]


CREATED = decide_remote(0, None, creates=True, mismatch=Mismatch.PIP370)
WAITING = decide_remote(0, None, creates=False, mismatch=Mismatch.PIP370)
MISMATCHED = decide_remote(0, 2, creates=True, mismatch=Mismatch.PIP370)
REFUSED = status(State.REFUSED, "no")


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (case(remote=remote(is_source=True, own_name="a")), Kind.LOOP),
        (case(remote=remote(own_name="a")), Kind.LOOP),
        (case(remote=remote(twins=("c",)), other_remotes=("c",)), Kind.LOOP),
        (case(remote=remote(wrong_port="it is HTTP", binary_error="it is HTTP", http_error="x")), Kind.WRONG_PORT),
        (case(status(State.REFUSED), remote=remote(http_url=None), decision=CREATED), Kind.NO_ADDRESS),
        (case(status(State.STOPPED, "x", process=Process.NEEDS_SPARK)), Kind.SPARK_MISSING),
        (case(status(State.STOPPED, "it ended", process=Process.STARTING)), Kind.NOT_STARTED),
        (case(status(State.REFUSED, "cannot be masked: no schema", problem=Problem.MESSAGE)), Kind.MESSAGE_REFUSED),
        (case(status(State.STOPPED, "where …", problem=Problem.FILTER)), Kind.BAD_FILTER),
        (case(declared=DeclaredRoute(ORDERS, 0, "b", clash="both would be x")), Kind.NAME_CLASH),
        (case(remote=remote(address_error="none")), Kind.NO_ADDRESS),
        (case(policy=RoutePolicy(paused=True)), Kind.PAUSED),
        (case(status(State.STOPPED, "no heartbeat …", process=Process.ABSENT)), Kind.NOT_RUNNING),
        (case(status(State.STARTING, "the pipelines process is starting")), Kind.NOT_STARTED),
        (case(cursors_missing=[ORDERS]), Kind.SUBSCRIPTION_MISSING),
        (case(parts_missing=[ORDERS]), Kind.PARTITION_MISSING),
        (case(remote=remote(http_error="refused")), Kind.UNREACHABLE),
        (case(remote=remote(binary_error="refused")), Kind.UNREACHABLE),
        (case(remote=remote(authentication_error="401")), Kind.AUTHENTICATION),
        (case(REFUSED, remote=remote(security_error="token_file '/t' cannot be read")), Kind.AUTHENTICATION),
        (case(REFUSED, remote=remote(security_error="trust_certs_file '/t' cannot be read")), Kind.TLS),
        (case(remote=remote(tls_error="not trusted", tls_fault=Fault.UNTRUSTED)), Kind.TLS),
        (case(missing_tenant="acme", missing_namespace="acme/shop"), Kind.TENANT_MISSING),
        (case(missing_namespace="acme/shop"), Kind.NAMESPACE_MISSING),
        (case(status(State.WAITING), decision=WAITING), Kind.TOPIC_MISSING),
        (case(decision=MISMATCHED, remote_partitions=2), Kind.PARTITION_MISMATCH),
        (case(producer_problems={ORDERS: (ProducerProblem.TERMINATED, "x")}), Kind.TERMINATED),
        (case(producer_problems={ORDERS: (ProducerProblem.QUOTA, "x")}), Kind.QUOTA),
        (case(producer_problems={ORDERS: (ProducerProblem.AUTHORIZATION, "x")}), Kind.NOT_AUTHORIZED),
        (case(producer_problems={ORDERS: (ProducerProblem.SCHEMA, "x")}), Kind.SCHEMA_REFUSED),
        (case(producer_problems={ORDERS: (ProducerProblem.OTHER, "x")}), Kind.REFUSED),
        (case(deduplicates=False), Kind.DEDUPLICATION_OFF),
        (case(REFUSED, schema_refusal="x"), Kind.SCHEMA_REFUSED),
        (case(status(State.REFUSED, "refuses version 3", problem=Problem.SCHEMA)), Kind.SCHEMA_REFUSED),
        (case(REFUSED, next_entry=NextEntry(ORDERS, "1:1", 11), size_max=10), Kind.TOO_LARGE),
        (case(status(State.REFUSED, "entry of 7 bytes", problem=Problem.SIZE)), Kind.TOO_LARGE),
        (case(status(State.REFUSED, "the schema exceeds 7 bytes")), Kind.REFUSED),
        (case(REFUSED), Kind.REFUSED),
        (case(status(State.UNREACHABLE)), Kind.UNREACHABLE),
        (case(status(State.MISMATCH)), Kind.OTHER),
    ],
)
def test_a_single_fault_is_the_only_cause(one: Case, kind: Kind) -> None:
    found = causes_of(one)
    assert found[0].kind is kind
    assert {cause.kind for cause in found} <= {kind, Kind.NAMESPACE_MISSING}
    for cause in found:
        assert shlex.split(cause.repair)[0] == ("pip" if kind is Kind.SPARK_MISSING else "magnetar")
        assert cause.what


@pytest.mark.parametrize(
    ("process", "kind"), [(Process.STARTING, Kind.NOT_STARTED), (Process.ABSENT, Kind.NOT_RUNNING)]
)
def test_a_process_that_never_reported_is_starting_only_if_the_broker_starts_it(process: Process, kind: Kind) -> None:
    one = case(status(State.STARTING, "no pipelines process has reported yet", process=process))
    assert kinds(one) == [kind]
    assert causes_of(one)[0].repair.startswith("magnetar pipelines") is (kind is Kind.NOT_RUNNING)


def test_two_names_of_one_cluster_matter_only_to_topics_that_go_to_both() -> None:
    assert kinds(case(remote=remote(twins=("c",)))) == []
    both = case(remote=remote(twins=("c",)), other_remotes=("c",))
    assert "replication disable persistent://acme/shop/orders --to c " in causes_of(both)[0].repair
    alias = dataclasses.replace(REMOTE, name="c", twins=("b",))
    assert "--to c " in causes_of(case(remote=alias, other_remotes=("b",)))[0].repair


def test_a_message_that_cannot_be_masked_never_leads_to_another_schema_strategy() -> None:
    text = "a value of topic orders cannot be masked (email): it does not match its schema"
    refused = status(State.REFUSED, text, problem=Problem.MESSAGE, backlog=1)
    one = case(refused, policy=RoutePolicy(where="id > 1"), next_entry=NextEntry(ORDERS, "1:1", 8), size_max=10)
    [cause] = causes_of(one)
    assert cause.kind is Kind.MESSAGE_REFUSED
    assert "--refused park" in cause.repair
    [cause] = causes_of(case(refused, policy=RoutePolicy(dead_letters=True)))
    assert "--refused skip" in cause.repair, "a parked message would be copied as it is"


def test_a_message_that_is_too_large_is_no_second_cause_by_its_refusal() -> None:
    """The remote's refusal has no code of its own for the size."""
    refused = status(State.REFUSED, "entry of 11 bytes exceeds maxMessageSize 10", problem=Problem.MESSAGE, backlog=1)
    assert kinds(case(refused, next_entry=NextEntry(ORDERS, "1:1", 11), size_max=10)) == [Kind.TOO_LARGE]
    [cause] = causes_of(case(refused))
    assert cause.what == f"a message of {ORDERS} is refused on its way to b"


def test_a_bad_filter_is_corrected_where_it_is_set() -> None:
    stuck, policy = status(State.STOPPED, "where …", problem=Problem.FILTER), RoutePolicy(where="n > 1")
    [cause] = causes_of(case(stuck, policy=policy))
    assert f"set-route {ORDERS} --to b --where CONDITION" in cause.repair
    [cause] = causes_of(case(stuck, policy=policy, conditions={"acme/shop": "n > 1"}))
    assert "set-route acme/shop --to b --where CONDITION" in cause.repair
    assert "the condition of acme/shop is 'n > 1'" in cause.evidence
    both = causes_of(case(stuck, policy=policy, conditions={ORDERS: "n > 1", "acme/shop": "m > 1"}))
    assert [cause.repair.split()[3] for cause in both] == [ORDERS, "acme/shop"]
    assert all("or the other one does not" in cause.what for cause in both)


def test_an_unrelated_fault_elsewhere_does_not_hide_the_cause() -> None:
    one = case(
        status(State.STOPPED, "where …", problem=Problem.FILTER),
        remote=remote(twins=("c",), http_error="refused"),
        deduplicates=True,
    )
    assert kinds(one) == [Kind.UNREACHABLE, Kind.BAD_FILTER]


def test_healthy_replication_has_no_cause() -> None:
    assert kinds(case()) == []
    assert kinds(case(deduplicates=True, next_entry=NextEntry(ORDERS, "1:1", 10), size_max=10)) == []
    created = decide_remote(0, None, creates=True, mismatch=Mismatch.PIP370)
    assert kinds(case(decision=created)) == [], "it is being created"


def test_causes_are_ordered_by_repair() -> None:
    one = case(
        status(State.STOPPED, "no heartbeat", backlog=3, error="lost", process=Process.ABSENT),
        policy=RoutePolicy(paused=True),
        producer_problems={ORDERS: (ProducerProblem.QUOTA, "full")},
        deduplicates=False,
    )
    assert kinds(one) == [Kind.PAUSED, Kind.NOT_RUNNING, Kind.QUOTA, Kind.DEDUPLICATION_OFF]
    assert causes_of(one)[0].evidence == (
        f"{ORDERS} is stopped: no heartbeat",
        "last error, at 1970-01-01T00:00:00Z: lost",
        "a backlog of 3, oldest message 7 s old",
    )


def test_partitions_are_added_on_the_side_with_fewer() -> None:
    for local, there, url in ((3, 2, "http://b:8080"), (2, 3, "http://a:8080")):
        decision = decide_remote(local, there, creates=True, mismatch=Mismatch.STOP)
        one = case(decision=decision, remote_partitions=there)
        one.facts.declared = DeclaredRoute(ORDERS, local, "b")
        repair = causes_of(one)[0].repair
        assert repair == f"magnetar topics update-partitioned-topic {ORDERS} -p 3 --url {url}"


def test_commands_for_a_secured_cluster_include_its_url_and_certificates() -> None:
    secured = remote(http_url="https://b:8443", trust_certs="/etc/ca.pem", token="file:///run/token")
    repair = causes_of(case(remote=secured, deduplicates=False))[0].repair
    words = "namespaces set-deduplication acme/shop -e --url https://b:8443 --trust-certs /etc/ca.pem"
    assert repair == f"magnetar {words} --token file:///run/token"
    refused = causes_of(case(remote=secured, producer_problems={ORDERS: (ProducerProblem.AUTHORIZATION, "x")}))[
        0
    ].repair
    stuck = status(State.REFUSED, "Unauthorized", problem=Problem.CREATION)
    missing = decide_remote(0, None, creates=True, mismatch=Mismatch.PIP370)
    made = causes_of(case(stuck, remote=secured, decision=missing))[0].repair
    assert made.startswith(f"magnetar topics create {ORDERS} ") and made.endswith("/PATH-OF-ADMINISTRATORS-TOKEN")
    assert "--role ROLE" in refused and refused.endswith("--token file:///PATH-OF-ADMINISTRATORS-TOKEN")


BLIND = remote(
    http_url="https://b:8443", trust_certs="/etc/ca.pem", token="file:///PATH-OF-TOKEN", role="copier", is_blind=True
)


@pytest.mark.parametrize(
    ("problem", "kind", "repair"),
    [
        (
            Problem.AUTHENTICATION,
            Kind.AUTHENTICATION,
            "clusters update b --auth-plugin AuthenticationToken --auth-parameters-file /PATH-OF-TOKEN --url http://a:8080",
        ),
        (
            Problem.AUTHORIZATION,
            Kind.NOT_AUTHORIZED,
            "namespaces grant-permission acme/shop --role copier --actions produce --url https://b:8443"
            " --trust-certs /etc/ca.pem --token file:///PATH-OF-ADMINISTRATORS-TOKEN",
        ),
        (
            Problem.CREATION,
            Kind.TOPIC_MISSING,
            f"topics create {ORDERS} --url https://b:8443 --trust-certs /etc/ca.pem"
            " --token file:///PATH-OF-ADMINISTRATORS-TOKEN",
        ),
    ],
)
def test_a_cluster_whose_credentials_are_hidden_is_judged_by_the_pipelines_reports(
    problem: Problem, kind: Kind, repair: str
) -> None:
    (cause,) = causes_of(case(status(State.REFUSED, "no", problem=problem), remote=BLIND))
    assert (cause.kind, cause.evidence[0], cause.repair) == (kind, "no", f"magnetar {repair}")


def test_a_secret_is_given_again_where_it_would_be_sent_elsewhere() -> None:
    """Otherwise the broker refuses the repair."""
    again = "--auth-plugin AuthenticationToken --auth-parameters-file /PATH-OF-TOKEN --url http://a:8080"
    untrusted = dataclasses.replace(BLIND, tls_error="x")
    away = dataclasses.replace(BLIND, binary_error="x")
    assert causes_of(case(remote=untrusted))[0].repair.endswith(f"PATH-OF-AUTHORITIES {again}")
    assert causes_of(case(remote=away))[0].repair.endswith(f"pulsar://HOST:PORT {again}")


def test_an_unreachable_cluster_with_tls_is_shown_with_its_tls_addresses() -> None:
    one = case(remote=remote(service_url="pulsar+ssl://b:6651", binary_error="refused"))
    assert "--service-url-tls https://HOST:PORT --broker-url-tls pulsar+ssl://HOST:PORT" in causes_of(one)[0].repair

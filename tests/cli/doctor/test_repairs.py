"""No sequence of repairs and partial changes copies a masked field in clear.

The commands run against a real broker, the policy is the declared one, and a real entry is transformed by it.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magnetar import testing
from magnetar.cli.doctor.case import Case
from magnetar.cli.doctor.causes import causes_of
from magnetar.cli.doctor.facts import NextEntry, RemoteFacts, SourceFacts, TopicFacts
from magnetar.cli.main import main
from magnetar.client.schema import Schema
from magnetar.names import TopicName
from magnetar.pipelines.transform.refusal import MessageRefused
from magnetar.pipelines.transform.transform import Transform
from magnetar.replication.model import DeclaredRoute, Mismatch, Problem, Process, State, Status
from magnetar.replication.partitions import decide_remote
from magnetar.wire import schema_pb2 as pb

SECRET = "secret@b.ch"
FIELDS = [{"name": "email", "type": "string"}, {"name": "n", "type": "int"}]
PEOPLE = Schema(type="JSON", data=json.dumps({"type": "record", "name": "Person", "fields": FIELDS}).encode())
REMOTE = RemoteFacts("b", "http://b:8080", "pulsar://b:6650", own_name="b", is_ours=True)
NUMBERS = count()
PREPARED = (
    "clusters create b --service-url http://nobody:8080",
    "tenants create geo --allowed-clusters a,b",
    # These load the rest of the command line: Python 3.11 may fail to compile a module while Hypothesis runs.
    "namespaces create geo/first",
    "topics create geo/first/t",
    "replication set-route geo/first/t --to b --where 'length(key) > 1' --mask email",
)


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.TestBroker]:
    with testing.broker(
        clusterName="a", createTopicToRemoteClusterForReplication=False, pipelinesEnabled=False
    ) as running:
        for words in PREPARED:
            assert run(running, words) == 0
        yield running


def run(broker: testing.TestBroker, words: str) -> int:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return main([*shlex.split(words), "--url", broker.http_url])


# -- repairs: what the doctor prints for a fault


def status(topic: str, state: State, problem: Problem) -> Status:
    return Status(topic, "b", state, "no", 0, "", 0, 1, 0, 7.0, 0.0, 0.0, process=Process.REPORTING, problem=problem)


def facts_of(fault: str, declared: DeclaredRoute) -> TopicFacts:
    problem = {
        "filter": Problem.FILTER,
        "namespace filter": Problem.FILTER,
        "message": Problem.MESSAGE,
        "size": Problem.SIZE,
    }.get(fault, Problem.OTHER)
    facts = TopicFacts(declared, declared.topic, [status(declared.topic, State.REFUSED, problem)])
    if fault == "shape":
        facts.remote_partitions, facts.decision = 2, decide_remote(0, 2, creates=True, mismatch=Mismatch.PIP370)
    if fault == "namespace filter":
        facts.conditions = {TopicName.parse(declared.topic).namespace_full: "n > 3"}
    if fault == "next":
        facts.next_entry, facts.size_max = NextEntry(declared.topic, "1:1", 5000), 2000
    return facts


def repairs(fault: str) -> Callable[[testing.TestBroker, str], list[str]]:
    def printed(broker: testing.TestBroker, topic: str) -> list[str]:
        source = SourceFacts(broker.http_url, "a", {"pipelinesEnabled": "true"})
        declared = declared_routes(broker, topic)
        found = [cause for one in declared for cause in causes_of(Case(source, REMOTE, facts_of(fault, one)))]
        commands = [shlex.split(cause.repair.replace("CONDITION", "'n > 1'")) for cause in found]
        return [shlex.join(words[1:-2]) for words in commands if words[-2:] == ["--url", broker.http_url]]

    return printed


def declared_routes(broker: testing.TestBroker, topic: str) -> list[DeclaredRoute]:
    return [row for row in broker.server.broker.replication.declaration().topics if row.topic == topic]


FAULTS = ("paused", "shape", "size", "next", "message", "filter", "namespace filter")
PARTIAL = (
    "pause {}",
    "resume {}",
    "set-route {} --refused park",
    "set-route {} --refused stop",
    "set-route {} --mask n",
    "set-route {} --mask email=null",
    "set-route {} --where 'n > 1'",
    "set-route {} --remove-where",
    "set-route {} --rename '{{topic}}-eu'",
    "set-route {} --remove-rename",
    "set-route {} --dead-letters",
    "remove-route {}",
    "disable {}",
    "enable {}",
)


def partial(template: str, *, of_topic: bool) -> Callable[[testing.TestBroker, str], list[str]]:
    def printed(broker: testing.TestBroker, topic: str) -> list[str]:
        scope = topic if of_topic else topic.removeprefix("persistent://").rpartition("/")[0]
        return [f"replication {template.format(scope)} --to b"]

    return printed


STEPS = st.one_of(
    st.sampled_from(FAULTS).map(repairs),
    st.builds(partial, st.sampled_from(PARTIAL), of_topic=st.booleans()),
)


# -- what is copied


def is_in_clear(route: DeclaredRoute) -> bool:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, schema_version=b"\0" * 8)
    transform = Transform(route.policy, route.topic, lambda version: PEOPLE)
    kept = {0} if route.policy.where else None
    try:
        copied = transform.apply(metadata, json.dumps({"email": SECRET, "n": 2}).encode(), kept)
    except MessageRefused:
        return False
    return copied is not None and SECRET.encode() in copied[1]


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(is_of_topic=st.booleans(), steps=st.lists(STEPS, min_size=1, max_size=6))
def test_b1_no_sequence_of_repairs_copies_a_masked_field_in_clear(
    broker: testing.TestBroker, is_of_topic: bool, steps: list[Callable[[testing.TestBroker, str], list[str]]]
) -> None:
    namespace = f"geo/n{next(NUMBERS)}"
    topic = f"persistent://{namespace}/people"
    assert run(broker, f"namespaces create {namespace}") == 0
    assert run(broker, f"namespaces set-clusters {namespace} --clusters a,b") == 0
    for name in (topic, f"{topic}-b-REPL-DLQ"):
        assert run(broker, f"topics create {name}") == 0
    assert all(is_in_clear(route) for route in declared_routes(broker, topic)), "without a mask"
    scope = topic if is_of_topic else namespace
    assert run(broker, f"replication set-route {scope} --to b --mask email") == 0
    done = []
    for step in steps:
        for command in step(broker, topic):
            done.append((command, run(broker, command)))
            assert not any(is_in_clear(route) for route in declared_routes(broker, topic)), done
    assert declared_routes(broker, f"{topic}-b-REPL-DLQ") == [], done


def test_b1_a_mask_goes_away_by_a_word_for_it(broker: testing.TestBroker) -> None:
    """The other way round: the test above could fail."""
    namespace = f"geo/n{next(NUMBERS)}"
    topic = f"persistent://{namespace}/people"
    run(broker, f"namespaces create {namespace}")
    run(broker, f"namespaces set-clusters {namespace} --clusters a,b")
    run(broker, f"topics create {topic}")
    run(broker, f"replication set-route {namespace} --to b --mask email")
    assert run(broker, f"replication set-route {topic} --to b --remove-mask email") == 0
    assert all(is_in_clear(route) for route in declared_routes(broker, topic))


@pytest.mark.parametrize("fault", ["shape", "size", "next", "message", "filter", "namespace filter"])
def test_b1_the_doctor_prints_a_change_of_the_route_policy(broker: testing.TestBroker, fault: str) -> None:
    """These are the repairs that the sequences above consist of."""
    topic = f"persistent://geo/n{next(NUMBERS)}/people"
    run(broker, f"namespaces create {topic.removeprefix('persistent://').rpartition('/')[0]}")
    run(broker, f"topics create {topic}")
    run(broker, f"replication enable {topic} --to b")
    assert any("set-route" in command for command in repairs(fault)(broker, topic))

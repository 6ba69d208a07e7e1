"""Causes why a topic is not replicated, derived from facts about the declaration and both clusters, in order.

The first cause must be repaired first; others may be its consequence. Owns the detection of each cause and the command
that repairs it. Sends no requests; `questions` does.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

from magnetar.cli.doctor.case import PLAIN_ADDRESSES, TOKEN_AGAIN, Case, Cause, Kind, command
from magnetar.cli.doctor.facts import ProducerProblem, SourceFacts, TopicFacts
from magnetar.cli.output import shown_time
from magnetar.cli.replication.cluster_names import Misnamed
from magnetar.names import TopicName
from magnetar.replication.model import Problem, Process, State, Status, subscription_of

_CERTIFICATE_WORDS = ("trust_certs_file", "certificate_file", "key_file")
_ADMINISTRATOR = "file:///PATH-OF-ADMINISTRATORS-TOKEN"


def causes_of(case: Case) -> list[Cause]:
    """The first cause gets the reported state as evidence."""
    found = [cause for rule in _RULES for cause in rule(case)]
    if not found and case.facts.is_stuck:
        found = [_other(case)]
    if found:
        first = found[0]
        evidence = (*first.evidence, *(text for text in _reported_state(case.facts) if text not in first.evidence))
        found[0] = Cause(first.kind, first.what, evidence, first.repair)
    return found


def not_declared(source: SourceFacts, topic: TopicName, clusters: list[str], known: list[str]) -> Cause:
    remotes = [name for name in known if name != source.cluster]
    if not remotes:
        repair = command(
            "clusters", "create", "REMOTE", "--service-url", "http://…", "--broker-url", "pulsar://…", url=source.url
        )
        return Cause(Kind.NOT_DECLARED, "no remote cluster is registered", (f"clusters: {source.cluster}",), repair)
    repair = command("replication", "enable", topic.full, "--to", remotes[0], url=source.url)
    evidence = (f"replication clusters in force: {', '.join(clusters) or 'none'}",)
    return Cause(Kind.NOT_DECLARED, f"{topic.full} is not replicated", evidence, repair)


def misnamed(found: Misnamed) -> Cause:
    name = found.unknown[0] if found.unknown else "NAME"
    repair = shlex.join(["magnetar", "standalone", "--cluster", name, "--rename-cluster"])
    evidence = (
        *(f"no address is registered for cluster {one}: that may be this cluster" for one in found.unknown),
        "only a restart changes the name of a broker",
    )
    return Cause(Kind.MISNAMED, str(found), evidence, repair)


def _reported_state(facts: TopicFacts) -> Iterator[str]:
    status = facts.worst
    if status is None:
        return
    reason = f": {status.reason}" if status.reason else ""
    yield f"{status.topic} is {status.state}{reason}"
    if status.last_error and status.last_error not in status.reason:
        yield f"last error, at {shown_time(status.last_error_ms)}: {status.last_error}"
    if status.backlog:
        yield f"a backlog of {status.backlog}, oldest message {status.delay_s:.0f} s old"


def _loops(case: Case) -> Iterator[Cause]:
    remote, source = case.remote, case.source
    twins = [name for name in remote.twins if name in case.facts.other_remotes]
    if remote.is_source:
        what = f"the address of cluster {remote.name} is this cluster: it would replicate to itself"
        evidence: tuple[str, ...] = (f"the broker at {remote.address} is the one at {source.url}",)
        yield Cause(Kind.LOOP, what, evidence, case.readdressed())
    elif remote.own_name == source.cluster:
        what = f"the cluster at the address of {remote.name} has the same name as this one, {source.cluster}"
        evidence = (
            f"the broker at {remote.address} reports the cluster name {remote.own_name}",
            "copies are marked with the name of their source cluster: with one name for both, copies and originals"
            " cannot be distinguished",
        )
        yield Cause(Kind.LOOP, what, evidence, "magnetar standalone --cluster ANOTHER-NAME, for one of the two")
    elif twins:
        what = f"{remote.name} and {', '.join(twins)} are the same cluster: it receives every message more than once"
        evidence = (f"their addresses all lead to the cluster {remote.own_name}",)
        alias = next(name for name in (*twins, remote.name) if name != remote.own_name)
        if case.topic == "-":  # some of its topics
            repair = case.here("clusters", "update", alias, *PLAIN_ADDRESSES)
        else:
            repair = case.here("replication", "disable", case.topic, "--to", alias)
        yield Cause(Kind.LOOP, what, evidence, repair)


def _address(case: Case) -> Iterator[Cause]:
    remote = case.remote
    if remote.address_error:
        what = f"cluster {remote.name} has no usable address"
        yield Cause(Kind.NO_ADDRESS, what, (remote.address_error,), case.readdressed())
    elif remote.wrong_port:
        what = f"an address of cluster {remote.name} leads to the wrong port"
        yield Cause(Kind.WRONG_PORT, what, (remote.wrong_port,), _with_right_ports(case))
    elif _lacks_http(case):
        what = f"cluster {remote.name} has no HTTP address, which is needed to create topics there"
        host = urlsplit(remote.service_url or "").hostname or "HOST"
        repair = case.here("clusters", "update", remote.name, "--service-url", f"http://{host}:PORT")
        yield Cause(Kind.NO_ADDRESS, what, (f"its only address is {remote.service_url}",), repair)


def _lacks_http(case: Case) -> bool:
    is_missing = case.facts.decision is not None and case.facts.remote_partitions is None
    return case.remote.http_url is None and case.remote.is_reached and is_missing and case.facts.is_stuck


def _with_right_ports(case: Case) -> str:
    if not case.remote.right_addresses:
        return case.readdressed()
    http_url, service_url = case.remote.right_addresses
    return case.redeclared("--service-url", http_url, "--broker-url", service_url)


def _paused(case: Case) -> Iterator[Cause]:
    if case.facts.declared.policy.paused:
        repair = case.here("replication", "resume", case.topic, "--to", case.remote.name)
        yield Cause(Kind.PAUSED, f"the route to {case.remote.name} is paused", (), repair)


def _clashes(case: Case) -> Iterator[Cause]:
    if reason := case.facts.declared.clash:
        what = f"another topic has the same name in {case.remote.name}"
        yield Cause(Kind.NAME_CLASH, what, (reason,), _renamed(case))


def _renamed(case: Case) -> str:
    """Masks and the other parts of the route policy are kept."""
    template = "{tenant}/{namespace}/{topic}-" + case.source.cluster
    return case.here("replication", "set-route", case.topic, "--to", case.remote.name, "--rename", template)


def _pipeline(case: Case) -> Iterator[Cause]:
    statuses = case.facts.statuses
    silent = next((one for one in statuses if one.process is not Process.REPORTING), None)
    waiting = next((one for one in statuses if one.state is State.STARTING), None)
    if silent is not None:
        yield from _process(case, silent)
    elif waiting is not None:
        what = "the pipelines process has not started to copy the topic yet: wait some seconds"
        yield Cause(Kind.NOT_STARTED, what, (waiting.reason,), _status(case))


def _process(case: Case, silent: Status) -> Iterator[Cause]:
    """Of a pipelines process that does not report."""
    is_known = silent.state in (State.STOPPED, State.STARTING)
    evidence: tuple[str, ...] = (silent.reason if is_known else "no pipelines process has reported",)
    match silent.process:
        case Process.NEEDS_SPARK:
            what = "Spark is not installed where the broker runs: install it there, and restart the broker"
            yield Cause(Kind.SPARK_MISSING, what, evidence, "pip install 'magnetar[spark]'")
        case Process.STARTING:
            if is_known:
                what = "the broker is starting the pipelines process: wait some seconds, no other one is needed"
                yield Cause(Kind.NOT_STARTED, what, evidence, _status(case))
        case _:
            enabled = case.source.settings.get("pipelinesEnabled")
            if enabled is not None:
                evidence = (*evidence, f"pipelinesEnabled={enabled} at {case.source.url}")
            repair = f"magnetar pipelines --url {shlex.quote(case.source.url)}"
            yield Cause(Kind.NOT_RUNNING, "no pipelines process is running for this cluster", evidence, repair)


def _positions(case: Case) -> Iterator[Cause]:
    facts = case.facts
    if facts.parts_missing:
        evidence = (f"missing: {', '.join(facts.parts_missing[:5])}",)
        repair = case.here("topics", "create-missed-partitions", case.topic)
        yield Cause(Kind.PARTITION_MISSING, "partitions of the topic are missing", evidence, repair)
    if facts.cursors_missing:
        name = subscription_of(case.remote.name)
        what = f"the subscription {name}, which holds the position, is missing"
        evidence = (f"on {', '.join(facts.cursors_missing[:5])}",)
        yield Cause(Kind.SUBSCRIPTION_MISSING, what, evidence, case.here("topics", "unload", case.topic))


def _security(case: Case) -> Iterator[Cause]:
    """Files that cannot be read here may exist where the pipeline runs, so only if the topic is stuck."""
    remote = case.remote
    if not remote.security_error or not case.facts.is_stuck:
        return
    if any(word in remote.security_error for word in _CERTIFICATE_WORDS):
        what = f"the certificates declared for cluster {remote.name} cannot be used"
        yield Cause(Kind.TLS, what, (remote.security_error,), _trusting(case))
    else:
        what = f"the credentials declared for cluster {remote.name} cannot be used"
        yield Cause(Kind.AUTHENTICATION, what, (remote.security_error,), _with_token(case))


def _reaching(case: Case) -> Iterator[Cause]:
    remote = case.remote
    if remote.tls_error:
        what = f"the TLS handshake with cluster {remote.name} fails"
        yield Cause(Kind.TLS, what, (remote.tls_error,), _encrypted(case))
    errors = tuple(error for error in (remote.binary_error, remote.http_error) if error)
    if errors and not remote.wrong_port:
        what = f"cluster {remote.name} does not respond: start it, or correct its address"
        yield Cause(Kind.UNREACHABLE, what, errors, case.readdressed())
    if remote.authentication_error:
        yield _rejected(case, (remote.authentication_error,))


def _rejected(case: Case, evidence: tuple[str, ...]) -> Cause:
    what = f"cluster {case.remote.name} rejects the credentials"
    if case.remote.token_file:
        what += f"; a new token in {case.remote.token_file} is picked up automatically"
    return Cause(Kind.AUTHENTICATION, what, evidence, _with_token(case))


def _encrypted(case: Case) -> str:
    from magnetar.security.tls import Fault  # slow to import, and rarely needed

    match case.remote.tls_fault:
        case Fault.OTHER_HOST | Fault.NOT_TLS:
            return case.readdressed()
        case Fault.CERTIFICATE_WANTED:
            words = ("--auth-plugin", "AuthenticationTls", "--auth-parameters", "tlsCertFile:PATH,tlsKeyFile:PATH")
            return case.here("clusters", "update", case.remote.name, *words)
    return _trusting(case)


def _trusting(case: Case) -> str:
    return case.redeclared("--tls-trust-certs-filepath", "PATH-OF-AUTHORITIES")


def _with_token(case: Case) -> str:
    words = ("--auth-plugin", "AuthenticationToken", "--auth-parameters", "file:///PATH-OF-TOKEN")
    return case.here("clusters", "update", case.remote.name, *(words if case.remote.token_file else TOKEN_AGAIN))


def _missing_names(case: Case) -> Iterator[Cause]:
    facts, remote = case.facts, case.remote.name
    if facts.missing_tenant:
        repair = case.there("tenants", "create", facts.missing_tenant)
        yield Cause(Kind.TENANT_MISSING, f"cluster {remote} has no tenant {facts.missing_tenant}", (), repair)
    if facts.missing_namespace:
        repair = case.there("namespaces", "create", facts.missing_namespace)
        yield Cause(Kind.NAMESPACE_MISSING, f"cluster {remote} has no namespace {facts.missing_namespace}", (), repair)


def _partitions(case: Case) -> Iterator[Cause]:
    facts, decision = case.facts, case.facts.decision
    if decision is None or facts.missing_tenant or facts.missing_namespace or _lacks_http(case):
        return
    local = facts.declared.partitions
    if facts.remote_partitions is None:
        if decision.state is State.RUNNING and not facts.is_stuck:
            return  # it is being created
        reason = decision.reason or "it has not been created, although createTopicToRemoteClusterForReplication is true"
        yield _not_created(case, (reason,))
    elif decision.state is State.MISMATCH:
        what = f"{facts.target} has a different number of partitions in {case.remote.name}"
        yield Cause(
            Kind.PARTITION_MISMATCH, what, (decision.reason,), _repartitioned(case, local, facts.remote_partitions)
        )


def _not_created(case: Case, evidence: tuple[str, ...]) -> Cause:
    target, partitions = case.facts.target, case.facts.declared.partitions
    words = ("create-partitioned-topic", target, "-p", str(partitions)) if partitions else ("create", target)
    repair = case.there("topics", *words, token=_ADMINISTRATOR if _lacks_permission(case) else None)
    return Cause(Kind.TOPIC_MISSING, f"{target} is missing in {case.remote.name}", evidence, repair)


def _lacks_permission(case: Case) -> bool:
    """Whether the pipeline reported that the declared token lacks permission."""
    status = case.facts.worst
    return bool(case.remote.token) and status is not None and status.problem is Problem.CREATION


def _repartitioned(case: Case, local: int, remote: int) -> str:
    """Partitions can only be added, and only to a partitioned topic."""
    if not (local and remote):
        return _renamed(case)
    if remote < local:
        return case.there("topics", "update-partitioned-topic", case.facts.target, "-p", str(local))
    return case.here("topics", "update-partitioned-topic", case.topic, "-p", str(remote))


def _deduplication(case: Case) -> Iterator[Cause]:
    if case.facts.deduplicates is False:
        namespace = TopicName.parse(case.facts.target).namespace_full
        what = f"{case.remote.name} is not a Magnetar and has deduplication off: messages could be copied twice"
        evidence = (f"deduplication of {case.facts.target} is off",)
        yield Cause(
            Kind.DEDUPLICATION_OFF, what, evidence, case.there("namespaces", "set-deduplication", namespace, "-e")
        )


def _producer_problems(case: Case) -> Iterator[Cause]:
    facts = case.facts
    for kind in ProducerProblem:
        found = [(topic, text) for topic, (problem, text) in facts.producer_problems.items() if problem is kind]
        if found:
            yield _of_problem(case, kind, found[0][0], tuple(f"{topic}: {text}" for topic, text in found[:5]))


def _of_problem(case: Case, kind: ProducerProblem, topic: str, evidence: tuple[str, ...]) -> Cause:
    name = TopicName.parse(topic)
    whole = name.base.full
    if kind is ProducerProblem.TERMINATED:
        delete = ("delete-partitioned-topic", whole) if name.is_partition else ("delete", whole)
        what = f"{topic} is terminated in {case.remote.name} and accepts no messages; delete it to start over"
        return Cause(Kind.TERMINATED, what, evidence, case.there("topics", *delete, "--force"))
    if kind is ProducerProblem.QUOTA:
        what = f"the backlog quota of {topic} in {case.remote.name} is exceeded: consume there, or remove the quota"
        return Cause(Kind.QUOTA, what, evidence, case.there("namespaces", "remove-backlog-quota", name.namespace_full))
    if kind is ProducerProblem.AUTHORIZATION:
        what = f"no permission to publish to {topic} in {case.remote.name}"
        role = case.remote.role or "ROLE"
        words = ("namespaces", "grant-permission", name.namespace_full, "--role", role, "--actions", "produce")
        token = _ADMINISTRATOR if case.remote.token else None  # the declared one lacks permission
        return Cause(Kind.NOT_AUTHORIZED, what, evidence, case.there(*words, token=token))
    if kind is ProducerProblem.SCHEMA:
        return _schema_cause(case, evidence)
    return Cause(Kind.REFUSED, f"{case.remote.name} rejects a producer for {topic}", evidence, _status(case))


def _schemas(case: Case) -> Iterator[Cause]:
    refusal = case.facts.schema_refusal
    if refusal and all(problem is not ProducerProblem.SCHEMA for problem, _ in case.facts.producer_problems.values()):
        yield _schema_cause(case, (refusal,))


def _schema_cause(case: Case, evidence: tuple[str, ...]) -> Cause:
    what = f"the schema of {case.topic} is rejected by {case.remote.name}"
    namespace = TopicName.parse(case.facts.target).namespace_full
    if case.facts.auto_update_is_off:
        repair = case.there("namespaces", "set-is-allow-auto-update-schema", namespace, "-e")
    else:
        words = ("namespaces", "set-schema-compatibility-strategy", namespace, "-c", "ALWAYS_COMPATIBLE")
        repair = case.there(*words)
    return Cause(Kind.SCHEMA_REFUSED, what, evidence, repair)


def _sizes(case: Case) -> Iterator[Cause]:
    entry, limit = case.facts.next_entry, case.facts.size_max
    if entry is None or limit is None or entry.size <= limit:
        return
    what = f"the next message of {entry.topic} exceeds the size limit of {case.remote.name}"
    evidence = (f"entry {entry.position} has {entry.size} bytes, the limit there is {limit}",)
    if case.facts.size_limit_is_of_topic:
        repair = case.there("topics", "remove-max-message-size", case.facts.target)
    else:
        repair = _set_aside(case)
    yield Cause(Kind.TOO_LARGE, what, evidence, repair)


def _set_aside(case: Case) -> str:
    """A parked message stays in this cluster, unless dead letter topics are copied too."""
    refused = "skip" if case.facts.declared.policy.dead_letters else "park"
    return case.here("replication", "set-route", case.topic, "--to", case.remote.name, "--refused", refused)


def _reported(case: Case) -> Iterator[Cause]:
    """Causes that only the pipeline sees."""
    status = next((one for one in case.facts.statuses if one.problem is not Problem.OTHER), None)
    if status is None:
        return
    evidence = (status.reason,)
    match status.problem:
        case Problem.SCHEMA if not case.facts.schema_refusal:
            yield _schema_cause(case, evidence)
        case Problem.SIZE if case.facts.next_entry is None or case.facts.size_max is None:
            what = f"a message exceeds the size limit of {case.remote.name}"
            yield Cause(Kind.TOO_LARGE, what, evidence, _set_aside(case))
        case Problem.MESSAGE if not any(_sizes(case)):
            what = f"a message of {status.topic} is refused on its way to {case.remote.name}"
            yield Cause(Kind.MESSAGE_REFUSED, what, evidence, _set_aside(case))
        case Problem.FILTER:
            yield from _filters(case, evidence)
        case Problem.AUTHENTICATION if not case.remote.authentication_error:
            yield _rejected(case, evidence)
        case Problem.AUTHORIZATION if not case.facts.producer_problems:
            yield _of_problem(case, ProducerProblem.AUTHORIZATION, case.facts.target, evidence)
        case Problem.CREATION if case.facts.decision is None:
            yield _not_created(case, evidence)


def _filters(case: Case, evidence: tuple[str, ...]) -> Iterator[Cause]:
    """One cause per scope with a condition: a message must fulfil both, and either may be the wrong one."""
    conditions = case.facts.conditions or {case.topic: case.facts.declared.policy.where}
    alone = "" if len(conditions) == 1 else ", or the other one does not"
    for scope, where in conditions.items():
        what = f"the filter of {scope} does not fit the messages{alone}: nothing is copied until it is corrected"
        words = ("replication", "set-route", scope, "--to", case.remote.name, "--where", "CONDITION")
        yield Cause(Kind.BAD_FILTER, what, (*evidence, f"the condition of {scope} is {where!r}"), case.here(*words))


def _other(case: Case) -> Cause:
    status = case.facts.worst
    assert status is not None
    kind = Kind.UNREACHABLE if status.state is State.UNREACHABLE else Kind.OTHER
    kind = Kind.REFUSED if status.state is State.REFUSED else kind
    what = f"the pipeline reports {status.state}, and no cause was found"
    return Cause(kind, what, (), _status(case))


def _status(case: Case) -> str:
    return case.here("replication", "status", case.topic, "--remote", case.remote.name)


_RULES: tuple[Callable[[Case], Iterator[Cause]], ...] = (
    _loops,
    _address,
    _paused,
    _clashes,
    _pipeline,
    _positions,
    _security,
    _reaching,
    _missing_names,
    _partitions,
    _producer_problems,
    _deduplication,
    _schemas,
    _sizes,
    _reported,
)

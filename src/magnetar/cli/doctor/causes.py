"""Why a topic is not replicated: from what was seen of the declaration and of both clusters to causes in their order.

A cause that comes first has to be repaired first; what follows may be its consequence, or wait behind it. Owns what
each is called, how it is recognised and the command that repairs it. Asks nobody; `replication_questions` does.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from magnetar.cli.doctor.facts import RemoteFacts, SourceFacts, TopicFacts, Trouble
from magnetar.names import TopicName
from magnetar.replication.model import State, subscription_of

_CERTIFICATE_WORDS = ("trust_certs_file", "certificate_file", "key_file")
_ADMINISTRATOR = "file:///PATH-OF-ADMINISTRATORS-TOKEN"


class Kind(StrEnum):
    """What is wrong."""

    NOT_DECLARED = "not-declared"
    LOOP = "loop"
    NO_ADDRESS = "no-address"
    PAUSED = "paused"
    NOT_RUNNING = "pipeline-not-running"
    NOT_STARTED = "not-started"
    SUBSCRIPTION_MISSING = "subscription-missing"
    PARTITION_MISSING = "partition-missing"
    UNREACHABLE = "remote-unreachable"
    TLS = "tls"
    AUTHENTICATION = "authentication"
    TENANT_MISSING = "remote-tenant-missing"
    NAMESPACE_MISSING = "remote-namespace-missing"
    TOPIC_MISSING = "remote-topic-missing"
    SHAPES_DIFFER = "shapes-differ"
    TERMINATED = "remote-topic-terminated"
    DEDUPLICATION_OFF = "deduplication-off"
    QUOTA = "remote-quota"
    NOT_AUTHORIZED = "not-authorized"
    SCHEMA_REFUSED = "schema-refused"
    TOO_LARGE = "message-too-large"
    REFUSED = "refused-by-remote"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Cause:
    kind: Kind
    what: str
    evidence: tuple[str, ...]
    repair: str

    def described(self) -> dict[str, object]:
        return {"kind": self.kind, "what": self.what, "evidence": list(self.evidence), "repair": self.repair}


@dataclass(frozen=True, slots=True)
class Case:
    """All that is known of one topic and one remote cluster."""

    source: SourceFacts
    remote: RemoteFacts
    facts: TopicFacts

    @property
    def topic(self) -> str:
        return self.facts.declared.topic

    def here(self, *words: str) -> str:
        return command(*words, url=self.source.url)

    def there(self, *words: str, token: str | None = None) -> str:
        """With what the cluster is told that is declared, or another token."""
        remote = self.remote
        options = ["--trust-certs", remote.trust_certs] if remote.trust_certs else []
        token = remote.token if token is None else token
        options += ["--token", token] if token else []
        return command(*words, url=remote.http_url or f"URL-OF-{remote.name}", options=options)

    def readdressed(self) -> str:
        """The command that gives the cluster another address."""
        words = ["--service-url", "http://HOST:PORT", "--broker-url", "pulsar://HOST:PORT"]
        if (self.remote.service_url or "").startswith(("pulsar+ssl:", "https:")):
            words = ["--service-url-tls", "https://HOST:PORT", "--broker-url-tls", "pulsar+ssl://HOST:PORT"]
        return self.here("clusters", "update", self.remote.name, *words)


def command(*words: str, url: str, options: Sequence[str] = ()) -> str:
    return shlex.join(["magnetar", *words, "--url", url, *options])


# -- the causes


def causes_of(case: Case) -> list[Cause]:
    """The first is the right one; the state that the pipeline told is evidence of it."""
    found = [cause for rule in _RULES for cause in rule(case)]
    if not found and case.facts.is_stuck:
        found = [_other(case)]
    if found:
        first = found[0]
        evidence = (*first.evidence, *(text for text in _told(case.facts) if text not in first.evidence))
        found[0] = Cause(first.kind, first.what, evidence, first.repair)
    return found


def not_declared(source: SourceFacts, topic: TopicName, clusters: list[str], known: list[str]) -> Cause:
    remotes = [name for name in known if name != source.cluster]
    if not remotes:
        repair = command(
            "clusters", "create", "REMOTE", "--service-url", "http://…", "--broker-url", "pulsar://…", url=source.url
        )
        return Cause(Kind.NOT_DECLARED, "no other cluster is known here", (f"clusters: {source.cluster}",), repair)
    repair = command("replication", "enable", topic.full, "--to", remotes[0], url=source.url)
    evidence = (f"its replication clusters in force are {', '.join(clusters) or 'none'}",)
    return Cause(Kind.NOT_DECLARED, f"{topic.full} is not declared to be replicated", evidence, repair)


def _told(facts: TopicFacts) -> Iterator[str]:
    status = facts.worst
    if status is None:
        return
    reason = f": {status.reason}" if status.reason else ""
    yield f"{status.topic} is {status.state}{reason}"
    if status.last_error and status.last_error not in status.reason:
        yield f"last error: {status.last_error}"
    if status.backlog:
        yield f"a backlog of {status.backlog}, the oldest waits for {status.delay_s:.0f} s"


def _loops(case: Case) -> Iterator[Cause]:
    remote, source = case.remote, case.source
    update = case.readdressed()
    if remote.is_source:
        what = f"the address of cluster {remote.name} leads back to this cluster: it would replicate into itself"
        yield Cause(Kind.LOOP, what, (f"the broker at {remote.address} is the one at {source.url}",), update)
    elif remote.own_name == source.cluster:
        what = f"the cluster at the address of {remote.name} has the same name as this one, {source.cluster}"
        evidence = (
            f"the broker at {remote.address} calls its cluster {remote.own_name}",
            "copies say where they are from by the name of the cluster: with one name for both, what comes from here"
            " cannot be told from what is of there",
        )
        yield Cause(Kind.LOOP, what, evidence, "magnetar standalone --cluster ANOTHER-NAME, for one of the two")
    elif remote.twins:
        others = ", ".join(remote.twins)
        what = f"{remote.name} and {others} are the same cluster: every message would get there more than once"
        seen = (f"the addresses of all of them lead to the cluster that calls itself {remote.own_name}",)
        yield Cause(Kind.LOOP, what, seen, update)


def _address(case: Case) -> Iterator[Cause]:
    remote = case.remote
    if remote.address_error:
        what = f"cluster {remote.name} cannot be reached by what is declared of it"
        yield Cause(Kind.NO_ADDRESS, what, (remote.address_error,), case.readdressed())


def _paused(case: Case) -> Iterator[Cause]:
    if case.facts.declared.policy.paused:
        repair = case.here("replication", "resume", case.topic, "--to", case.remote.name)
        yield Cause(Kind.PAUSED, f"the way to {case.remote.name} is paused", (), repair)


def _pipeline(case: Case) -> Iterator[Cause]:
    statuses = case.facts.statuses
    silent = next((one for one in statuses if one.state is State.STOPPED and not one.has_heartbeat), None)
    start = f"magnetar pipelines --url {shlex.quote(case.source.url)}"
    if silent is not None:
        evidence = [silent.reason]
        enabled = case.source.settings.get("pipelinesEnabled")
        if enabled is not None:
            evidence.append(f"pipelinesEnabled={enabled} at {case.source.url}")
        yield Cause(Kind.NOT_RUNNING, "no pipelines process copies from this cluster", tuple(evidence), start)
        return
    waiting = next((status for status in statuses if status.state is State.STARTING), None)
    if waiting is not None:
        what = "the pipelines process has not started to copy the topic; if that lasts, start another one"
        yield Cause(Kind.NOT_STARTED, what, (waiting.reason,), start)


def _positions(case: Case) -> Iterator[Cause]:
    facts = case.facts
    if facts.parts_missing:
        evidence = (f"there is no {', '.join(facts.parts_missing[:5])}",)
        repair = case.here("topics", "create-missed-partitions", case.topic)
        yield Cause(Kind.PARTITION_MISSING, "partitions of the topic do not exist", evidence, repair)
    if facts.cursors_missing:
        name = subscription_of(case.remote.name)
        what = f"the subscription {name}, which keeps the position, is missing"
        evidence = (f"on {', '.join(facts.cursors_missing[:5])}",)
        yield Cause(Kind.SUBSCRIPTION_MISSING, what, evidence, case.here("topics", "unload", case.topic))


def _security(case: Case) -> Iterator[Cause]:
    """Files that cannot be read here may be there where the pipeline runs: then it has no trouble with them."""
    remote = case.remote
    if not remote.security_error or not case.facts.is_stuck:
        return
    if any(word in remote.security_error for word in _CERTIFICATE_WORDS):
        what = f"certificates that are declared for cluster {remote.name} cannot be used"
        yield Cause(Kind.TLS, what, (remote.security_error,), _trusting(case))
    else:
        what = f"the credentials that are declared for cluster {remote.name} cannot be used"
        yield Cause(Kind.AUTHENTICATION, what, (remote.security_error,), _with_token(case))


def _reaching(case: Case) -> Iterator[Cause]:
    remote = case.remote
    if remote.tls_error:
        what = f"cluster {remote.name} and we do not agree on TLS"
        yield Cause(Kind.TLS, what, (remote.tls_error,), _encrypted(case))
    errors = tuple(error for error in (remote.binary_error, remote.http_error) if error)
    if errors:
        what = f"cluster {remote.name} does not answer: start it, or correct its address"
        yield Cause(Kind.UNREACHABLE, what, errors, case.readdressed())
    if remote.authentication_error:
        what = f"cluster {remote.name} does not accept who we say we are"
        if remote.token_file:
            what += f"; a new token in {remote.token_file} is read by itself"
        yield Cause(Kind.AUTHENTICATION, what, (remote.authentication_error,), _with_token(case))


def _encrypted(case: Case) -> str:
    from magnetar.security.tls import Fault  # which takes a while to load, and most commands do without

    match case.remote.tls_fault:
        case Fault.OTHER_HOST | Fault.NOT_TLS:
            return case.readdressed()
        case Fault.CERTIFICATE_WANTED:
            words = ("--auth-plugin", "AuthenticationTls", "--auth-parameters", "tlsCertFile:PATH,tlsKeyFile:PATH")
            return case.here("clusters", "update", case.remote.name, *words)
    return _trusting(case)


def _trusting(case: Case) -> str:
    return case.here("clusters", "update", case.remote.name, "--tls-trust-certs-filepath", "PATH-OF-AUTHORITIES")


def _with_token(case: Case) -> str:
    words = ("--auth-plugin", "AuthenticationToken", "--auth-parameters", "file:///PATH-OF-TOKEN")
    return case.here("clusters", "update", case.remote.name, *words)


def _places(case: Case) -> Iterator[Cause]:
    facts, remote = case.facts, case.remote.name
    if facts.missing_tenant:
        repair = case.there("tenants", "create", facts.missing_tenant)
        yield Cause(Kind.TENANT_MISSING, f"cluster {remote} has no tenant {facts.missing_tenant}", (), repair)
    if facts.missing_namespace:
        repair = case.there("namespaces", "create", facts.missing_namespace)
        yield Cause(Kind.NAMESPACE_MISSING, f"cluster {remote} has no namespace {facts.missing_namespace}", (), repair)


def _shapes(case: Case) -> Iterator[Cause]:
    facts, decision = case.facts, case.facts.decision
    if decision is None or facts.missing_tenant or facts.missing_namespace:
        return
    local = facts.declared.partitions
    if facts.remote_partitions is None:
        if decision.state is State.RUNNING and not facts.is_stuck:
            return  # it is being made
        words = ("create-partitioned-topic", facts.target, "-p", str(local)) if local else ("create", facts.target)
        repair = case.there("topics", *words, token=_ADMINISTRATOR if _lacks_permission(case) else None)
        reason = decision.reason or "it has not been made, although createTopicToRemoteClusterForReplication is true"
        yield Cause(Kind.TOPIC_MISSING, f"{facts.target} is missing in {case.remote.name}", (reason,), repair)
    elif decision.state is State.MISMATCH:
        what = f"{facts.target} has another shape in {case.remote.name}"
        yield Cause(Kind.SHAPES_DIFFER, what, (decision.reason,), _reshaped(case, local, facts.remote_partitions))


def _lacks_permission(case: Case) -> bool:
    """Whether the declared token is not enough, as the pipeline found out."""
    status = case.facts.worst
    return bool(case.remote.token) and status is not None and "authorized" in status.reason.lower()


def _reshaped(case: Case, local: int, remote: int) -> str:
    """Partitions can be added and never taken away; and a topic without does not get any."""
    if not (local and remote):
        template = "{tenant}/{namespace}/{topic}-" + case.source.cluster
        return case.here("replication", "set-route", case.topic, "--to", case.remote.name, "--rename", template)
    if remote < local:
        return case.there("topics", "update-partitioned-topic", case.facts.target, "-p", str(local))
    return case.here("topics", "update-partitioned-topic", case.topic, "-p", str(remote))


def _deduplication(case: Case) -> Iterator[Cause]:
    if case.facts.deduplicates is False:
        namespace = TopicName.parse(case.facts.target).namespace_full
        what = f"{case.remote.name} is no Magnetar and does not deduplicate: nothing could be copied exactly once"
        evidence = (f"deduplication of {case.facts.target} is off",)
        yield Cause(
            Kind.DEDUPLICATION_OFF, what, evidence, case.there("namespaces", "set-deduplication", namespace, "-e")
        )


def _troubles(case: Case) -> Iterator[Cause]:
    facts = case.facts
    for kind in Trouble:
        told = [(topic, text) for topic, (trouble, text) in facts.troubles.items() if trouble is kind]
        if told:
            yield _of_trouble(case, kind, told[0][0], tuple(f"{topic}: {text}" for topic, text in told[:5]))


def _of_trouble(case: Case, kind: Trouble, topic: str, evidence: tuple[str, ...]) -> Cause:
    name = TopicName.parse(topic)
    whole = name.base.full
    if kind is Trouble.TERMINATED:
        delete = ("delete-partitioned-topic", whole) if name.is_partition else ("delete", whole)
        what = f"{topic} was terminated in {case.remote.name}: it takes no message any more; deleting it makes way"
        return Cause(Kind.TERMINATED, what, evidence, case.there("topics", *delete, "--force"))
    if kind is Trouble.QUOTA:
        what = f"the backlog quota of {topic} is used up in {case.remote.name}: consume there, or take the quota away"
        return Cause(Kind.QUOTA, what, evidence, case.there("namespaces", "remove-backlog-quota", name.namespace_full))
    if kind is Trouble.AUTHORIZATION:
        what = f"we may not publish to {topic} in {case.remote.name}"
        role = case.remote.role or "ROLE"
        words = ("namespaces", "grant-permission", name.namespace_full, "--role", role, "--actions", "produce")
        token = _ADMINISTRATOR if case.remote.token else None  # the declared one may not do it
        return Cause(Kind.NOT_AUTHORIZED, what, evidence, case.there(*words, token=token))
    if kind is Trouble.SCHEMA:
        return _schema_cause(case, evidence)
    return Cause(Kind.REFUSED, f"{case.remote.name} takes no producer for {topic}", evidence, _status(case))


def _schemas(case: Case) -> Iterator[Cause]:
    refusal = case.facts.schema_refusal
    if refusal and all(trouble is not Trouble.SCHEMA for trouble, _ in case.facts.troubles.values()):
        yield _schema_cause(case, (refusal,))


def _schema_cause(case: Case, evidence: tuple[str, ...]) -> Cause:
    what = f"the schema of {case.topic} is refused by {case.remote.name}"
    namespace = TopicName.parse(case.facts.target).namespace_full
    if case.facts.auto_update_is_off:
        repair = case.there("namespaces", "set-is-allow-auto-update-schema", namespace, "-e")
    else:
        words = ("namespaces", "set-schema-compatibility-strategy", namespace, "-c", "ALWAYS_COMPATIBLE")
        repair = case.there(*words)
    return Cause(Kind.SCHEMA_REFUSED, what, evidence, repair)


def _sizes(case: Case) -> Iterator[Cause]:
    waiting, limit = case.facts.waiting, case.facts.size_max
    if waiting is None or limit is None or waiting.size <= limit:
        return
    what = f"the next message of {waiting.topic} is larger than {case.remote.name} takes"
    evidence = (f"entry {waiting.position} has {waiting.size} bytes, the limit there is {limit}",)
    if case.facts.size_limit_is_of_topic:
        repair = case.there("topics", "remove-max-message-size", case.facts.target)
    else:
        repair = case.here("replication", "set-route", case.topic, "--to", case.remote.name, "--refused", "park")
    yield Cause(Kind.TOO_LARGE, what, evidence, repair)


def _reported(case: Case) -> Iterator[Cause]:
    """What the pipeline met and nobody sees from outside: told by its words, where they are known."""
    status = case.facts.worst
    if status is None or status.state is not State.REFUSED:
        return
    text = status.reason or status.last_error
    words = text.lower()
    if "schema" in words and not case.facts.schema_refusal:
        yield _schema_cause(case, (text,))
    elif case.facts.waiting is None and "exceeds" in words and "bytes" in words:
        repair = case.here("replication", "set-route", case.topic, "--to", case.remote.name, "--refused", "park")
        yield Cause(Kind.TOO_LARGE, f"a message is larger than {case.remote.name} takes", (text,), repair)


def _maps_back(case: Case) -> Iterator[Cause]:
    if case.facts.maps_back:
        what = f"{case.facts.target} is itself replicated from {case.remote.name} to here: two topics get mixed"
        repair = case.here("replication", "remove-route", case.topic, "--to", case.remote.name)
        yield Cause(Kind.LOOP, what, (case.facts.maps_back,), repair)


def _other(case: Case) -> Cause:
    status = case.facts.worst
    assert status is not None
    kind = Kind.UNREACHABLE if status.state is State.UNREACHABLE else Kind.OTHER
    kind = Kind.REFUSED if status.state is State.REFUSED else kind
    what = f"the pipeline says {status.state}, and nothing that can be seen from here explains it"
    return Cause(kind, what, (), _status(case))


def _status(case: Case) -> str:
    return case.here("replication", "status", case.topic, "--remote", case.remote.name)


_RULES: tuple[Callable[[Case], Iterator[Cause]], ...] = (
    _loops,
    _address,
    _paused,
    _pipeline,
    _positions,
    _security,
    _reaching,
    _places,
    _shapes,
    _troubles,
    _deduplication,
    _schemas,
    _sizes,
    _reported,
    _maps_back,
)

"""Questions to a remote cluster, about itself and about one topic.

It is queried directly, by REST and by the binary protocol, to distinguish it from a pipeline that does not run. Creates
and changes nothing. Draws no conclusions; `causes` does.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from magnetar.cli.doctor.facts import ProducerProblem, RemoteFacts, TopicFacts
from magnetar.cli.doctor.source import SourceCluster, identity_of, none_if_missing, or_none, parts_of, short_client
from magnetar.cli.path import topic_path
from magnetar.cli.replication.two_clusters import own_name
from magnetar.cli.replication.verified_topics import declaration_of
from magnetar.cli.replication.verify import position_of
from magnetar.cli.rest import Refused, Rest, RestError
from magnetar.client import InlineClient, MessageId, Security
from magnetar.client.connection.address import parse_service_url
from magnetar.client.errors import (
    ClientError,
    IncompatibleSchema,
    InvalidArgument,
    NamespaceNotFound,
    NotAuthenticated,
    NotAuthorized,
    NotFound,
    NotSupported,
    QuotaExceeded,
    TopicTerminated,
    WrongPort,
)
from magnetar.names import TopicName
from magnetar.replication.cluster import ClusterEndpoint, endpoint_of
from magnetar.replication.model import ClusterAddress, DeclaredRoute, Problem, Status
from magnetar.replication.partitions import decide_remote
from magnetar.replication.topic_template import remote_topic
from magnetar.security.tls import Fault, check_settings, fault_of
from magnetar.security.token import subject_of

_NOT_FOUND, _NOT_AUTHENTICATED = 404, 401
_OURS = "Magnetar"
_ANY_TOPIC = "persistent://public/default/magnetar-doctor"
_LOOKED_UP = ("persistent", "public", "default", "magnetar-doctor")
_OPEN_S = 1.0
_PATH_OF_TOKEN = "file:///PATH-OF-TOKEN"

_PROBLEMS: tuple[tuple[type[ClientError], ProducerProblem], ...] = (
    (TopicTerminated, ProducerProblem.TERMINATED),
    (QuotaExceeded, ProducerProblem.QUOTA),
    (NotAuthorized, ProducerProblem.AUTHORIZATION),
    (ClientError, ProducerProblem.OTHER),
)


class _Reachability(NamedTuple):
    """Why a cluster cannot be reached, or rejects the credentials; all empty if neither."""

    error: str = ""
    refusal: str = ""
    tls_error: str = ""
    tls_fault: Fault | None = None
    wrong_port: str = ""


class Remote:
    """A remote cluster. `facts` are collected once; `topic` collects those of a topic."""

    def __init__(self, name: str, address: ClusterAddress | None, source: SourceCluster) -> None:
        self.name = name
        self._source = source
        self._rest: Rest | None = None
        self._client: InlineClient | None = None
        self._by_rest: InlineClient | None = None
        self.identity = ""
        self._existing: dict[str, bool] = {}
        self._is_blind = address is not None and address.has_hidden_credentials
        self.facts = self._query(address)

    # -- the cluster

    def _query(self, address: ClusterAddress | None) -> RemoteFacts:
        try:
            found = None if address is None else endpoint_of(self.name, address)
            if found is not None:
                _check(found)
        except (InvalidArgument, NotSupported) as error:
            return RemoteFacts(self.name, security_error=error.text)
        if found is None:
            return RemoteFacts(self.name, address_error=f"no address of {self.name} is declared")
        by_http = self._query_http(found)
        by_binary, version = self._query_binary(found)
        name = None
        rest = self._rest
        if rest is not None and by_http == _Reachability():
            name = or_none(lambda: own_name(rest))
            declaration = or_none(lambda: declaration_of(rest))
            self.identity = "" if declaration is None else identity_of(declaration)
        return RemoteFacts(
            self.name,
            found.admin_url,
            found.service_url,
            **_credentials(found.security, address),
            tls_error=by_binary.tls_error or by_http.tls_error,
            tls_fault=by_binary.tls_fault or by_http.tls_fault,
            http_error=by_http.error,
            binary_error=by_binary.error,
            authentication_error="" if self._is_blind else by_binary.refusal or by_http.refusal,
            is_blind=self._is_blind,
            own_name=name,
            is_source=bool(self.identity) and self.identity == identity_of(self._source.declaration),
            is_ours=None if version is None else version.startswith(_OURS),
            wrong_port=by_binary.wrong_port,
            right_addresses=self._right_addresses(found, by_http) if by_binary.wrong_port else None,
        )

    def _right_addresses(self, found: ClusterEndpoint, by_http: _Reachability) -> tuple[str, str] | None:
        """Of a cluster whose binary address is an HTTP port: that port replies with the binary one."""
        is_reached = found.admin_url and by_http == _Reachability()
        http_url = found.admin_url if is_reached else f"http://{urlsplit(found.service_url).netloc}"
        assert http_url is not None
        with contextlib.closing(Rest(http_url, found.security)) as rest:
            looked_up = or_none(lambda: rest.lookup(*_LOOKED_UP))
        service_url = looked_up.get("brokerUrl") if isinstance(looked_up, dict) else None
        return (http_url, str(service_url)) if service_url else None

    def _query_http(self, found: ClusterEndpoint) -> _Reachability:
        if found.admin_url is None:
            return _Reachability()
        self._rest = Rest(found.admin_url, found.security)
        try:
            self._rest.get("clusters")
        except Refused as error:
            return _Reachability(refusal=f"{found.admin_url}: {error}" if error.status == _NOT_AUTHENTICATED else "")
        except RestError as error:
            return _unreached(error, str(error))
        return _Reachability()

    def _query_binary(self, found: ClusterEndpoint) -> tuple[_Reachability, str | None]:
        """With the version that the broker reports."""
        self._client = short_client(found.service_url, found.security)
        try:
            return _Reachability(), self._client.run(self._client.client.server_version(_ANY_TOPIC))
        except NotAuthenticated as error:
            return _Reachability(refusal=f"{found.service_url}: {error.text}"), None
        except (NotFound, NotAuthorized):
            return _Reachability(), None
        except ClientError as error:
            return _unreached(error, f"{found.service_url}: {error.text}"), None

    # -- one topic

    def nothing(self) -> TopicFacts:
        """The facts of a healthy topic, to find causes in the cluster alone."""
        declared = self._source.declaration.topics
        own = {one.topic for one in declared if one.remote == self.name}
        others = {one.remote for one in declared if one.topic in own} - {self.name}
        return TopicFacts(DeclaredRoute("-", 0, self.name), "-", [], other_remotes=tuple(sorted(others)))

    def topic(self, declared: DeclaredRoute, statuses: list[Status]) -> TopicFacts:
        target = remote_topic(declared.topic, declared.policy.rename)
        facts = TopicFacts(declared, target, statuses, other_remotes=self._other_remotes(declared.topic))
        if any(status.problem is Problem.FILTER for status in statuses):
            facts.conditions = self._source.conditions(declared.topic, self.name)
        marks = self._query_source(facts)
        if self.facts.is_reached and not self.facts.is_source:
            self._query_names(facts)
            if not (facts.missing_tenant or facts.missing_namespace):
                self._query_partitions(facts)
                self._query_producers(facts)
                self._query_next(facts, marks)
        return facts

    def _other_remotes(self, topic: str) -> tuple[str, ...]:
        declared = self._source.declaration.topics
        return tuple(one.remote for one in declared if one.topic == topic and one.remote != self.name)

    def _query_source(self, facts: TopicFacts) -> dict[str, MessageId]:
        """The position of replication in each partition."""
        marks: dict[str, MessageId] = {}
        for part in parts_of(facts.declared.topic, facts.declared.partitions):
            stats = self._source.internal_stats(part)
            if stats is None:
                facts.parts_missing.append(part)
                continue
            subscription, mark = position_of(stats, self.name)
            if subscription is None:
                facts.cursors_missing.append(part)
            elif mark is not None:
                marks[part] = MessageId(*mark)
        return marks

    def _query_names(self, facts: TopicFacts) -> None:
        name = TopicName.parse(facts.target)
        if self._rest is None:
            return
        if not self._exists("namespaces", name.tenant):
            facts.missing_tenant = name.tenant
        if not self._exists("namespaces", name.tenant, name.namespace):
            facts.missing_namespace = name.namespace_full

    def _exists(self, *segments: str) -> bool:
        """True if the cluster denies access."""
        key = "/".join(segments)
        if key not in self._existing:
            assert self._rest is not None
            try:
                self._rest.get(*segments)
                self._existing[key] = True
            except Refused as error:
                self._existing[key] = error.status != _NOT_FOUND
        return self._existing[key]

    def _query_partitions(self, facts: TopicFacts) -> None:
        declaration, declared = self._source.declaration, facts.declared
        try:
            facts.remote_partitions = self._partition_count(facts.target)
        except NamespaceNotFound:
            facts.missing_namespace = TopicName.parse(facts.target).namespace_full
            return
        except NotSupported:  # no HTTP address either
            return
        except ClientError as error:
            self._note_problem(facts, facts.target, error)
            return
        facts.decision = decide_remote(
            declared.partitions,
            facts.remote_partitions,
            creates=declaration.creates_topics,
            mismatch=declaration.mismatch,
            grown_from=declared.grown_from,
        )

    def _partition_count(self, topic: str) -> int | None:
        assert self._client is not None
        try:
            return self._client.run(self._client.client.partition_count(topic))
        except NotSupported:  # before PIP-344 only REST reports it without creating the topic
            by_rest = self._by_rest_client
            if by_rest is None:
                raise
            return by_rest.run(by_rest.client.partition_count(topic))

    def _query_producers(self, facts: TopicFacts) -> None:
        """Opening a producer shows whether publishing would work; nothing is published."""
        assert self._client is not None
        if facts.remote_partitions is None:
            return
        client, name = self._client, TopicName.parse(facts.target)
        both = min(facts.remote_partitions, facts.declared.partitions)
        if bool(facts.remote_partitions) != bool(facts.declared.partitions):
            return
        for part in parts_of(name.full, both):
            try:
                opening = client.client.entry_producer(part, open_timeout_s=_OPEN_S)
                producer = client.run(opening)
                facts.size_max = producer.message_size_max
                client.run(producer.close())
            except IncompatibleSchema as error:
                if self._source_schema(facts.declared.topic) is None:
                    facts.producer_problems[part] = (ProducerProblem.SCHEMA, error.text)
            except ClientError as error:
                self._note_problem(facts, part, error)
        self._query_size(facts, name)
        by_rest = self._by_rest_client
        if self.facts.is_ours is False and by_rest is not None:
            facts.deduplicates = or_none(lambda: by_rest.run(by_rest.client.deduplicates(facts.target)))

    def _note_problem(self, facts: TopicFacts, topic: str, error: ClientError) -> None:
        if self._is_blind and isinstance(error, NotAuthenticated | NotAuthorized):
            return  # the pipeline has credentials, and reports what it meets
        facts.producer_problems[topic] = _problem(error)

    def _query_size(self, facts: TopicFacts, name: TopicName) -> None:
        """The limit of the topic may be lower than that of the broker."""
        if self._rest is None:
            return
        rest = self._rest
        limit = or_none(lambda: rest.get(*topic_path(name, "maxMessageSize"), query={"applied": True}))
        if isinstance(limit, int) and 0 < limit < (facts.size_max or limit + 1):
            facts.size_max, facts.size_limit_is_of_topic = limit, True

    def _query_next(self, facts: TopicFacts, marks: dict[str, MessageId]) -> None:
        """The entry at which the topic is stuck: its size, and whether its schema would be accepted."""
        stuck = [one for one in facts.statuses if one.backlog and not one.state.is_copying and one.topic in marks]
        for status in stuck:
            found = self._source.next_entry(status.topic, marks[status.topic], self.name)
            if found is None:
                continue
            facts.next_entry, version = found
            if version:
                self._query_schema(facts, int.from_bytes(version, "big"))
            if facts.schema_refusal or (facts.size_max is not None and facts.next_entry.size > facts.size_max):
                return

    def _query_schema(self, facts: TopicFacts, version: int) -> None:
        rest, name = self._rest, TopicName.parse(facts.target)
        schema = self._source_schema(facts.declared.topic, str(version))
        if rest is None or schema is None:
            return
        body = {
            "type": schema.get("type"),
            "schema": schema.get("data") or "",
            "properties": schema.get("properties") or {},
        }
        path = ("schemas", name.tenant, name.namespace, name.local)
        found = or_none(lambda: rest.post(*path, "version", body=body))
        if isinstance(found, dict) and found.get("version", -1) >= 0:
            return
        verdict = or_none(lambda: rest.post(*path, "compatibility", body=body))
        if not isinstance(verdict, dict):
            return
        strategy = verdict.get("schemaCompatibilityStrategy")
        what = f"version {version} ({schema.get('type')}) of {facts.declared.topic}"
        if not verdict.get("compatibility", verdict.get("isCompatibility", True)):
            reason = f": {verdict['reason']}" if verdict.get("reason") else ""
            facts.schema_refusal = f"{what} is not compatible with the remote schema, by {strategy}{reason}"
            return
        namespace = ("namespaces", name.tenant, name.namespace, "isAllowAutoUpdateSchema")
        has_schema = or_none(lambda: rest.get(*path, "schema")) is not None
        if has_schema and or_none(lambda: rest.get(*namespace)) is False:
            facts.auto_update_is_off = True
            facts.schema_refusal = f"{what} does not exist there, and clients may not add versions"

    def _source_schema(self, topic: str, version: str | None = None) -> dict[str, Any] | None:
        name = TopicName.parse(topic)
        path = ("schemas", name.tenant, name.namespace, name.local, "schema", *((version,) if version else ()))
        return none_if_missing(lambda: self._source.rest.get(*path))

    @property
    def _by_rest_client(self) -> InlineClient | None:
        if self._by_rest is None and self.facts.service_url and self.facts.http_url and self._rest is not None:
            self._by_rest = short_client(self.facts.service_url, self._rest.security, self.facts.http_url)
        return self._by_rest

    def close(self) -> None:
        for client in (self._client, self._by_rest):
            if client is not None:
                client.close()
        if self._rest is not None:
            self._rest.close()


def _problem(error: ClientError) -> tuple[ProducerProblem, str]:
    return next(kind for type_, kind in _PROBLEMS if isinstance(error, type_)), error.text


def _check(found: ClusterEndpoint) -> None:
    """Raises `InvalidArgument` for unusable files of tokens and certificates."""
    if found.security is not None:
        urls = [url for url in (found.service_url, found.admin_url) if url]
        check_settings(found.security, *map(parse_service_url, urls))


def _unreached(error: Exception, text: str) -> _Reachability:
    if isinstance(error, WrongPort):
        return _Reachability(error=text, wrong_port=text)
    fault = fault_of(error)
    return _Reachability(error=text) if fault is None else _Reachability(tls_error=text, tls_fault=fault)


def _credentials(security: Security | None, address: ClusterAddress | None) -> dict[str, Any]:
    """The credentials as options of commands, without secrets."""
    if address is not None and address.has_hidden_credentials:
        return {
            "trust_certs": address.broker_client_trust_certs_file_path,
            "token": _PATH_OF_TOKEN,
            "role": address.role,
        }
    if security is None:
        return {}
    file = "" if security.token_file is None else os.fspath(security.token_file)
    token = f"file://{file}" if file else _PATH_OF_TOKEN if security.token else ""
    return {
        "trust_certs": "" if security.trust_certs_file is None else os.fspath(security.trust_certs_file),
        "token": token,
        "token_file": file,
        "role": security.username or subject_of(security.read_token()) or "",
    }

"""What is to be replicated, as it changes: asked of a broker that declares it, or made of a list of topics.

Two sources with one small interface. Owns how a declaration is waited for and how a broker that is away is asked again;
and where reports go. Knows nothing of copying.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from magnetar.client import Client, Security
from magnetar.client.connection.http import HttpTransport, check_status
from magnetar.client.connection.retry import Backoff
from magnetar.client.errors import ClientError
from magnetar.errors import MagnetarError
from magnetar.names import TopicName, parse_namespace
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.replication.model import (
    AS_IT_IS,
    FOREIGN_SUBSCRIPTION_PREFIX,
    SUBSCRIPTION_PREFIX,
    ClusterAddress,
    Declaration,
    DeclaredRoute,
    Mismatch,
    Reports,
    RoutePolicy,
)

log = logging.getLogger(__name__)

_POLL_S = 30.0
_ANSWER_S = 10.0
_PAUSE_FIRST_S = 0.2
_PAUSE_LAST_S = 2.0
_REFRESH_S = 3.0
_HTTP_OK = 200

OnDeclared = Callable[[Declaration], None]


class SourceFailed(MagnetarError):
    """The source cannot be used at all, as opposed to one that is away for a while."""


class Source(Protocol):
    """A cluster whose topics are copied."""

    endpoint: ClusterEndpoint
    subscription_prefix: str

    def follow(self, on_declared: OnDeclared) -> None:
        """Calls it, in a thread, with the declaration and again after every change, until `stop`."""
        ...

    def report(self, reports: Reports) -> bool:
        """False if they did not arrive."""
        ...

    def stop(self) -> None: ...


class DeclaringSource:
    """A broker of ours, which says itself what is to be replicated, and shows how it stands with that."""

    subscription_prefix = SUBSCRIPTION_PREFIX

    def __init__(self, http_url: str, *, service_url: str | None = None, security: Security | None = None) -> None:
        self._http_url = http_url.rstrip("/")
        self._security = security
        self._http = HttpTransport([self._http_url], security, _ANSWER_S)
        self._stopped = threading.Event()
        self._is_away = False
        self.endpoint = ClusterEndpoint("", service_url or self._service_url(), self._http_url, security)

    def _service_url(self) -> str:
        """The binary address of the broker, as a lookup names it."""
        try:
            response = self._http.request("GET", "/lookup/v2/topic/persistent/public/default/pipelines", "lookup")
            check_status(response, "lookup")
            found = response.json()
        except (ClientError, ValueError) as error:
            raise SourceFailed(f"{self._http_url} does not say where its binary port is: {error}") from error
        url = found.get("brokerUrlTls" if self._http_url.startswith("https:") else "brokerUrl")
        if not url:
            raise SourceFailed(f"{self._http_url} names no binary address: give it with --service-url")
        return str(url)

    def follow(self, on_declared: OnDeclared) -> None:
        threading.Thread(target=self._follow, args=(on_declared,), name="declaration", daemon=True).start()

    def _follow(self, on_declared: OnDeclared) -> None:
        """With a client of its own: nobody else could close it while it waits."""
        with HttpTransport([self._http_url], self._security, _POLL_S + _ANSWER_S) as http:
            self._ask_on(http, on_declared)

    def _ask_on(self, http: HttpTransport, on_declared: OnDeclared) -> None:
        version = ""
        backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_LAST_S)
        while not self._stopped.is_set():
            try:
                declaration = _ask(http, version)
            except (ClientError, msgspec.DecodeError) as error:
                self._note_away(error)
                self._stopped.wait(backoff.next_s())
                continue
            if self._stopped.is_set():
                return
            backoff.reset()
            self._note_back()
            if declaration is not None and declaration.version != version:
                version = declaration.version
                self.endpoint = msgspec.structs.replace(self.endpoint, name=declaration.cluster)
                on_declared(declaration)

    def _note_away(self, error: Exception) -> None:
        if not self._is_away and not self._stopped.is_set():
            self._is_away = True
            log.warning("%s does not say what to replicate: %s", self._http_url, error)

    def _note_back(self) -> None:
        if self._is_away:
            self._is_away = False
            log.info("%s is back", self._http_url)

    def report(self, reports: Reports) -> bool:
        body = msgspec.json.encode(reports)
        what = "reporting replication"
        try:
            check_status(self._http.request("PUT", "/admin/v2/replication/reports", what, body=body), what)
        except ClientError as error:
            log.debug("reports did not reach %s: %s", self._http_url, error)
            return False
        return True

    def stop(self) -> None:
        """What waits for a declaration ends by itself: its thread does not keep the process."""
        self._stopped.set()
        self._http.close()


def _ask(http: HttpTransport, version: str) -> Declaration | None:
    """None: it is what it was."""
    query = {"after": version, "timeoutMs": str(round(_POLL_S * 1000))} if version else {}
    what = "the replication declaration"
    response = http.request("GET", "/admin/v2/replication/declaration", what, query=query)
    check_status(response, what)
    return msgspec.json.decode(response.content, type=Declaration) if response.status_code == _HTTP_OK else None


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What is copied of a source that declares nothing: `tenant/namespace` is all that is in it, all else a topic."""

    words: tuple[str, ...]
    remotes: dict[str, ClusterAddress]
    policy: RoutePolicy = AS_IT_IS
    creates_topics: bool = True
    mismatch: Mismatch = Mismatch.PIP370

    def __post_init__(self) -> None:
        """Raises `InvalidName`."""
        for namespace in self.namespaces:
            parse_namespace(namespace)
        _ = self.topics

    @property
    def namespaces(self) -> list[str]:
        return [word for word in self.words if "://" not in word and word.count("/") == 1]

    @property
    def topics(self) -> list[str]:
        namespaces = self.namespaces
        return [TopicName.parse(word).base.full for word in self.words if word not in namespaces]


class ListedSource:
    """Any cluster, Apache Pulsar in the first place: the topics are named, and their partitions asked for."""

    subscription_prefix = FOREIGN_SUBSCRIPTION_PREFIX

    def __init__(self, endpoint: ClusterEndpoint, selection: Selection) -> None:
        self.endpoint = endpoint
        self._selection = selection
        self._stopped = threading.Event()

    def follow(self, on_declared: OnDeclared) -> None:
        """Raises `ClientError` if the source could never be asked."""
        client = Client(self.endpoint.service_url, admin_url=self.endpoint.admin_url, security=self.endpoint.security)
        threading.Thread(target=self._follow, args=(client, on_declared), name="topics", daemon=True).start()

    def _follow(self, client: Client, on_declared: OnDeclared) -> None:
        known: dict[str, int] = {}
        grown_from: dict[str, int] = {}
        told = ""
        with client:
            while not self._stopped.is_set():
                try:
                    found = self._found(client)
                except ClientError as error:
                    if told != str(error):
                        log.warning("the topics of %s cannot be asked for: %s", self.endpoint.name, error)
                    told = str(error)
                else:
                    told = ""
                    grown_from = {
                        topic: known[topic] for topic in found if 0 < known.get(topic, 0) < found[topic]
                    } | grown_from
                    if found != known or not known:
                        on_declared(self._declaration(found, grown_from))
                    known = found
                self._stopped.wait(_REFRESH_S)

    def _found(self, client: Client) -> dict[str, int]:
        """Partitions by topic, of those that there are."""
        names = set(self._selection.topics)
        for namespace in self._selection.namespaces:
            names.update(TopicName.parse(name).base.full for name in client.topics(namespace))
        counts = {name: client.partition_count(name) for name in sorted(names) if name.startswith("persistent:")}
        return {name: count for name, count in counts.items() if count is not None}

    def _declaration(self, found: dict[str, int], grown_from: dict[str, int]) -> Declaration:
        selection = self._selection
        topics = [
            DeclaredRoute(name, partitions, remote, selection.policy, grown_from.get(name, 0))
            for name, partitions in found.items()
            for remote in selection.remotes
        ]
        return Declaration(
            version=str(hash(tuple(sorted(found.items())))),
            cluster=self.endpoint.name,
            creates_topics=selection.creates_topics,
            mismatch=selection.mismatch,
            clusters=selection.remotes,
            topics=topics,
        )

    def report(self, reports: Reports) -> bool:
        """There is nobody to tell: the log has it."""
        return True

    def stop(self) -> None:
        self._stopped.set()

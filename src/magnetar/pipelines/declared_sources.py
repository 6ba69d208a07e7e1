"""Declared sources: the records that a cluster wants a verb to work on, and where their reported state goes.

Owns the requests to a broker, and the retries while it is away. The verb names the type of its declaration.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from magnetar.client import Security
from magnetar.client.connection.http import HttpTransport, check_status
from magnetar.client.connection.retry import Backoff
from magnetar.client.errors import ClientError
from magnetar.errors import MagnetarError
from magnetar.pipelines.handed import Handed
from magnetar.replication.cluster import ClusterEndpoint

log = logging.getLogger(__name__)

_POLL_S = 30.0
_ANSWER_S = 10.0
_PAUSE_FIRST_S = 0.2
_PAUSE_LAST_S = 2.0
_HTTP_OK = 200


class Declared(Protocol):
    """A declaration. `version` differs after every change; `cluster` is the name of the cluster that declares."""

    @property
    def version(self) -> str: ...

    @property
    def cluster(self) -> str: ...


D = TypeVar("D", bound=Declared)
D_co = TypeVar("D_co", bound=Declared, covariant=True)


class SourceFailed(MagnetarError):
    """The source cannot be used at all, as opposed to one that is away for a while."""


class Source(Protocol[D_co]):
    """A cluster whose declared records a verb works on."""

    endpoint: ClusterEndpoint
    """For workers, with a token that is valid now."""

    @property
    def security(self) -> Security | None:
        """For clients of this process, which may live longer than a token."""
        ...

    def follow(self, on_declared: Callable[[D_co], None], process: str = "") -> None:
        """Calls it in a thread with the declaration, and again after every change, until `stop`. The source knows by
        the end of this connection that the process with this id is gone."""
        ...

    def report(self, reports: msgspec.Struct) -> bool:
        """False if they did not arrive."""
        ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class DeclaringBroker:
    """The broker that declares, as the command line names it. Its binary address is looked up if it is not given."""

    http_url: str
    service_url: str | None = None
    security: Security | None = None
    handed: Handed | None = None


class BrokerSource(Generic[D]):
    """One kind of declaration of a Magnetar broker, at `/admin/v2/{path}/declaration`; reports go to `…/reports`."""

    def __init__(self, broker: DeclaringBroker, path: str, declaration: type[D]) -> None:
        self._http_url = broker.http_url.rstrip("/")
        self.security = broker.security
        self._handed = broker.handed
        self._path = path
        self._type = declaration
        self._http = HttpTransport([self._http_url], broker.security, _ANSWER_S)
        self._stopped = threading.Event()
        self._is_away = False
        self._process = ""
        service_url = broker.service_url or self._service_url()
        self.endpoint = ClusterEndpoint("", service_url, self._http_url, broker.security)

    def _service_url(self) -> str:
        """The broker's binary address, by a lookup."""
        try:
            response = self._http.request("GET", "/lookup/v2/topic/persistent/public/default/pipelines", "lookup")
            check_status(response, "lookup")
            found = response.json()
        except (ClientError, ValueError) as error:
            raise SourceFailed(f"the lookup of the binary address at {self._http_url} failed: {error}") from error
        url = found.get("brokerUrlTls" if self._http_url.startswith("https:") else "brokerUrl")
        if not url:
            raise SourceFailed(f"the lookup at {self._http_url} returns no binary address: set --service-url")
        return str(url)

    def follow(self, on_declared: Callable[[D], None], process: str = "") -> None:
        self._process = process
        threading.Thread(target=self._follow, args=(on_declared,), name="declaration", daemon=True).start()

    def _follow(self, on_declared: Callable[[D], None]) -> None:
        """With its own client, so that `stop` does not close it during a request."""
        with HttpTransport([self._http_url], self.security, _POLL_S + _ANSWER_S) as http:
            self._poll(http, on_declared)

    def _poll(self, http: HttpTransport, on_declared: Callable[[D], None]) -> None:
        version = ""
        backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_LAST_S)
        while not self._stopped.is_set():
            try:
                declaration = self._request(http, version)
                if declaration is not None and declaration.version != version:
                    declaration = self.completed(declaration)
                    self.endpoint = self._endpoint_now(declaration.cluster)
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
                on_declared(declaration)

    def completed(self, declaration: D) -> D:
        """With what no request may show. Raises `ClientError`."""
        return declaration

    def _endpoint_now(self, name: str) -> ClusterEndpoint:
        security = self.security
        if security is not None and self._handed is not None:
            security = msgspec.structs.replace(security, token_supplier=None, token=self._handed.token())
        return msgspec.structs.replace(self.endpoint, name=name, security=security)

    def _request(self, http: HttpTransport, version: str) -> D | None:
        """None if it did not change within the time of a long poll."""
        query = {"after": version, "timeoutMs": str(round(_POLL_S * 1000))} if version else {}
        if self._process:
            query["pipeline"] = self._process
        what = f"the {self._path} declaration"
        response = http.request("GET", f"/admin/v2/{self._path}/declaration", what, query=query)
        check_status(response, what)
        return msgspec.json.decode(response.content, type=self._type) if response.status_code == _HTTP_OK else None

    def _note_away(self, error: Exception) -> None:
        if not self._is_away and not self._stopped.is_set():
            self._is_away = True
            log.warning("the %s declaration of %s cannot be read: %s", self._path, self._http_url, error)

    def _note_back(self) -> None:
        if self._is_away:
            self._is_away = False
            log.info("%s is back", self._http_url)

    def report(self, reports: msgspec.Struct) -> bool:
        body = msgspec.json.encode(reports)
        what = f"the {self._path} reports"
        try:
            check_status(self._http.request("PUT", f"/admin/v2/{self._path}/reports", what, body=body), what)
        except ClientError as error:
            log.debug("reports did not reach %s: %s", self._http_url, error)
            return False
        return True

    def stop(self) -> None:
        """A long poll ends by itself: its thread does not keep the process alive."""
        self._stopped.set()
        self._http.close()

"""Finding topics by HTTP, for clients whose service address is `http://`; messages travel by the binary protocol all
the same.

The REST interface says by status what the binary protocol says by code. There is no feature flag in it: an Apache
Pulsar from before PIP-344 answers that a topic which does not exist has 0 partitions, and no client can tell.
"""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec

from magnetar.client.address import ServiceUrl
from magnetar.client.errors import ConnectionLost, ServerFailure, Timeout, of_status
from magnetar.client.finding import REDIRECTS_MAX, Broker
from magnetar.names import PARTITION_MAX, TopicName

_T = TypeVar("_T")


class _Partitions(msgspec.Struct):
    partitions: int


class _Lookup(msgspec.Struct, rename="camel"):
    broker_url: str | None = None
    native_url: str | None = None


class _Reason(msgspec.Struct):
    reason: str


class HttpFinder:
    """Asks the first of the service's addresses that can be reached."""

    def __init__(self, service: ServiceUrl, timeout_s: float) -> None:
        self._service = service
        self._timeout_s = timeout_s
        self._preferred = 0
        # The environment's proxies are not asked: brokers are mostly on the same network.
        self._http = httpx.AsyncClient(
            timeout=timeout_s, follow_redirects=True, max_redirects=REDIRECTS_MAX, trust_env=False
        )

    async def partitions(self, topic: TopicName, *, create: bool) -> int:
        what = f"partitions of {topic.full}"
        body = await self._get(
            f"/admin/v2/{_path(topic)}/partitions", {"checkAllowAutoCreation": str(create).lower()}, what
        )
        partitions = _decode(body, _Partitions, what).partitions
        if not 0 <= partitions <= PARTITION_MAX:
            raise ServerFailure(f"{what}: the broker's answer {partitions} is not a number of partitions")
        return partitions

    async def broker(self, topic: TopicName) -> Broker:
        what = f"lookup of {topic.full}"
        found = _decode(await self._get(f"/lookup/v2/topic/{_path(topic)}", {}, what), _Lookup, what)
        url = found.broker_url or found.native_url
        if not url:
            raise ServerFailure(f"{what}: the answer names no broker")
        return Broker(url)

    async def close(self) -> None:
        await self._http.aclose()

    async def _get(self, path: str, query: dict[str, str], what: str) -> bytes:
        addresses = self._service.addresses
        failures: list[str] = []
        for offset in range(len(addresses)):
            index = (self._preferred + offset) % len(addresses)
            try:
                response = await self._http.get(f"http://{addresses[index]}{path}", params=query)
            except httpx.TimeoutException:
                raise Timeout(f"{what} at {addresses[index]} took longer than {self._timeout_s:g} s") from None
            except httpx.ConnectError as error:
                failures.append(f"cannot connect to {addresses[index]}: {error}")
                continue
            except httpx.HTTPError as error:
                raise ConnectionLost(f"{what} at {addresses[index]}: {error or type(error).__name__}") from error
            self._preferred = index
            return _body(response, what)
        raise ConnectionLost("; ".join(failures))


def _path(topic: TopicName) -> str:
    return "/".join(quote(part, safe="") for part in (topic.domain, topic.tenant, topic.namespace, topic.local))


def _body(response: httpx.Response, what: str) -> bytes:
    if response.status_code == httpx.codes.OK:
        return response.content
    try:
        reason = msgspec.json.decode(response.content, type=_Reason).reason
    except msgspec.DecodeError:
        reason = response.text[:200].strip() or response.reason_phrase
    raise of_status(response.status_code, f"{what}: {reason}")


def _decode(body: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise ServerFailure(f"{what}: the answer is not what the REST interface promises: {error}") from None

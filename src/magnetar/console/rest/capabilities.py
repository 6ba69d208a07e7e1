"""What the broker is and can do, found by asking it: what a cluster lacks is hidden, not broken."""

from __future__ import annotations

import msgspec

from magnetar.console.rest.admin import AdminApi
from magnetar.console.rest.errors import BrokerError, BrokerUnreachable, LoginRefused, RequestRefused, RightRefused
from magnetar.console.rest.model import FrontPageAnswer, ProbeAnswer


class Capabilities(msgspec.Struct, frozen=True):
    """`is_magnetar`: dead letters, pipelines and overviews are there. Apache Pulsar has the rest."""

    is_magnetar: bool
    cluster: str
    version: str


async def needs_login(api: AdminApi) -> bool:
    """Whether a request without a login is refused; raises `BrokerUnreachable`."""
    try:
        await api.get(list[str], "clusters")
    except LoginRefused:
        return True
    except BrokerUnreachable:
        raise
    except BrokerError:
        return False
    return False


async def capabilities_of(api: AdminApi) -> Capabilities:
    """Raises `BrokerUnreachable` and `LoginRefused`."""
    try:
        page = await api.get_outside(FrontPageAnswer, "/")
        if page.product == "Magnetar":
            return Capabilities(True, page.cluster, page.version)
    except (BrokerUnreachable, LoginRefused):
        raise
    except BrokerError:
        pass
    return Capabilities(False, await _cluster(api), await _version(api))


async def _cluster(api: AdminApi) -> str:
    try:
        found = await api.get(list[str], "clusters")
    except (RightRefused, RequestRefused):
        return ""
    return next((name for name in found if name != "global"), "")


async def _version(api: AdminApi) -> str:
    try:
        return (await api.request("GET", ("brokers", "version"))).text[:40]
    except RequestRefused:
        return ""


async def health_of(api: AdminApi, capabilities: Capabilities) -> tuple[str, str]:
    """State (`ok`, `failed` or `unknown`) and the reason."""
    try:
        if capabilities.is_magnetar:
            probe = await api.get_outside(ProbeAnswer, "/health/ready")
            return probe.status, probe.reason
        await api.request("GET", ("brokers", "health"))
    except RightRefused:
        return "unknown", "this role may not ask for it"
    except BrokerError as error:
        return "failed", str(error)
    return "ok", ""

"""The broker itself: is it well, what is it called, and the settings it runs with. There is one in its cluster."""

from __future__ import annotations

import msgspec
from starlette.responses import PlainTextResponse, Response

from magnetar.admin.http.errors import BrokerNotFound
from magnetar.admin.http.request import Call
from magnetar.admin.http.time_slice import TimeSlice
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.errors import NotAllowed
from magnetar.names import TopicName, check_entity
from magnetar.settings.settings import DYNAMIC, KINDS, SECRET, closest
from magnetar.version import __version__


class BrokerInfo(msgspec.Struct, rename="camel"):
    service_url: str
    broker_id: str


class Ownership(msgspec.Struct):
    broker_assignment: str = "shared"
    is_controlled: bool = False
    is_active: bool = True


# -- health


def health(call: Call) -> PlainTextResponse:
    """Whether the broker serves: `ok`."""
    call.choice("topicVersion", ("V2", "V1"))  # of the topic that other brokers send themselves a message through
    _check_broker(call, call.query.get("brokerId"))
    return PlainTextResponse("ok")


def ready(call: Call) -> PlainTextResponse:
    """Whether the broker has started: `ok`."""
    return PlainTextResponse("ok")


def status(call: Call) -> PlainTextResponse:
    """Whether the broker serves, for load balancers: `OK`."""
    return PlainTextResponse("OK")


def version(call: Call) -> PlainTextResponse:
    """The version of Magnetar, as plain text."""
    return PlainTextResponse(__version__)


async def check_backlog_quotas(call: Call) -> None:
    """Measures all backlogs against their quotas at once, instead of at the next round."""
    broker = call.broker
    if not broker.settings.backlogQuotaCheckEnabled:
        raise NotAllowed("backlogQuotaCheckEnabled is false on this broker")
    time_slice = TimeSlice()
    for full in list(broker.catalog.topics):
        if full in broker.catalog.topics:
            topic = broker.topic(TopicName.parse(full))
            assert isinstance(topic, PersistentTopic)
            topic.enforce_quota(broker.now_ms())
        await time_slice.checkpoint()


# -- which brokers there are


def list_brokers(call: Call) -> list[str]:
    """The address of this broker, as the caller reaches it."""
    return [call.http_address]


def list_brokers_of(call: Call) -> list[str]:
    """The same, whatever the cluster is called: there is one."""
    check_entity("cluster", call.path["cluster"])
    return list_brokers(call)


def leader(call: Call) -> BrokerInfo:
    """The leading broker: this one."""
    address = call.http_address
    return BrokerInfo(f"http://{address}", address)


def owned_namespaces(call: Call) -> dict[str, Ownership]:
    """What this broker serves: every namespace as a whole."""
    check_entity("cluster", call.path["cluster"])
    _check_broker(call, call.path["broker"])
    return {f"{namespace}/0x00000000_0xffffffff": Ownership() for namespace in sorted(call.broker.catalog.namespaces)}


def _check_broker(call: Call, broker_id: str | None) -> None:
    address = call.http_address
    if broker_id and broker_id.removeprefix("http://") != address:
        raise BrokerNotFound(f"broker {broker_id[:100]!r} not found: this one is {address}, and there is no other")


# -- settings


def dynamic_names(call: Call) -> list[str]:
    """The settings that can be changed while the broker runs."""
    return sorted(DYNAMIC)


def dynamic_values(call: Call) -> dict[str, str]:
    """The settings that were changed while the broker ran; they hold after a restart too."""
    return call.broker.dynamic_settings


def runtime_values(call: Call) -> dict[str, str]:
    """All settings with the values that are in force."""
    settings = call.broker.settings
    values = {name: kind.show(getattr(settings, name)) for name, kind in KINDS.items()}
    return {name: "(hidden)" if name in SECRET and value else value for name, value in values.items()}


def set_dynamic(call: Call) -> Response:
    """Changes a setting, at once and for later starts too."""
    call.broker.set_dynamic_setting(_dynamic_name(call, "update"), call.path["value"])
    return Response()


def remove_dynamic(call: Call) -> Response:
    """Gives a setting back the value that the broker was started with."""
    call.broker.remove_dynamic_setting(_dynamic_name(call, "delete"))
    return Response()


def _dynamic_name(call: Call, verb: str) -> str:
    name = call.path["setting"]
    if name in DYNAMIC:
        return name
    refusal = f"Can't {verb} non-dynamic configuration"
    if name in KINDS:
        raise NotAllowed(f"{refusal}: {name} is read at start only")
    meant = closest(name[:100])
    hint = f", {meant} is" if meant else ""
    raise NotAllowed(f"{refusal}: {name[:100]!r} is no setting of this broker{hint}")

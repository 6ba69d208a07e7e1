"""Is the broker well, and which brokers and clusters are there: one of each."""

from __future__ import annotations

from starlette.responses import PlainTextResponse

from magnetar.admin.call import Call
from magnetar.admin.lookup import http_address
from magnetar.errors import TopicNotFound


def health(call: Call) -> PlainTextResponse:
    return PlainTextResponse("ok")


def status(call: Call) -> PlainTextResponse:
    return PlainTextResponse("OK")


def list_clusters(call: Call) -> list[str]:
    return [call.broker.settings.clusterName]


def list_brokers(call: Call) -> list[str]:
    cluster = call.path["cluster"]
    if cluster != call.broker.settings.clusterName:
        raise TopicNotFound(f"Cluster {cluster[:100]} does not exist")
    return [http_address(call)]

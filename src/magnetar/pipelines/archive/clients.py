"""Clients of a cluster for archives: in the driver with a thread, and one per worker process. Owns the cache."""

from __future__ import annotations

import os

from magnetar.client import Client
from magnetar.client.inline import InlineClient
from magnetar.client.options import ClientOptions
from magnetar.replication.cluster import ClusterEndpoint
from magnetar.spark.client_options import SparkClientOptions
from magnetar.spark.source.topics import ClientTopics

OPERATION_S = 30.0
_CONNECT_S = 10.0
_KEPT_MAX = 8

_inline: dict[tuple[int, ClusterEndpoint], InlineClient] = {}


def client_of(endpoint: ClusterEndpoint) -> Client:
    return Client(endpoint.service_url, **_arguments(endpoint))


def topics_of(endpoint: ClusterEndpoint) -> ClientTopics:
    """The lookups of the source, with a client of their own."""
    return ClientTopics(client_of(endpoint), first_give_up_s=_CONNECT_S, give_up_s=OPERATION_S)


def worker_client(endpoint: ClusterEndpoint) -> InlineClient:
    """The client of this process; a forked process creates its own."""
    key = (os.getpid(), endpoint)
    client = _inline.get(key)
    if client is None:
        while len(_inline) >= _KEPT_MAX:  # of clusters with another address or token by now
            (pid, _), oldest = next(iter(_inline.items()))
            del _inline[next(iter(_inline))]
            if pid == os.getpid():
                oldest.close()
        client = _inline[key] = InlineClient(endpoint.service_url, **_arguments(endpoint))
    return client


def sink_client(endpoint: ClusterEndpoint) -> SparkClientOptions:
    """What the sink needs beside a client: time limits, and a key for what it knows of topics."""
    return SparkClientOptions(endpoint.service_url, endpoint.admin_url, OPERATION_S, _CONNECT_S, security=())


def _arguments(endpoint: ClusterEndpoint) -> ClientOptions:
    arguments = ClientOptions(operation_timeout_s=OPERATION_S, connect_timeout_s=_CONNECT_S)
    if endpoint.admin_url is not None and not endpoint.service_url.startswith("http"):
        arguments["admin_url"] = endpoint.admin_url
    if endpoint.security is not None:
        arguments["security"] = endpoint.security
    return arguments

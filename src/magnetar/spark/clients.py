"""Clients of Spark's processes: with an event loop thread in the driver, without one in workers.

Owns the cache of a worker's clients.
"""

from __future__ import annotations

import os

from magnetar.client import Client
from magnetar.client.inline import InlineClient
from magnetar.client.options import ClientOptions
from magnetar.security.credentials import Security
from magnetar.spark.client_options import SparkClientOptions

_inline: dict[tuple[int, SparkClientOptions], InlineClient] = {}


def blocking_client(options: SparkClientOptions) -> Client:
    """For long-lived processes: the loop thread answers broker pings while Spark is busy elsewhere."""
    return Client(options.url, **_arguments(options))


def inline_client(options: SparkClientOptions) -> InlineClient:
    """The cached client of this process for these options; a forked process creates its own."""
    key = (os.getpid(), options)
    client = _inline.get(key)
    if client is None:
        client = _inline[key] = InlineClient(options.url, **_arguments(options))
    return client


def _arguments(options: SparkClientOptions) -> ClientOptions:
    arguments = ClientOptions(
        operation_timeout_s=options.operation_timeout_s,
        connect_timeout_s=options.connect_timeout_s,
        subscription_role_prefix=options.subscription_role_prefix,
    )
    if options.service_url is not None and options.admin_url is not None:
        arguments["admin_url"] = options.admin_url
    if options.security:
        arguments["security"] = Security.from_pulsar(dict(options.security))
    return arguments

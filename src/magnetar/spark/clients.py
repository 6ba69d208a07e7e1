"""Clients for Spark's processes: one with a thread for the driver's side, one without for workers.

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
    """For who stays: its loop runs in a thread, so that brokers are answered while Spark does something else."""
    return Client(options.url, **_arguments(options))


def inline_client(options: SparkClientOptions) -> InlineClient:
    """The one of this process for these options. A process that was forked makes its own."""
    key = (os.getpid(), options)
    client = _inline.get(key)
    if client is None:
        client = _inline[key] = InlineClient(options.url, **_arguments(options))
    return client


def forget_inline_client(options: SparkClientOptions) -> None:
    """After a failure the next one begins anew."""
    client = _inline.pop((os.getpid(), options), None)
    if client is not None:
        client.close()


def _arguments(options: SparkClientOptions) -> ClientOptions:
    arguments = ClientOptions(
        operation_timeout_s=options.operation_timeout_s, connect_timeout_s=options.connect_timeout_s
    )
    if options.service_url is not None and options.admin_url is not None:
        arguments["admin_url"] = options.admin_url
    if options.security:
        arguments["security"] = Security.from_pulsar(dict(options.security))
    return arguments

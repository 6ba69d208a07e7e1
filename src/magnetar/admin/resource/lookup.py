"""Topic lookup over HTTP, for clients with an http:// service address: every topic is on this broker."""

from __future__ import annotations

import msgspec

from magnetar.admin.http.request import Call
from magnetar.errors import TopicNotFound


class LookupData(msgspec.Struct, rename="camel", kw_only=True):
    """Clients require all fields to be present; those of ports that are off are empty."""

    broker_url: str
    broker_url_tls: str = ""
    broker_url_ssl: str = ""
    http_url: str
    http_url_tls: str = ""
    native_url: str


def lookup(call: Call) -> LookupData:
    """Creates nothing; a persistent topic that does not exist and cannot be auto-created is not found."""
    name, catalog = call.topic, call.broker.catalog
    catalog.check_namespace(name)
    known = catalog.exists(name) or name.base.full in catalog.partitioned
    if name.is_persistent and not known and not catalog.policies_of(name.namespace_full).auto_topic_creation.allowed:
        raise TopicNotFound(f"Topic not found {name.full}")
    own = call.own_for_listener
    return LookupData(
        broker_url=own.service_url,
        broker_url_tls=own.service_url_tls,
        broker_url_ssl=own.service_url_tls,
        http_url=own.http_url,
        http_url_tls=own.http_url_tls,
        native_url=own.service_url,
    )

"""Where a topic is: always here. For clients whose service address is http://."""

from __future__ import annotations

import msgspec

from magnetar.admin.http.request import Call
from magnetar.errors import TopicNotFound


class LookupData(msgspec.Struct, rename="camel", kw_only=True):
    """Clients insist on the TLS fields being there."""

    broker_url: str
    broker_url_tls: str = ""
    broker_url_ssl: str = ""
    http_url: str
    http_url_tls: str = ""
    native_url: str


def lookup(call: Call) -> LookupData:
    """Nothing is created by asking, but a persistent topic that cannot come to be is not found."""
    name, catalog = call.topic, call.broker.catalog
    catalog.check_namespace(name)
    known = catalog.exists(name) or name.base.full in catalog.partitioned
    if name.is_persistent and not known and not catalog.policies_of(name.namespace_full).auto_topic_creation.allowed:
        raise TopicNotFound(f"Topic not found {name.full}")
    url = call.service_url(call.host)
    return LookupData(broker_url=url, native_url=url, http_url=f"http://{call.http_address}")

"""The records that decide what a role may do, as the rules see them."""

from __future__ import annotations

from magnetar.broker.broker import Broker
from magnetar.broker.catalog.access_view import AccessView
from magnetar.broker.catalog.record import NamespaceRecord, TenantRecord
from magnetar.broker.host import ManualHost
from magnetar.clock import ManualClock
from magnetar.settings.settings import Settings
from magnetar.storage.memory import MemoryStorage

TOPIC = "persistent://acme/sales/orders"


def view_of(record: NamespaceRecord) -> AccessView:
    catalog = Broker(Settings(), MemoryStorage(), ManualClock(1_000), ManualHost()).catalog
    catalog.create_tenant("acme", TenantRecord(["boss"], ["standalone"]))
    catalog.create_namespace("acme/sales", record)
    return AccessView(catalog)


def test_records_by_name() -> None:
    view = view_of(
        NamespaceRecord(
            permissions={"app": ["produce"]},
            subscription_permissions={"s": ["app"]},
        )
    )
    assert view.admin_roles("acme") == ["boss"]
    assert view.namespace_permissions("acme/sales") == {"app": ["produce"]}
    assert view.subscription_roles("acme/sales", "s") == ["app"]


def test_what_does_not_exist_gives_nothing() -> None:
    view = view_of(NamespaceRecord())
    assert view.admin_roles("no") == ()
    assert view.namespace_permissions("acme/no") == {}
    assert view.topic_permissions("acme/no", TOPIC) == {}
    assert view.topic_permissions("acme/sales", TOPIC) == {}
    assert view.subscription_roles("acme/no", "s") == ()
    assert view.subscription_auth_mode("acme/no") == view.subscription_auth_mode("acme/sales") == ""


def test_a_partition_has_the_permissions_of_its_topic_too() -> None:
    view = view_of(NamespaceRecord(topic_permissions={TOPIC: {"app": ["produce"], "b": ["consume"]}}))
    assert view.topic_permissions("acme/sales", TOPIC + "-partition-7") == {"app": ["produce"], "b": ["consume"]}
    both = {TOPIC: {"app": ["produce"]}, TOPIC + "-partition-7": {"app": ["consume"]}}
    view = view_of(NamespaceRecord(topic_permissions=both))
    assert view.topic_permissions("acme/sales", TOPIC + "-partition-7") == {"app": ["consume", "produce"]}
    assert view.topic_permissions("acme/sales", TOPIC) == {"app": ["produce"]}

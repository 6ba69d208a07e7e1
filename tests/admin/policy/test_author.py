"""Who set a policy by which the broker publishes elsewhere is kept with it, and shown to no one."""

from __future__ import annotations

import json

import msgspec
import pytest

from magnetar.access.principal import Author
from magnetar.broker.catalog.failure_policy import DeadLetterPolicy
from magnetar.broker.catalog.record import NamespaceRecord
from magnetar.broker.subscription.subscription import Subscription
from magnetar.names import TopicName
from tests.admin.driver import Admin
from tests.admin.roles import ADMIN, ROOT, ask, guarded

TARGET = "persistent://public/n/t"
NAMESPACE = "/admin/v2/namespaces/acme/n"
SUBSCRIPTION = "/admin/v2/persistent/acme/n/t/subscription/s/deadLetterPolicy"


def policy_of(admin: Admin, path: str) -> DeadLetterPolicy | None:
    if path == SUBSCRIPTION:
        subscription = admin.broker.topic(TopicName.parse("persistent://acme/n/t")).subscriptions["s"]
        assert isinstance(subscription, Subscription)
        return subscription.record.dead_letters
    return admin.broker.catalog.namespaces["acme/n"].overrides.dead_letters


@pytest.mark.parametrize("path", [SUBSCRIPTION, f"{NAMESPACE}/deadLetterPolicy"])
def test_the_author_is_kept_and_stays_when_others_change_other_policies(path: str) -> None:
    admin = guarded()
    admin.broker.catalog.save_namespace("public/n", NamespaceRecord(permissions={ADMIN: ["produce", "consume"]}))
    admin.commit()
    body = json.dumps({"maxRedeliverCount": 1, "deadLetterTopic": TARGET}).encode()
    assert ask(admin, ADMIN, "POST", path, body).status == 204
    assert policy_of(admin, path) == DeadLetterPolicy(1, TARGET, author=Author(ADMIN))
    assert ask(admin, ROOT, "POST", f"{NAMESPACE}/messageTTL", b"60").status == 204
    assert policy_of(admin, path) == DeadLetterPolicy(1, TARGET, author=Author(ADMIN))
    assert b"author" not in ask(admin, ROOT, "GET", path).body
    assert ask(admin, ROOT, "POST", path, body).status == 204
    assert policy_of(admin, path) == DeadLetterPolicy(1, TARGET, author=Author(ROOT))


def test_without_authorization_nothing_is_known_of_an_author() -> None:
    admin = Admin()
    admin.done("POST", "/admin/v2/namespaces/public/default/deadLetterPolicy", json={"maxRedeliverCount": 1})
    kept = admin.broker.catalog.namespaces["public/default"].overrides.dead_letters
    assert kept is not None and kept.author is None
    assert b"author" not in msgspec.msgpack.encode(kept)

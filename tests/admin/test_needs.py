"""Every route asks for rights before it does or says anything, also for those that its body needs elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.access.authorization import Authorization
from magnetar.access.needs import Need
from magnetar.access.principal import INTERNAL_ROLE
from magnetar.admin import needs
from magnetar.admin.needs import Needs
from magnetar.admin.resource import namespaces, replication
from magnetar.admin.resource.permissions import Action
from magnetar.admin.routes import ROUTES, Route
from magnetar.broker.catalog.record import NamespaceRecord, TenantRecord
from tests.admin.driver import Admin
from tests.admin.roles import ADMIN, REFUSED, ROOT, STRANGER, ask, guarded, is_refused
from tests.admin.route_requests import catalog_of, kept, key, plain_path, send

OPEN = (needs.OPEN, needs.METRICS)
FOR_ANY_ROLE = (*OPEN, needs.SIGNED_IN)
FOR_SUPER_USERS = (needs.SUPER_USER, needs.READ_DECLARATION, needs.REPORT, replication.READ_STATUS)
BODIES = {"/admin/v2/replication/cursors": b'["acme/n/t"]'}

by_route = pytest.mark.parametrize("route", ROUTES, ids=key)


def permit(admin: Admin, **changes: Any) -> None:
    """Changes the record of namespace acme/n."""
    catalog = admin.broker.catalog
    catalog.save_namespace("acme/n", msgspec.structs.replace(catalog.namespaces["acme/n"], **changes))
    admin.commit()


@pytest.fixture(scope="module")
def shared() -> Admin:
    """For requests that are refused: it stays as it is."""
    return guarded()


# -- the table


def test_a_route_without_needs_does_not_import() -> None:
    with pytest.raises(TypeError, match="needs"):
        Route("GET", "/x", lambda call: None)  # type: ignore[call-arg]


def test_only_these_routes_are_open() -> None:
    found = {route.path: route.needs for route in ROUTES if route.needs in OPEN}
    assert found == {
        "/status.html": needs.OPEN,
        "/health/live": needs.OPEN,
        "/health/ready": needs.OPEN,
        "/metrics": needs.METRICS,
        "/metrics/": needs.METRICS,
    }


def test_metrics_are_open_until_a_setting_says_otherwise(shared: Admin) -> None:
    assert ask(shared, "", "GET", "/metrics/").status == 200
    admin = guarded()
    admin.broker.settings = msgspec.structs.replace(admin.broker.settings, authenticateMetricsEndpoint=True)
    assert ask(admin, "", "GET", "/metrics/").status == 401
    assert ask(admin, STRANGER, "GET", "/metrics/").status == 200


# -- every route


@by_route
def test_a_role_without_rights_is_refused_by_every_route(shared: Admin, route: Route) -> None:
    before, body = kept(shared), BODIES.get(route.path, b"{}")
    found = [ask(shared, STRANGER, route.method, plain_path(route, namespace=name), body) for name in ("n", "missing")]
    if route.needs in FOR_ANY_ROLE:
        assert not any(map(is_refused, found))
        return
    assert all(map(is_refused, found)), "and it does not learn what exists"
    reason = json.loads(found[0].body)["reason"]
    assert reason.startswith(f"role '{STRANGER}' may not do this with ")
    assert kept(shared) == before


@by_route
def test_a_client_that_shows_nothing_gets_only_what_is_open(shared: Admin, route: Route) -> None:
    response = ask(shared, "", route.method, plain_path(route), b"{}")
    assert (response.status == 401) == (route.needs not in OPEN)


@by_route
def test_the_admin_of_a_tenant_has_it_all_and_nothing_else(shared: Admin, route: Route) -> None:
    body = BODIES.get(route.path, b"{}")
    own = ask(guarded(), ADMIN, route.method, plain_path(route), body)
    assert is_refused(own) == (route.needs in FOR_SUPER_USERS)
    if "{tenant}" in route.path:
        assert is_refused(ask(shared, ADMIN, route.method, plain_path(route, tenant="public"), body))


@by_route
def test_a_super_user_is_refused_nothing(route: Route) -> None:
    assert not is_refused(ask(guarded(), ROOT, route.method, plain_path(route), BODIES.get(route.path, b"{}")))


def allowed_by(actions: tuple[str, ...], asked: Needs) -> bool:
    """Whether these actions on a namespace are enough."""
    if asked in (needs.LOOKUP, needs.LIST_TOPICS, replication.READ_CURSORS):
        return bool({*actions} & {"produce", "consume"})
    if asked in (needs.CONSUME, needs.CONSUME_ALL):
        return "consume" in actions
    return asked is needs.PRODUCE and "produce" in actions


@by_route
@pytest.mark.parametrize(
    "actions", [("produce",), ("consume",), ("functions", "sources", "sinks", "packages")], ids=str
)
def test_permissions_on_a_namespace_and_on_a_topic(route: Route, actions: tuple[str, ...]) -> None:
    if route.needs in FOR_ANY_ROLE:
        return
    body, path = BODIES.get(route.path, b"{}"), plain_path(route)
    expected = not allowed_by(actions, route.needs)
    admin = guarded()
    permit(admin, permissions={"app": [*actions]})
    assert is_refused(ask(admin, "app", route.method, path, body)) == expected
    admin = guarded()
    permit(admin, topic_permissions={"persistent://acme/n/t": {"app": [*actions]}})
    is_of_namespace = route.needs in (needs.LIST_TOPICS, needs.CONSUME_ALL)
    assert is_refused(ask(admin, "app", route.method, path, body)) == (expected or is_of_namespace)
    if "{topic}" in route.path:
        other = plain_path(route, topic="many")
        assert is_refused(ask(admin, "app", route.method, other, body)), "another topic of the namespace"


FOR_PIPELINES = {
    "GET /admin/v2/replication/declaration",
    "PUT /admin/v2/replication/reports",
    "GET /lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
}


@pytest.mark.parametrize("is_enabled", [True, False], ids=["authorization", "authentication only"])
@by_route
def test_the_pipelines_process_has_its_own_routes_only(route: Route, is_enabled: bool) -> None:
    admin = guarded()
    if not is_enabled:
        admin.broker.authorization = Authorization()
    before = kept(admin)
    response = ask(admin, INTERNAL_ROLE, route.method, plain_path(route), BODIES.get(route.path, b"{}"))
    assert is_refused(response) == (route.needs not in OPEN and key(route) not in FOR_PIPELINES)
    assert kept(admin) == before


# -- random permissions

_actions = st.lists(st.sampled_from(get_args(Action)), unique=True)
_roles = st.sampled_from(["app", "other", "app-*"])
_permissions = st.dictionaries(_roles, _actions, max_size=3)
_topics = st.sampled_from(["persistent://acme/n/t", "persistent://acme/n/many"])
_subscriptions = st.dictionaries(
    st.sampled_from(["s", "live"]), st.lists(_roles, min_size=1, max_size=2, unique=True), max_size=2
)
_records = st.builds(
    NamespaceRecord,
    permissions=_permissions,
    topic_permissions=st.dictionaries(_topics, _permissions, max_size=2),
    subscription_permissions=_subscriptions,
)
_routes = st.sampled_from([route for route in ROUTES if route.needs not in FOR_ANY_ROLE])


def answer(record: NamespaceRecord, role: str, route: Route, admins: Sequence[str] = ()) -> bool:
    """Whether a role may use a route of namespace acme/n with these permissions."""
    admin = guarded()
    admin.broker.catalog.save_tenant("acme", TenantRecord([ADMIN, *admins], ["standalone", "west"]))
    admin.broker.catalog.save_namespace("acme/n", record)
    admin.commit()
    response = ask(admin, role, route.method, plain_path(route), BODIES.get(route.path, b"{}"))
    return not is_refused(response)


@given(_records, st.sampled_from(["app", "other"]), _routes, _roles, st.sampled_from(get_args(Action)), st.data())
def test_adding_a_permission_never_removes_a_route(
    record: NamespaceRecord, role: str, route: Route, to: str, action: str, data: st.DataObject
) -> None:
    """But for the first role of a subscription, which is then for it alone."""
    if not answer(record, role, route):
        return
    more, where = msgspec.json.decode(msgspec.json.encode(record), type=NamespaceRecord), data.draw(st.integers(0, 3))
    if where == 0:
        more.permissions.setdefault(to, []).append(action)
    elif where == 1:
        more.topic_permissions.setdefault(data.draw(_topics), {}).setdefault(to, []).append(action)
    elif where == 2:
        for roles in more.subscription_permissions.values():
            roles.append(to)
    assert answer(more, role, route, [to] if where == 3 else [])


@given(_records, _routes)
def test_permissions_of_others_give_a_role_nothing(record: NamespaceRecord, route: Route) -> None:
    assert not answer(record, STRANGER, route)


# -- order


def test_a_body_is_not_read_of_a_role_that_has_no_right() -> None:
    admin = guarded()
    asked: list[str] = []

    async def receive() -> dict[str, Any]:
        asked.append("body")
        return {"type": "http.request", "body": b"[]", "more_body": False}

    async def take(message: dict[str, Any]) -> None:
        asked.append(str(message.get("status", "")))

    scope = {
        "type": "http",
        "scheme": "http",
        "method": "PUT",
        "path": "/admin/v2/replication/reports",
        "raw_path": b"/admin/v2/replication/reports",
        "query_string": b"",
        "headers": [
            (b"host", b"broker.test"),
            (b"content-type", b"application/json"),
            (b"authorization", b"Bearer " + STRANGER.encode()),
        ],
    }
    asyncio.run(admin.app(scope, receive, take))
    assert asked[0] == "403" and "body" not in asked


def test_a_right_that_is_taken_away_while_a_body_comes_is_missing() -> None:
    admin = guarded()
    permit(admin, permissions={"app": ["consume"]})
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        permit(admin, permissions={})
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def take(message: dict[str, Any]) -> None:
        statuses.append(message.get("status", 0))

    path = "/admin/v2/persistent/acme/n/t/subscription/new"
    scope = {
        "type": "http",
        "scheme": "http",
        "method": "PUT",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [
            (b"host", b"broker.test"),
            (b"content-type", b"application/json"),
            (b"authorization", b"Bearer app"),
        ],
    }
    asyncio.run(admin.app(scope, receive, take))
    assert statuses[0] == 403


def test_without_authorization_no_right_is_asked() -> None:
    admin = guarded()
    admin.broker.authorization = Authorization()
    assert ask(admin, STRANGER, "GET", "/admin/v2/tenants").status == 200


# -- subscriptions


def test_a_subscription_with_roles_is_for_those_only() -> None:
    admin = guarded()
    permit(admin, permissions={"app": ["consume"], "other": ["consume"]}, subscription_permissions={"s": ["app"]})
    path = "/admin/v2/persistent/acme/n/t/subscription/s"
    for role, refused in (("app", False), ("other", True), (ADMIN, False), (ROOT, False)):
        assert is_refused(ask(admin, role, "POST", f"{path}/skip/1")) == refused, role
        assert is_refused(ask(admin, role, "GET", f"{path}/position/1")) == refused, role
    response = ask(admin, "other", "DELETE", path)
    assert b"subscription 's'" in response.body


def test_in_the_mode_prefix_a_subscription_begins_with_the_role() -> None:
    admin = guarded()
    assert ask(admin, ADMIN, "POST", "/admin/v2/namespaces/acme/n/subscriptionAuthMode", b'"Prefix"').status == 204
    permit(admin, permissions={"app": ["consume"]})
    path = "/admin/v2/persistent/acme/n/t/subscription"
    assert is_refused(ask(admin, "app", "PUT", f"{path}/mine"))
    assert ask(admin, "app", "PUT", f"{path}/app-mine").status == 204


@pytest.mark.parametrize(
    ("method", "rest"),
    [("POST", "/skip_all"), ("DELETE", ""), ("POST", "/resetcursor/1"), ("GET", "/position/1"), ("POST", "/pause")],
)
def test_the_position_of_a_route_is_not_for_consumers(method: str, rest: str) -> None:
    admin = guarded()
    permit(admin, permissions={"app": ["produce", "consume"]})
    path = f"/admin/v2/persistent/acme/n/t/subscription/pulsar.repl.west{rest}"
    assert is_refused(ask(admin, "app", method, path))
    for role in (ADMIN, ROOT):
        assert not is_refused(ask(admin, role, method, path)), role


# -- rights elsewhere: what the broker does for a tenant, the tenant must be allowed to do

ELSEWHERE = {"maxRedeliverCount": 3, "deadLetterTopic": "public/n/t", "initialSubscriptionName": "s"}
SET_DEAD_LETTERS = [
    ("POST", "/admin/v2/namespaces/acme/n/deadLetterPolicy", ELSEWHERE),
    ("POST", "/admin/v2/persistent/acme/n/t/subscription/s/deadLetterPolicy", ELSEWHERE),
    ("PUT", "/admin/v2/namespaces/acme/new", {"deadLetterPolicy": ELSEWHERE}),
]


@pytest.mark.parametrize(("method", "path", "body"), SET_DEAD_LETTERS)
def test_dead_letters_go_only_where_one_may_publish(method: str, path: str, body: dict[str, Any]) -> None:
    admin, sent = guarded(), json.dumps(body).encode()
    before = catalog_of(admin)
    response = ask(admin, ADMIN, method, path, sent)
    assert is_refused(response) and b"persistent://public/n/t: needs produce" in response.body
    _permit_elsewhere(admin, "produce")
    response = ask(admin, ADMIN, method, path, sent)
    assert is_refused(response) and b"needs consume" in response.body, "its first subscription is one of that topic"
    _permit_elsewhere(admin)
    assert catalog_of(admin) == before
    _permit_elsewhere(admin, "produce", "consume")
    assert ask(admin, ADMIN, method, path, sent).status == 204
    own = sent.replace(b"public/n/t", b"acme/default/t")
    assert not is_refused(ask(guarded(), ADMIN, method, path, own)), "a topic of the same tenant"


def _permit_elsewhere(admin: Admin, *actions: str) -> None:
    roles = {ADMIN: [*actions]} if actions else {}
    admin.broker.catalog.save_namespace("public/n", NamespaceRecord(permissions=roles))
    admin.commit()


@pytest.mark.parametrize("path", ["namespaces/acme/n/replication", "persistent/acme/n/t/replication"])
def test_a_tenant_replicates_only_to_its_clusters(path: str) -> None:
    admin = guarded()
    assert ask(admin, ROOT, "PUT", "/admin/v2/clusters/east", b'{"serviceUrl": "http://east:8080"}').status == 200
    body = b'["standalone", "east"]'
    response = ask(admin, ADMIN, "POST", f"/admin/v2/{path}", body)
    assert response.status == 403 and b"not in the list of allowed clusters" in response.body
    allowed = b'{"adminRoles": ["admin-of-acme"], "allowedClusters": ["standalone", "west", "east"]}'
    assert is_refused(ask(admin, ADMIN, "POST", "/admin/v2/tenants/acme", allowed)), "nor does it add one"
    assert ask(admin, ROOT, "POST", "/admin/v2/tenants/acme", allowed).status == 204
    assert ask(admin, ADMIN, "POST", f"/admin/v2/{path}", body).status in (200, 204)


@pytest.mark.parametrize(
    ("rename", "of_namespace", "of_topic"),
    [
        ("{topic}-eu", "", ""),
        ("{tenant}/copies/{topic}", "", ""),
        ("acme/copies/{topic}", "", ""),
        ("public/n/{topic}", "tenant admin of public", "produce on it"),
        ("persistent://public/n/{topic}", "tenant admin of public", "produce on it"),
        ("{topic}/n/{topic}", "super user", "super user"),
        ("{namespace}/n/{topic}", "super user", "super user"),
    ],
)
def test_a_copy_leaves_its_tenant_only_with_rights_there(rename: str, of_namespace: str, of_topic: str) -> None:
    body = json.dumps({"rename": rename}).encode()
    for path, reason in (("acme/n", of_namespace), ("acme/n/t", of_topic)):
        admin = guarded()
        response = ask(admin, ADMIN, "POST", f"/admin/v2/replication/routes/west/{path}", body)
        assert is_refused(response) == bool(reason), response.body
        assert reason.encode() in response.body
        assert not is_refused(ask(admin, ROOT, "POST", f"/admin/v2/replication/routes/west/{path}", body))


def test_cursors_are_shown_of_topics_that_one_may_use() -> None:
    admin = guarded()
    permit(admin, permissions={"app": ["consume"]})
    path = "/admin/v2/replication/cursors"
    assert ask(admin, "app", "POST", path, b'["acme/n/t"]').status == 200
    assert is_refused(ask(admin, "app", "POST", path, b'["acme/n/t", "public/n/t"]'))


@pytest.mark.parametrize(
    ("query", "app", "tenant_admin"),
    [
        ("", True, True),
        ("namespace=acme/n", True, False),
        ("topic=acme/n/t", False, False),
        ("topic=public/n/t", True, True),
    ],
)
def test_the_status_of_replication(query: str, app: bool, tenant_admin: bool) -> None:
    admin = guarded()
    permit(admin, permissions={"app": ["consume"]})
    path = "/admin/v2/replication/status"
    assert is_refused(ask(admin, "app", "GET", path, query=query.encode())) == app
    assert is_refused(ask(admin, ADMIN, "GET", path, query=query.encode())) == tenant_admin


def test_the_sentence_names_what_is_missing() -> None:
    response = asyncio.run(send(guarded(), "GET", "/admin/v2/persistent/acme/n/t/stats", b"", b"", STRANGER))
    assert REFUSED in response.body and Need.LOOKUP.value.encode() in response.body
    assert b"persistent://acme/n/t" in response.body


def test_needs_with_targets_are_shown_in_the_table() -> None:
    assert namespaces.CREATE.text == "tenant admin; produce on its dead letter topic"

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
from magnetar.admin.moves import positions, redrive
from magnetar.admin.needs import Needs
from magnetar.admin.resource import namespaces, replication
from magnetar.admin.resource.permissions import Action
from magnetar.admin.routes import ROUTES, Route
from magnetar.broker import keys
from magnetar.broker.catalog.record import NamespaceRecord, TenantRecord
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.names import TopicName
from tests.admin.driver import Admin
from tests.admin.roles import ADMIN, REFUSED, ROOT, STRANGER, ask, guarded, is_refused
from tests.admin.route_requests import RawResponse, catalog_of, kept, key, plain_path, send

OPEN = (needs.OPEN, needs.METRICS)
FOR_ANY_ROLE = (*OPEN, needs.SIGNED_IN)
FOR_SUPER_USERS = (needs.SUPER_USER, needs.READ_DECLARATION, needs.REPORT, replication.READ_STATUS)
BODIES = {
    "/admin/v2/replication/cursors": b'["acme/n/t"]',
    "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/acknowledge": b'{"subscription": "*", "positions": "0:0"}',
    "/admin/v2/{domain}/{tenant}/{namespace}/{topic}/redrive": (
        b'{"ledgerId": 0, "after": -1, "upTo": 0, "letters": 1, "maxGenerations": 1}'
    ),
}

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
    found = ask(shared, "", "GET", "/metrics/")
    assert found.status == 200 and b'topic="persistent://acme/n/t"' in found.body, "with names"
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
    if asked in (needs.CONSUME, needs.CONSUME_ALL, positions.READ_POSITIONS, positions.ACKNOWLEDGE, redrive.REDRIVE):
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
    "GET /admin/v2/pipelines/declaration",
    "PUT /admin/v2/pipelines/reports",
    "GET /lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
    # of verbs of declared pipelines, with the rights to consume that the process has anyway
    "GET /admin/v2/namespaces/{tenant}/{namespace}/deadLetters",
    "GET /admin/v2/schemas/{tenant}/{namespace}/{topic}/schema",
    "GET /admin/v2/{domain}/{tenant}/{namespace}/{topic}/partitions",
    "GET /admin/v2/{domain}/{tenant}/{namespace}/{topic}/stats",
    "GET /admin/v2/{domain}/{tenant}/{namespace}/{topic}/unacknowledged",
    "POST /admin/v2/{domain}/{tenant}/{namespace}/{topic}/acknowledge",
    "POST /admin/v2/{domain}/{tenant}/{namespace}/{topic}/redrive",
    "PUT /admin/v2/{domain}/{tenant}/{namespace}/{topic}/subscription/{subscription}",
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
    assert kept(admin) == before or (route.changes and key(route) in FOR_PIPELINES)


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


@pytest.mark.parametrize("name", ["Authorization", "X-Original-Principal", "X-Pulsar-Auth-Method-Name"])
@pytest.mark.parametrize("second", ["root", "Bearer root", "Bearer stranger", ""])
def test_a_client_says_once_who_it_is(name: str, second: str) -> None:
    admin, path = guarded(), "/admin/v2/tenants"
    headers = [
        ("Authorization", "Bearer root"),
        ("X-Original-Principal", "root"),
        ("X-Pulsar-Auth-Method-Name", "token"),
    ]
    assert admin("GET", path, headers=headers).status_code == 200
    reason = admin.reason(400, "GET", path, headers=[*headers, (name.lower(), second)])
    assert reason == f"a request has one {name}, not 2"
    assert admin("GET", "/metrics/", headers=[*headers, (name, second)]).status_code == 200, "nobody is asked there"


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


# -- requests for many subscriptions

CLEAR = "/admin/v2/namespaces/acme/n/clearBacklog"
CLEAR_BUNDLE = "/admin/v2/namespaces/acme/n/0x00000000_0xffffffff/clearBacklog"
EXPIRE_ALL = "/admin/v2/persistent/acme/n/t/all_subscription/expireMessages/0"
SKIP_DAMAGED = "/admin/v2/persistent/acme/n/t/skipDamaged"
ROUTE = "pulsar.repl.west"


def with_many_subscriptions() -> Admin:
    """Topic t is replicated; `app` and `one` may consume it, but not with the subscription `reserved`."""
    admin = guarded()
    for name in ("reserved", "free"):
        assert ask(admin, ROOT, "PUT", f"/admin/v2/persistent/acme/n/t/subscription/{name}").status == 204
    clusters = b'["standalone", "west"]'
    assert ask(admin, ROOT, "POST", "/admin/v2/namespaces/acme/n/replication", clusters).status == 200
    permit(
        admin,
        permissions={"app": ["consume"]},
        topic_permissions={"persistent://acme/n/t": {"one": ["consume"]}},
        subscription_permissions={"reserved": ["somebody"]},
    )
    admin.publish("persistent://acme/n/t", b"five", b"six")
    return admin


def backlogs(admin: Admin) -> dict[str, int]:
    topic = admin.broker.topic(TopicName.parse("persistent://acme/n/t"))
    assert isinstance(topic, PersistentTopic)
    return {one.name: one.backlog for one in topic.cursors if one.name in ("reserved", "free", ROUTE)}


@pytest.mark.parametrize(
    ("role", "path"), [("app", CLEAR), ("app", CLEAR_BUNDLE), ("app", EXPIRE_ALL), ("one", EXPIRE_ALL)]
)
def test_a_request_for_all_subscriptions_changes_those_that_one_may_use(role: str, path: str) -> None:
    admin = with_many_subscriptions()
    assert backlogs(admin) == {"reserved": 2, "free": 2, ROUTE: 2}
    assert ask(admin, role, "POST", path).status == 204
    assert backlogs(admin) == {"reserved": 2, "free": 0, ROUTE: 2}
    assert ask(admin, ADMIN, "POST", path).status == 204
    assert backlogs(admin) == {"reserved": 0, "free": 0, ROUTE: 0}


def test_nothing_is_changed_where_one_may_use_no_subscription() -> None:
    admin = with_many_subscriptions()
    assert ask(admin, ADMIN, "POST", "/admin/v2/namespaces/acme/n/subscriptionAuthMode", b'"Prefix"').status == 204
    for path in (CLEAR, EXPIRE_ALL):
        assert ask(admin, "app", "POST", path).status == 204
    assert backlogs(admin) == {"reserved": 2, "free": 2, ROUTE: 2}


@pytest.mark.parametrize("role", ["app", "one"])
def test_what_cannot_be_read_is_skipped_for_subscriptions_that_one_may_use(role: str) -> None:
    admin = with_many_subscriptions()
    topic = admin.broker.topic(TopicName.parse("persistent://acme/n/t"))
    assert isinstance(topic, PersistentTopic)
    batch = admin.storage.batch()
    for entry_id in (topic.log.confirmed - 1, topic.log.confirmed):
        batch.put_entry(keys.PAIR.pack(topic.ledger_id, entry_id), b"\xc1")
    admin.storage.write(batch)
    admin.publish("persistent://acme/n/t", b"seven")
    assert ask(admin, ROOT, "PUT", "/admin/v2/persistent/acme/n/t/unload").status == 204
    skipped = json.loads(ask(admin, role, "POST", SKIP_DAMAGED).body)["persistent://acme/n/t"]
    assert {"free"} <= skipped.keys() and not skipped.keys() & {"reserved", ROUTE}
    assert backlogs(admin) == {"reserved": 3, "free": 1, ROUTE: 3}
    skipped = json.loads(ask(admin, ADMIN, "POST", SKIP_DAMAGED).body)["persistent://acme/n/t"]
    assert {"free", "reserved", ROUTE} <= skipped.keys()


@pytest.mark.parametrize("change", ["clearBacklog", "unsubscribe"])
@pytest.mark.parametrize("bundle", ["", "/0x00000000_0xffffffff"])
@pytest.mark.parametrize("name", ["reserved", ROUTE])
def test_a_subscription_in_all_topics_of_a_namespace_is_for_those_who_may_use_it(
    name: str, bundle: str, change: str
) -> None:
    admin, path = with_many_subscriptions(), f"/admin/v2/namespaces/acme/n{bundle}/{change}"
    response = ask(admin, "app", "POST", f"{path}/{name}")
    assert is_refused(response)
    assert backlogs(admin) == {"reserved": 2, "free": 2, ROUTE: 2}
    permit(admin, permissions={"app": ["consume"], "somebody": ["consume"]})
    assert is_refused(ask(admin, "somebody", "POST", f"{path}/{name}")) == (name == ROUTE)
    assert ask(admin, "app", "POST", f"{path}/free").status == 204
    for role in (ADMIN, ROOT):
        assert not is_refused(ask(admin, role, "POST", f"{path}/{name}")), role


def test_without_authorization_all_subscriptions_are_changed() -> None:
    """As in Apache Pulsar, also the position of a route."""
    for path in (CLEAR, EXPIRE_ALL):
        admin = with_many_subscriptions()
        admin.broker.authorization = Authorization()
        assert ask(admin, STRANGER, "POST", path).status == 204
        assert backlogs(admin) == {"reserved": 0, "free": 0, ROUTE: 0}


# -- schemas


@pytest.mark.parametrize(
    ("method", "rest", "actions"),
    [("POST", "schema", ["produce"]), ("GET", "schema", ["consume"]), ("GET", "schemas", ["consume"])],
)
def test_a_schema_is_that_of_the_whole_topic(method: str, rest: str, actions: list[str]) -> None:
    part, whole = ("persistent://acme/n/many-partition-0", "persistent://acme/n/many")
    body = b'{"type": "STRING", "schema": ""}'
    for permitted, refused in ((part, True), (whole, False)):
        admin = guarded()
        permit(admin, topic_permissions={permitted: {"app": actions}})
        for name in ("many-partition-0", "many"):
            path = f"/admin/v2/schemas/acme/n/{name}/{rest}"
            assert is_refused(ask(admin, "app", method, path, body)) == refused, (permitted, name)


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


ROUTES_TO_WEST = "/admin/v2/replication/routes/west"


def replicated(*namespaces: str) -> Admin:
    """Two tenants replicate to the same cluster."""
    admin = guarded()
    admin.broker.catalog.save_tenant("public", TenantRecord([], ["standalone", "west"]))
    for namespace in namespaces:
        if namespace not in admin.broker.catalog.namespaces:
            admin.broker.catalog.create_namespace(namespace)
        path, clusters = f"/admin/v2/namespaces/{namespace}/replication", b'["standalone", "west"]'
        assert ask(admin, ROOT, "POST", path, clusters).status == 200
    return admin


def rename(admin: Admin, role: str, scope: str, name: str) -> RawResponse:
    return ask(admin, role, "POST", f"{ROUTES_TO_WEST}/{scope}", json.dumps({"rename": name}).encode())


def test_a_clash_of_names_names_no_topic_of_another_tenant() -> None:
    admin = replicated("acme/n", "public/n")
    assert rename(admin, ROOT, "public/n/t", "acme/n/copy").status == 204
    response = rename(admin, ADMIN, "acme/n/t", "acme/n/copy")
    assert response.status == 400 and json.loads(response.body) == {
        "reason": "topic persistent://acme/n/t would be persistent://acme/n/copy in the remote cluster,"
        " as one of another tenant would: give it another name"
    }
    assert b"persistent://public/n/t" in rename(admin, ROOT, "acme/n/t", "acme/n/copy").body
    assert rename(admin, ADMIN, "acme/n/t", "{topic}-eu").status == 204
    response = rename(admin, ADMIN, "acme/n/many", "t-eu")
    assert response.status == 400 and b"acme/n/many and persistent://acme/n/t " in response.body, "both are one's own"
    admin.broker.authorization = Authorization()
    assert b"persistent://public/n/t" in rename(admin, STRANGER, "acme/n/t", "acme/n/copy").body


def test_a_clash_among_topics_of_others_refuses_nothing() -> None:
    admin = replicated("acme/n", "public/x", "public/y")
    for namespace in ("public/x", "public/y"):
        assert rename(admin, ROOT, namespace, "acme/n/{topic}").status == 204
    for namespace in ("acme/n", "public/x", "public/y"):
        assert ask(admin, ROOT, "PUT", f"/admin/v2/persistent/{namespace}/new").status == 204
    clashing = [one.topic for one in admin.broker.replication.declaration().topics if one.clash]
    assert clashing == [f"persistent://{namespace}/new" for namespace in ("acme/n", "public/x", "public/y")]
    assert rename(admin, ADMIN, "acme/n/new", "{topic}-eu").status == 204
    assert rename(admin, ROOT, "public/x/new", "acme/n/t").status == 400, "from one clash to another"


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

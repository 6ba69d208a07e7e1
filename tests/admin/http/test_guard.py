"""The guard of the HTTP port: a table of heads and verdicts, and what a web page cannot do."""

from __future__ import annotations

import asyncio

import pytest

from magnetar.admin.routes import ROUTES
from magnetar.log.events import WEB_REQUEST_REFUSED
from tests.admin.driver import Admin
from tests.admin.route_requests import kept, key, new_world, plain_path, send

TENANTS = "/admin/v2/tenants"
BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
LISTENERS = (
    "inside:pulsar://inside.test:6650,inside:http://web.inside.test:8080,outside:pulsar://[fd00::1]:6650"
    ",tls:pulsar+ssl://tls.test:6651,tls:https://web.tls.test:8443"
)


@pytest.fixture
def admin() -> Admin:
    return Admin(
        advertisedAddress="Advertised.Test",
        advertisedListeners=LISTENERS,
        webServiceTrustedHosts="proxy.test, *.svc.test, *.rooted.test.",
    )


HOSTS = {
    "localhost": 200,
    "localhost:8080": 200,
    "localhost:1": 200,  # ports may be mapped
    "localhost:": 200,
    "LOCALHOST:8080": 200,
    "localhost.:8080": 200,
    "app.localhost": 200,
    "127.0.0.1:8080": 200,
    "127.1.2.3": 200,
    "[::1]:8080": 200,
    "[fe80::1%eth0]:8080": 200,
    "10.1.2.3:8080": 200,  # a browser with this in Host did connect to it: no name that could be bound anew
    "93.184.216.34": 200,
    "[2001:db8::1]": 200,
    "broker.test": 200,  # the address that it is bound to
    "advertised.test:443": 200,
    "inside.test": 200,
    "web.inside.test": 200,
    "tls.test:6651": 200,
    "web.tls.test:8443": 200,
    "proxy.test": 200,
    "a.svc.test": 200,
    "a.b.svc.test.": 200,
    "a.rooted.test": 200,
    "a.rooted.test.": 200,
    "svc.test": 403,
    "asvc.test": 403,
    "evil.example": 403,
    "evil.example:8080": 403,
    "localhost.evil.example": 403,
    "127.0.0.1.evil.example": 403,
    "notlocalhost": 403,
    "127.1": 403,  # browsers send the whole address
    "0x7f000001": 403,
    "localhost:99999": 400,
    "localhost:x": 400,
    "user@localhost": 400,
    "localhost@evil.example": 400,
    "localhost evil.example": 400,
    "localhost,evil.example": 400,
    "localhost/": 400,
    "[::1": 400,
    "::1": 400,
    "[localhost]": 400,
    "[12]": 400,
    ".": 400,
    "": 400,
}


@pytest.mark.parametrize(("host", "status"), HOSTS.items(), ids=map(repr, HOSTS))
def test_the_host_is_a_name_of_the_broker(admin: Admin, host: str, status: int) -> None:
    assert admin("GET", TENANTS, headers={"host": host}).status_code == status
    changed = admin("PUT", f"{TENANTS}/new", headers={"host": host}, json={"allowedClusters": ["standalone"]})
    assert changed.status_code == (204 if status == 200 else status)
    assert ("new" in admin.get(f"http://localhost{TENANTS}")) == (status == 200)


def test_a_host_that_is_refused_says_what_to_do(admin: Admin) -> None:
    reason = admin.reason(403, "GET", TENANTS, headers={"host": "evil.example"})
    assert reason == (
        "Host 'evil.example' is not a name of this broker: use its IP address or localhost,"
        " or add the name to webServiceTrustedHosts"
    )


JSON, FORM = {"content-type": "application/json"}, {"content-type": "application/x-www-form-urlencoded"}
ORIGIN, SITE = "origin", "sec-fetch-site"

# Headers, then the verdict on GET and on a PUT with a body.
PAGES: list[tuple[dict[str, str], int, int]] = [
    (JSON, 200, 204),
    ({**JSON, "user-agent": BROWSER}, 200, 204),  # PowerShell's begins like that
    ({**JSON, SITE: "same-origin"}, 200, 204),
    ({**JSON, SITE: "none"}, 200, 204),
    ({**JSON, SITE: "cross-site"}, 403, 403),
    ({**JSON, SITE: "same-site"}, 403, 403),
    ({**JSON, SITE: "Cross-Site"}, 403, 403),
    ({**JSON, SITE: ""}, 403, 403),
    ({**JSON, SITE: "new-word"}, 403, 403),
    ({**JSON, ORIGIN: "http://localhost:8080"}, 200, 204),
    ({**JSON, ORIGIN: "http://LocalHost:8080"}, 200, 204),
    ({**JSON, ORIGIN: "https://localhost:8080"}, 200, 204),  # TLS may end in front of the broker
    ({**JSON, ORIGIN: "http://localhost:3000"}, 403, 403),  # another program of this machine
    ({**JSON, ORIGIN: "http://localhost"}, 403, 403),
    ({**JSON, ORIGIN: "http://127.0.0.1:8080"}, 403, 403),
    ({**JSON, ORIGIN: "https://evil.example"}, 403, 403),
    ({**JSON, ORIGIN: "https://localhost:8080.evil.example"}, 403, 403),
    ({**JSON, ORIGIN: "null"}, 403, 403),
    ({**JSON, ORIGIN: ""}, 403, 403),
    ({**JSON, ORIGIN: "chrome-extension://abcdef"}, 403, 403),
    ({**JSON, ORIGIN: "file://"}, 403, 403),
    ({**JSON, ORIGIN: "http://localhost:8080", SITE: "cross-site"}, 403, 403),
    ({**JSON, ORIGIN: "https://evil.example", SITE: "same-origin"}, 403, 403),
    ({"content-type": "Application/JSON; charset=utf-8"}, 200, 204),
    ({"content-type": "application/vnd.partitioned-topic-metadata+json"}, 200, 204),  # Java's admin client
    ({"content-type": "text/plain"}, 200, 415),
    (FORM, 200, 415),
    ({"content-type": "multipart/form-data; boundary=x"}, 200, 415),
    ({"content-type": "text/plain; application/json"}, 200, 415),
    ({"content-type": "text/plain, application/json"}, 200, 415),
    ({"content-type": "application/json, text/plain"}, 200, 415),
    ({"content-type": "application/octet-stream"}, 200, 415),
    ({"content-type": ""}, 200, 415),
]


@pytest.mark.parametrize(("headers", "read", "change"), PAGES, ids=[str(row[0]) for row in PAGES])
def test_requests_of_web_pages_are_refused(admin: Admin, headers: dict[str, str], read: int, change: int) -> None:
    headers = {"host": "localhost:8080", **headers}
    body = b'{"allowedClusters":["standalone"]}'
    assert admin("GET", TENANTS, headers=headers).status_code == read
    assert admin("HEAD", TENANTS, headers=headers).status_code == read
    for method in ("POST", "PUT"):
        refused = admin(method, f"{TENANTS}/new", headers=headers, content=body)
        assert refused.status_code == {"POST": 404, "PUT": 204}[method] if change == 204 else change
    assert admin("DELETE", f"{TENANTS}/new", headers=headers).status_code == (
        change if change in (204, 403, 415) else 404
    )
    assert admin("OPTIONS", f"{TENANTS}/new", headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:8443", "https://localhost:8443", 200),
        ("localhost", "https://localhost", 200),
        ("localhost:443", "https://localhost", 200),
        ("localhost:8443", "http://localhost:8443", 403),
        ("localhost", "http://localhost", 403),
        ("localhost:8443", "https://localhost:8080", 403),
        ("web.tls.test:8443", "https://web.tls.test:8443", 200),
        ("web.tls.test:8443", "https://evil.example", 403),
    ],
)
def test_a_page_without_tls_is_not_ours_at_the_port_with_tls(admin: Admin, host: str, origin: str, status: int) -> None:
    headers = {"host": host, "origin": origin}
    assert admin("GET", f"https://{host}{TENANTS}", headers=headers).status_code == status


@pytest.mark.parametrize("method", ["TRACE", "TRACK"])
@pytest.mark.parametrize("path", ["/", TENANTS, "/metrics", "/no/such/path"])
def test_no_request_is_sent_back(admin: Admin, method: str, path: str) -> None:
    answer = admin(method, path, headers={"host": "localhost", "authorization": "Bearer word"})
    assert answer.status_code == 405
    assert answer.json() == {"reason": f"{method} is refused: no request is sent back"}
    assert "word" not in str(answer.headers)
    assert admin(method, path, headers={"host": "evil.example"}).status_code == 403


def test_the_attack_of_a_web_page_on_a_backlog(admin: Admin) -> None:
    """A "simple" request, which browsers send without asking first."""
    admin.unsubscribe_idle(admin.subscribe("t", "s"))
    admin.publish("t", *(b"x" for _ in range(10)))
    path = "/admin/v2/namespaces/public/default/clearBacklog"
    page = {"origin": "https://evil.example", "content-type": "text/plain"}
    admin.reason(403, "POST", path, headers={"host": "evil.example", **page})
    admin.reason(403, "POST", path, headers=page)
    admin.reason(415, "POST", path, headers={"content-type": "text/plain"})
    assert admin.get("/admin/v2/persistent/public/default/t/stats")["subscriptions"]["s"]["msgBacklog"] == 10


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"])
def test_nothing_is_routed_before_the_guard(admin: Admin, method: str) -> None:
    for path in (TENANTS, "/nothing", "/", "/metrics/", "/admin/v3/functions/a/b/c"):
        assert admin(method, path, headers={"host": "evil.example"}).status_code == 403


def test_a_body_needs_a_type_and_no_body_needs_none(admin: Admin) -> None:
    topic = "/admin/v2/persistent/public/default/t"
    assert admin("PUT", topic).status_code == 204
    assert admin("PUT", topic + "2", headers=JSON).status_code == 204
    assert admin("POST", f"{topic}/terminate", headers=FORM).status_code == 415  # an empty form
    reason = admin.reason(415, "PUT", f"{topic}/partitions", content=b"3", headers=FORM)
    assert reason == (
        "a body of type 'application/x-www-form-urlencoded' is refused: add -H 'Content-Type: application/json'"
    )
    assert admin("PUT", f"{topic}/partitions", content=b"3", headers={"content-type": ""}).status_code == 415


def test_known_gaps_are_named_whatever_their_body(admin: Admin) -> None:
    """pulsar-admin uploads functions as a form."""
    headers = {"content-type": "multipart/form-data; boundary=x"}
    assert "function" in admin.reason(501, "POST", "/admin/v3/functions/a/b/c", content=b"--x--", headers=headers)


@pytest.mark.parametrize("target", ["http://evil.example/admin/v2/tenants", "*", "localhost:80", "admin/v2/tenants"])
def test_a_target_is_a_path(admin: Admin, target: str) -> None:
    assert asyncio.run(send(admin, "GET", target, b"", b"")).status == 400


def test_every_response_has_the_headers_that_browsers_obey(admin: Admin) -> None:
    for path, status in ((TENANTS, 200), ("/nothing", 404), ("/", 200), ("/metrics", 301), ("/metrics/", 200)):
        headers = admin("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff", status
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert not [name for name in headers if name.startswith("access-control-")]
    policy = admin("GET", "/", headers={"accept": "text/html"}).headers["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy


def test_redirects_stay_on_this_host(admin: Admin) -> None:
    response = admin("GET", "/metrics?token=x")
    assert (response.status_code, response.headers["location"]) == (301, "/metrics/")


def test_refusals_are_events_and_counted(admin: Admin) -> None:
    admin.reason(403, "POST", "/admin/v2/tenants/new?authData=secret", headers={"host": "evil.example"})
    event, values = admin.host.events[-1]
    assert event is WEB_REQUEST_REFUSED and values["path"] == "/admin/v2/tenants/new"
    assert "evil.example" in str(values["reason"]) and admin.vitals.responses[403] == 1


# -- a GET changes nothing for a page, whatever its browser tells

TELLTALES = [
    {"user-agent": BROWSER},
    {"user-agent": "AppleCoreMedia/1.0.0.21G115 (Macintosh; U; Intel Mac OS X 10_15; en_us)"},
    {"referer": "https://evil.example/"},
    {"accept-language": "en"},
    {"range": "bytes=0-1"},
    {"cookie": "a=b"},
    {"sec-fetch-mode": "no-cors"},
    {"sec-fetch-site": "none"},
]
AUTO_CREATION = "/admin/v2/persistent/public/default/new/partitions?checkAllowAutoCreation=true"


@pytest.mark.parametrize("headers", TELLTALES, ids=str)
def test_a_browser_creates_no_topic_with_a_get(headers: dict[str, str]) -> None:
    admin = Admin(allowAutoTopicCreationType="partitioned", defaultNumPartitions=3)
    assert "browsers" in admin.reason(403, "GET", AUTO_CREATION, headers=headers)
    assert "browsers" in admin.reason(403, "GET", "/admin/v2/brokers/backlog-quota-check", headers=headers)
    assert admin.existing() == ([], {})
    path, _, _ = AUTO_CREATION.partition("?")
    assert admin("GET", path, headers=headers).status_code == 404


CLIENTS = ["Pulsar-CPP-v3.7.1", "Pulsar-Java-v4.0.4", "go", "curl/8.5.0", "python-httpx/0.28.1", ""]


@pytest.mark.parametrize("agent", CLIENTS)
def test_clients_with_an_http_address_create_topics_with_a_get(agent: str) -> None:
    """They ask for the number of partitions before they look the topic up."""
    admin = Admin(allowAutoTopicCreationType="partitioned", defaultNumPartitions=3)
    assert admin("GET", AUTO_CREATION, headers={"user-agent": agent}).json()["partitions"] == 3
    assert admin("GET", "/admin/v2/brokers/backlog-quota-check", headers={"user-agent": agent}).status_code == 204


@pytest.mark.parametrize("route", [route for route in ROUTES if route.method == "GET"], ids=key)
def test_no_get_of_a_browser_and_no_head_changes_anything(route: object) -> None:
    admin = new_world()
    before = kept(admin)
    for path in (plain_path(route), plain_path(route, topic="new", subscription="new")):  # type: ignore[arg-type]
        for method in ("GET", "HEAD"):
            if "/declaration" not in path:  # waits for a change
                admin(method, path, params={"checkAllowAutoCreation": "true"}, headers={"user-agent": BROWSER})
    admin.commit()
    assert kept(admin) == before

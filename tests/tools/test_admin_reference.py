"""docs/admin.md matches the tables, and the tables are complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.admin.http.unsupported import UNSUPPORTED, Gap, why_not
from magnetar.admin.policy import routes as policy_routes
from magnetar.admin.routes import ROUTES, Route
from tests.admin.driver import Admin
from tools.admin_reference import admin_page, heading_of

PAGE = Path(__file__).parents[2] / "docs" / "admin.md"


def test_the_page_matches_the_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == admin_page(), "run `make docs`"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_is_described_in_one_line(route: Route) -> None:
    assert route.described, "say in one line what it does: the first line of the handler's docstring, or `summary`"
    assert "|" not in route.described and len(route.described) < 160
    assert heading_of(route.path) != "Others"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_shows_what_it_needs(route: Route) -> None:
    assert route.needs.text and "|" not in route.needs.text
    row = f"| {route.method} | `{route.path}` | {route.needs.text} | "
    in_tables_of_their_own = {row[:2] for row in policy_routes.routes()}
    if (route.method, route.path) not in in_tables_of_their_own:
        assert row in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("gap", UNSUPPORTED, ids=lambda gap: gap.what)
def test_an_unsupported_path_has_no_route(gap: Gap) -> None:
    served = {route.path for route in ROUTES}
    for path in gap.paths:
        assert not [other for other in served if f"{other}/".startswith(f"{path}/")], path


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("/admin/v2/clusters/standalone/failureDomains", "failure domains"),
        ("/admin/v2/clusters/standalone/failureDomains/a", "failure domains"),
        ("/admin/v2/clusters/standalone/namespaceIsolationPolicies/p", "failure domains"),
        ("/admin/v2/clusters/standalone/peers", "peer clusters"),
        ("/admin/v2/clusters/standalone/migrate", "peer clusters"),
        ("/admin/v2/brokers/internal-configuration", "metadata stores"),
        ("/admin/v2/persistent/public/default/t/compaction", "compaction"),
        ("/admin/v2/non-persistent/public/default/t/compactionThreshold", "compaction"),
        ("/admin/v2/persistent/public/default/t/offloadPolicies", "offloading"),
        ("/admin/v2/namespaces/public/default/resourcegroup", "resource groups"),
        ("/admin/v3/functions/public/default/f", "functions"),
        ("/admin/v3/transactions/coordinators", "transactions"),
        ("/admin/persistent/public/standalone/default/t/stats", "the first version"),
        ("/topics/persistent/public/default/t", "publishing and reading"),
    ],
)
def test_an_unsupported_path_returns_its_reason(path: str, group: str) -> None:
    (gap,) = (gap for gap in UNSUPPORTED if gap.what.startswith(group))
    assert Admin().reason(501, "PUT", path) == f"PUT {path} is not supported: {gap.why}"


def test_a_path_with_the_prefix_of_an_unsupported_one_is_another() -> None:
    assert why_not("GET", "/topicsy") is None
    assert why_not("GET", "/admin/v2/bookiesy") == "GET /admin/v2/bookiesy is not supported yet"
    assert why_not("GET", "/administrator") is None


def test_metrics_are_listed() -> None:
    page = admin_page()
    for name in ("pulsar_msg_backlog", "pulsar_subscription_back_log", "pulsar_broker_rate_in", "pulsar_topics_count"):
        assert f"`{name}`" in page

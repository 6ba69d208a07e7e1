from __future__ import annotations

import pytest

from magnetar.admin.http.request import Call
from magnetar.admin.http.router import tree_of
from magnetar.admin.needs import OPEN
from magnetar.admin.routes import ROUTES, Route


def _handler(call: Call) -> None: ...


def found(routes: list[tuple[str, str]], method: str, path: str) -> tuple[str, dict[str, str]] | None:
    tree = tree_of(Route(each, template, _handler, OPEN) for each, template in routes)
    match = tree.find(method, path.split("/"))
    if match is None:
        return None
    leaf, values = match
    return leaf.route.path, leaf.fixed | dict(zip(leaf.names, values, strict=True))


ROWS = [
    ("GET", "/a/{x}"),
    ("GET", "/a/health"),
    ("PUT", "/a/{x}"),
    ("GET", "/a/{x}/{y}/stats"),
    ("GET", "/a/{x}/list/{z}"),
    ("GET", "/{domain}/{topic}"),
    ("GET", "/metrics"),
    ("GET", "/metrics/"),
]


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/a/health", ("/a/health", {})),
        ("PUT", "/a/health", ("/a/{x}", {"x": "health"})),  # no other route has this method
        ("GET", "/a/healthy", ("/a/{x}", {"x": "healthy"})),
        ("GET", "/a/1/list/stats", ("/a/{x}/list/{z}", {"x": "1", "z": "stats"})),
        ("GET", "/a/1/2/stats", ("/a/{x}/{y}/stats", {"x": "1", "y": "2"})),
        ("GET", "/persistent/t", ("/{domain}/{topic}", {"domain": "persistent", "topic": "t"})),
        ("GET", "/non-persistent/t", ("/{domain}/{topic}", {"domain": "non-persistent", "topic": "t"})),
        ("GET", "/other/t", None),
        ("GET", "/a/", None),
        ("GET", "/a//2/stats", None),
        ("GET", "/a", None),
        ("GET", "/a/1/2/3", None),
        ("DELETE", "/a/1", None),
        ("GET", "/metrics", ("/metrics", {})),
        ("GET", "/metrics/", ("/metrics/", {})),
    ],
)
def test_the_matching_route_is_found(method: str, path: str, expected: tuple[str, dict[str, str]] | None) -> None:
    assert found(ROWS, method, path) == expected
    assert found(ROWS[::-1], method, path) == expected


def test_methods_of_a_path() -> None:
    tree = tree_of(Route(method, path, _handler, OPEN) for method, path in ROWS)
    assert tree.methods(["", "a", "health"]) == {"GET", "PUT"}
    assert tree.methods(["", "a", "1", "list", "2"]) == {"GET"}
    assert tree.methods(["", "nothing"]) == set()


def test_every_route_of_the_table_can_be_reached() -> None:
    tree = tree_of(ROUTES)
    for route in ROUTES:
        match = tree.find(route.method, route.path.replace("{domain}", "persistent").split("/"))
        assert match is not None and match[0].route is route, route.path

"""Paths and queries in answers and the log: whole, but for what may be a secret."""

from __future__ import annotations

import pytest

from magnetar.admin.http.shown import shown_path, shown_query

SETTINGS = "/admin/v2/brokers/configuration"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/admin/v2/persistent/a/n/t/stats", None),
        ("/admin/v2/persistent/a/n/joe@example.com/stats", None),
        (f"{SETTINGS}/maxTopicsPerNamespace/7", None),
        (f"{SETTINGS}/tokenSecretKey", None),
        (f"{SETTINGS}/values", None),
        (f"{SETTINGS}/tokenSecretKey/x", f"{SETTINGS}/tokenSecretKey/(hidden)"),
        (f"{SETTINGS}/tokenSecretKey/x/y%2Fz", f"{SETTINGS}/tokenSecretKey/(hidden)"),
        (f"{SETTINGS}/misspelt/x", f"{SETTINGS}/misspelt/(hidden)"),
        (f"{SETTINGS}//x", f"{SETTINGS}//(hidden)"),
        ("/admin/brokers/configuration/a/x", "/admin/brokers/configuration/a/(hidden)"),
        ("http://joe:p@ss@broker/admin", "http://(hidden)@broker/admin"),
    ],
)
def test_a_path(path: str, expected: str | None) -> None:
    assert shown_path(path) == (path if expected is None else expected)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ""),
        ("force=true&tokens=3", "?force=true&tokens=3"),
        ("token=x", "?token=(hidden)"),
        ("force=true&Access_Token=x=y&limit=3", "?force=true&Access_Token=(hidden)&limit=3"),
    ],
)
def test_a_query(query: str, expected: str) -> None:
    assert shown_query(query) == expected

"""Parameters and headers are UTF-8 or refused: none is changed into the name of something else."""

from __future__ import annotations

import pytest

from magnetar.admin.http.errors import BadRequest
from magnetar.admin.http.query import query_of
from tests.admin.driver import Admin

TOPIC = "/admin/v2/persistent/public/default/t"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", {}),
        (b"a=1&b=", {"a": "1", "b": ""}),
        (b"force", {"force": ""}),
        (b"a=1&a=2", {"a": "2"}),
        (b"a=x+y%20z", {"a": "x y z"}),
        (b"caf%C3%A9=%E2%82%AC", {"café": "€"}),
        ("café=€".encode(), {"café": "€"}),
        (b"a=%zz%", {"a": "%zz%"}),
    ],
)
def test_parameters_of_a_query(raw: bytes, expected: dict[str, str]) -> None:
    assert query_of(raw) == expected


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"a=1&key=%ff", "parameter key is not UTF-8"),
        (b"key=\xff", "parameter key is not UTF-8"),
        (b"key=%ED%A0%80", "parameter key is not UTF-8"),
        (b"%ff=1", r"the name of parameter \\xff is not UTF-8"),
        (b"caf%C3%A9=%C3", "parameter café is not UTF-8"),
    ],
)
def test_what_is_not_utf8_is_refused_by_name(raw: bytes, reason: str) -> None:
    with pytest.raises(BadRequest, match=f"^{reason}$"):
        query_of(raw)


def test_fault_parameter_not_utf8_changes_nothing(admin: Admin) -> None:
    admin.done("PUT", TOPIC, json={"\ufffd": "kept"})
    assert admin.reason(400, "DELETE", f"{TOPIC}/properties?key=%ff") == "parameter key is not UTF-8"
    assert admin.get(f"{TOPIC}/properties") == {"\ufffd": "kept"}
    admin.done("DELETE", f"{TOPIC}/properties?key=%EF%BF%BD")
    assert admin.get(f"{TOPIC}/properties") == {}


def test_a_header_that_is_not_utf8_is_refused(admin: Admin) -> None:
    lookup = "/lookup/v2/topic/persistent/public/default/t"
    admin.done("PUT", TOPIC)
    headers = [(b"X-Pulsar-ListenerName", b"\xff")]
    assert admin.reason(400, "GET", lookup, headers=headers) == "header X-Pulsar-ListenerName is not UTF-8"
    headers = [(b"X-Pulsar-ListenerName", "café".encode())]
    assert "café" in admin("GET", lookup, headers=headers).text

"""Bodies are read as Apache Pulsar's reader reads them: quoted numbers and booleans are taken, other wrong ones not."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from magnetar.admin.http.body_reader import BodyReader
from magnetar.admin.policy.bodies import AutoTopicCreationOverride, Int32, Quota, RetentionPolicies
from tests.admin.driver import Admin

REFUSED = object()


@pytest.mark.parametrize(
    ("shape", "body", "value"),
    [
        (int, "3", 3),
        (int, '"3"', 3),
        (int, '" 3 "', 3),
        (int, '"-3"', -3),
        (int, '"+3"', 3),
        (int, "3.0", 3),
        (int, "3.7", 3),
        (int, '""', 0),
        (int, '" "', 0),
        (int, '"null"', 0),
        (int, '"3.0"', REFUSED),
        (int, '"0x3"', REFUSED),
        (int, '"three"', REFUSED),
        (int, '"3_0"', REFUSED),
        (int, '"٣"', REFUSED),
        (int, "true", REFUSED),
        (int, "[3]", REFUSED),
        (int, "{}", REFUSED),
        (Int32, '"3000000000"', REFUSED),
        (int | None, '""', None),
        (int | None, '"null"', None),
        (int | None, "null", None),
        (int | None, '"7"', 7),
        (bool, "true", True),
        (bool, '"true"', True),
        (bool, '" TRUE "', True),
        (bool, '"True"', True),
        (bool, '"False"', False),
        (bool, "0", False),
        (bool, "2", True),
        (bool, '""', False),
        (bool, '"tRue"', REFUSED),
        (bool, '"1"', REFUSED),
        (bool, '"yes"', REFUSED),
        (bool, "1.0", REFUSED),
        (bool, "[]", REFUSED),
        (bool | None, '""', None),
        (str, "5", "5"),
        (str, "1.5", "1.5"),
        (str, "true", "true"),
        (str, "{}", REFUSED),
        (dict[str, str], '{"a": 1, "b": false}', {"a": "1", "b": "false"}),
        (list[int], '["1", 2]', [1, 2]),
        (int | RetentionPolicies, '"4"', 4),
        (int | RetentionPolicies, '{"retentionSizeInMB": "4"}', RetentionPolicies(0, 4)),
        (RetentionPolicies, '{"retentionTimeInMinutes": "3", "retentionSizeInMB": null}', RetentionPolicies(3, 0)),
        (RetentionPolicies, '{"retentionTimeInMinutes": "soon"}', REFUSED),
        (RetentionPolicies, '{"minutes": 3}', REFUSED),
        (Quota, '{"limitSize": "10", "limitTime": "", "policy": "sideways"}', REFUSED),
        (Quota, '{"limitSize": "10", "limitTime": ""}', Quota(limit_size=10)),
        (
            AutoTopicCreationOverride,
            '{"allowAutoTopicCreation": "true", "defaultNumPartitions": "2"}',
            AutoTopicCreationOverride(True, None, 2),
        ),
    ],
)
def test_scalars_are_converted(shape: Any, body: str, value: object) -> None:
    reader: BodyReader[object] = BodyReader(shape)
    if value is REFUSED:
        with pytest.raises(msgspec.DecodeError):
            reader.decode(body)
        return
    result = reader.decode(body)
    assert result == value and type(result) is type(value)


def test_an_error_names_the_field() -> None:
    reader: BodyReader[Any] = BodyReader(dict[str, Annotated[int, msgspec.Meta(le=9)]])
    with pytest.raises(msgspec.ValidationError, match=r"Expected `int` <= 9 - at `\$\[\.\.\.\]`"):
        reader.decode(b'{"a": "10"}')


@pytest.mark.parametrize(
    ("body", "status"),
    [(b'"3"', 204), (b" 3 ", 204), (b'""', 406), (b'"0"', 406), (b'"x"', 400), (b"true", 400), (b"[3]", 400)],
)
def test_partitions_as_in_pulsar(admin: Admin, body: bytes, status: int) -> None:
    path = "/admin/v2/persistent/public/default/t/partitions"
    assert admin("PUT", path, content=body).status_code == status
    if status == 204:
        assert admin.get(path)["partitions"] == 3


def test_policies_take_quoted_values(admin: Admin) -> None:
    namespace, topic = "/admin/v2/namespaces/public/default", "/admin/v2/persistent/public/default/t"
    admin.done("PUT", topic)
    admin.done("POST", f"{namespace}/messageTTL", content=b'"60"')
    assert admin.get(f"{namespace}/messageTTL") == 60
    admin.done("POST", f"{namespace}/deduplication", content=b'"true"')
    assert admin.get(f"{namespace}/deduplication") is True
    admin.done("POST", f"{topic}/maxProducers", content=b'"5"')
    assert admin.get(f"{topic}/maxProducers") == 5
    admin.reason(400, "POST", f"{namespace}/messageTTL", content=b'"soon"')
    admin.reason(400, "POST", f"{namespace}/deduplication", content=b'"yes"')

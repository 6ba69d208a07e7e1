"""Assignments of a redrive: what they may be, and the SQL that they become."""

import pytest

from magnetar.errors import InvalidSetting
from magnetar.pipelines.redrive.assignments import ASSIGNMENTS_MAX, ColumnAssignment, assigned_column, parse_assignments


def test_sp3_columns_fields_and_properties_can_be_assigned() -> None:
    texts = ["payload.a.b = upper(x) = 'Y'", "properties.fixed='yes'", "properties['a b'] = null", "key = string(1)"]
    found = parse_assignments(texts)
    assert found == (
        ColumnAssignment("payload", ("a", "b"), "upper(x) = 'Y'"),
        ColumnAssignment("properties", ("fixed",), "'yes'"),
        ColumnAssignment("properties", ("a b",), "null"),
        ColumnAssignment("key", (), "string(1)"),
    )
    assert assigned_column(found[2:]) == (
        "to_json(named_struct('0', null, '1', string(1)), map('ignoreNullFields', 'false'))"
    )


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["key"], "not of the form COLUMN = EXPRESSION"),
        (["key ="], "not of the form COLUMN = EXPRESSION"),
        (["key == 1"], "not of the form COLUMN = EXPRESSION"),
        (["topic = 'x'"], "'topic' cannot be assigned, but key, ordering_key"),
        (["payload.a-b = 1"], "cannot be assigned"),
        (["payload.a = 1", "payload.a.b = 2"], "overwrites"),
        (["payload = 1", "payload.a = 2"], "overwrites"),
        (["value = 'x'", "payload.a = 2"], "exclude each other"),
        (["key = " + "x" * 20_000], "exceeds the limit of 10000"),
        ([f"properties.p{number} = 1" for number in range(ASSIGNMENTS_MAX + 1)], "exceed the limit of 50"),
    ],
)
def test_sp3_other_assignments_are_refused(texts: list[str], reason: str) -> None:
    with pytest.raises(InvalidSetting, match=reason):
        parse_assignments(texts)

"""Parsing of arguments: durations, sizes, times, positions and names."""

from __future__ import annotations

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from magnetar.cli import argument
from magnetar.cli.argument import EARLIEST, LATEST, MessagePosition, NamespaceName


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90", 90),
        ("90s", 90),
        ("5m", 300),
        ("3h", 10_800),
        ("2D", 172_800),
        ("1w", 604_800),
        ("1y", 31_536_000),
    ],
)
def test_durations(text: str, seconds: int) -> None:
    assert argument.parse_duration(text) == argument.parse_duration_or_infinite(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-1", "-3h", "1.5h", "3 h", "3x", "3hh", "٣h", "1e3"])
def test_invalid_durations(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a duration such as"):
        argument.parse_duration(text)


def test_a_duration_must_be_a_whole_number_of_the_requests_unit() -> None:
    assert argument.parse_duration_with_unit("60m") == 3600
    assert argument.parse_duration_with_unit("0") == 0
    with pytest.raises(typer.BadParameter, match="'60' needs a unit, such as 60m for minutes"):
        argument.parse_duration_with_unit("60")


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("4096", 4096), ("100K", 102_400), ("10m", 10 << 20), ("16GB", 16 << 30), ("2T", 2 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    assert argument.parse_size(text) == argument.parse_size_or_infinite(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1", "1.5G", "10X", "0x10"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a size such as"):
        argument.parse_size(text)


def test_minus_one_means_unlimited() -> None:
    assert argument.parse_size_or_infinite("-1") == argument.parse_duration_or_infinite("-1") == -1


@given(st.text())
def test_any_text_is_a_value_or_a_usage_error(text: str) -> None:
    for parse in (
        argument.parse_duration,
        argument.parse_size,
        argument.parse_time,
        argument.parse_position,
        argument.parse_topic,
        argument.parse_namespace_name,
        argument.parse_tenant,
        argument.parse_property,
        argument.whole(0),
    ):
        try:
            parse(text)
        except typer.BadParameter as error:
            assert str(error)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", EARLIEST),
        ("Latest", LATEST),
        ("3:4", MessagePosition(3, 4)),
        ("3:4:0", MessagePosition(3, 4, 0)),
        ("3:4:-1:2", MessagePosition(3, 4, -1, 2)),
    ],
)
def test_positions(text: str, position: MessagePosition) -> None:
    assert argument.parse_position(text) == position


@pytest.mark.parametrize(
    "text", ["", "3", "3:", "first", "-1:-1", "3:4:5:6:7", "9223372036854775808:0", "1:1:2147483648"]
)
def test_invalid_positions(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        argument.parse_position(text)


def test_times_are_utc_unless_they_have_a_zone() -> None:
    assert argument.parse_time("1970-01-01T00:00:01") == argument.parse_time("1970-01-01T01:00:01+01:00") == 1000


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("orders", "is not of the form tenant/namespace; did you mean public/orders?"),
        ("public", "did you mean public/default?"),
        ("acme/shop/orders", "did you mean acme/shop?"),
        ("persistent://acme/shop/orders", "is a topic name"),
        ("acme/", "namespace name ''"),
    ],
)
def test_an_invalid_namespace_is_explained(text: str, hint: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        argument.parse_namespace_name(text)
    assert hint in str(caught.value)


def test_names() -> None:
    assert argument.parse_namespace_name("acme/shop") == NamespaceName("acme", "shop")
    assert argument.parse_topic("orders").full == "persistent://public/default/orders"
    with pytest.raises(typer.BadParameter, match=r"did you mean public/default/orders\?"):
        argument.parse_topic("default/orders")
    with pytest.raises(typer.BadParameter, match=r"did you mean acme\?"):
        argument.parse_tenant("acme/shop")


@pytest.mark.parametrize("text", ["0", "11", "x", "", "1.5", "1" * 5000])
def test_a_number_that_is_wrong_is_shown_with_its_limits(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not an integer from 1 to 10"):
        argument.whole(1, 10)(text)


def test_choices_are_case_insensitive() -> None:
    assert argument.words_of(argument.TopicMode)("all, persistent") == ["ALL", "PERSISTENT"]
    for text in ("", ",", "all,none"):
        with pytest.raises(typer.BadParameter):
            argument.words_of(argument.TopicMode)(text)


@pytest.mark.parametrize("text", ["500 ms", "x", "1s,y", "ms"])
def test_an_invalid_delay_lists_milliseconds(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a delay such as 500ms"):
        argument.parse_delays(text)

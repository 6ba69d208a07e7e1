"""Names of topics in remote clusters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.errors import InvalidName
from magnetar.names import TopicName
from magnetar.replication.model import DeclaredRoute, RoutePolicy
from magnetar.replication.topic_template import (
    FIELDS,
    check_covers,
    check_template,
    clashes,
    remote_topic,
    wanted_topic,
    with_clashes,
)

ORDERS = "persistent://public/default/orders"


@pytest.mark.parametrize(
    ("template", "renamed"),
    [
        ("", ORDERS),
        ("{topic}-eu", "persistent://public/default/orders-eu"),
        ("{tenant}/{namespace}/{topic}.copy", "persistent://public/default/orders.copy"),
        ("persistent://copies/{tenant}/{namespace}.{topic}", "persistent://copies/public/default.orders"),
        ("archive/all/same", "persistent://archive/all/same"),
        ("persistent://{topic}.{topic}", "persistent://public/default/orders.orders"),
        ("{topic}", ORDERS),
    ],
)
def test_sp6_a_topic_and_its_partitions_get_the_name_of_the_template(template: str, renamed: str) -> None:
    if template:
        check_template(template)
    assert remote_topic(ORDERS, template) == renamed
    assert remote_topic("orders", template) == renamed
    assert remote_topic(f"{ORDERS}-partition-12", template) == f"{renamed}-partition-12"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("  ", "is empty"),
        ("{cluster}-{topic}", "unknown field {cluster}: the fields are {tenant}, {namespace}, {topic}"),
        ("{}", "unknown field {}"),
        ("{topic!r}", "unknown field {topic!r}"),
        ("{topic", "has an unmatched { at 0"),
        ("topic}", "has an unmatched } at 5"),
        ("a/b", "does not give a topic name"),
        ("a/b/c/{topic}", "does not give a topic name"),
        ("te nant/{namespace}/{topic}", "does not give a topic name"),
        ("{tenant}/{namespace}/", "does not give a topic name"),
        ("non-persistent://a/b/{topic}", "only persistent topics"),
        ("{topic}-partition-0", "ends like a partition"),
        ("{topic}-partition-", "ends like a partition"),
        ("x" * 2000, "2000 characters, more than 1024"),
    ],
)
def test_a_template_without_a_topic_name_is_rejected_when_set(template: str, reason: str) -> None:
    with pytest.raises(InvalidName) as refused:
        check_template(template)
    assert reason in str(refused.value)
    assert template[:100] in str(refused.value)


def test_a_template_of_a_namespace_must_contain_the_topic() -> None:
    check_covers("copies", of_namespace=False)
    check_covers("{topic}-eu", of_namespace=True)
    with pytest.raises(InvalidName, match="all topics of the namespace would have the same name"):
        check_covers("copies", of_namespace=True)


def test_without_a_slash_it_is_a_name_in_the_same_namespace() -> None:
    assert remote_topic("a/b/t", "{topic}-eu") == "persistent://a/b/t-eu"


def test_sp6_clusters_that_replicate_both_ways_do_not_rename_repeatedly() -> None:
    for template in ("{topic}-eu", "copies/{tenant}/{namespace}.{topic}", "{topic}{topic}"):
        once = remote_topic("a/b/t-partition-1", template)
        assert once != "persistent://a/b/t-partition-1"
        assert remote_topic(once, template) == once


def test_two_topics_with_the_same_remote_name_clash() -> None:
    assert clashes([("a/b/t", "x/y/{topic}"), ("a/c/t", "x/y/{namespace}.{topic}"), ("a/b/t-partition-1", "")]) == {}
    found = clashes([("a/b/t", "x/y/{topic}"), ("a/c/t", "x/y/{topic}"), ("a/b/u", "x/y/{topic}")])
    assert list(found) == ["persistent://a/b/t", "persistent://a/c/t"]
    for reason in found.values():
        for named in ("persistent://a/b/t", "persistent://a/c/t", "persistent://x/y/t"):
            assert named in reason


def test_b2_a_clash_is_that_of_two_topics_and_one_remote_cluster() -> None:
    renamed = RoutePolicy(rename="{topic}-eu")
    routes = [
        DeclaredRoute(full, 0, remote, renamed if remote == "b" else RoutePolicy())
        for full in (ORDERS, f"{ORDERS}-eu", "persistent://public/default/people")
        for remote in "bc"
    ]
    found = {(route.topic, route.remote) for route in with_clashes(routes) if route.clash}
    assert found == {(ORDERS, "b"), (f"{ORDERS}-eu", "b")}
    assert all((wanted_topic(route, "a") is None) == bool(route.clash) for route in with_clashes(routes))


def test_b2_a_renamed_topic_is_wanted_as_a_copy() -> None:
    for rename, copy_of in (("", ""), ("{topic}", ""), ("{topic}-eu", f"a/{ORDERS}")):
        wanted = wanted_topic(DeclaredRoute(ORDERS, 0, "b", RoutePolicy(rename=rename)), "a")
        assert wanted is not None and wanted.copy_of == copy_of


def test_a_name_too_long_with_its_template_is_rejected_for_that_topic() -> None:
    template = "{topic}" * 100
    check_template(template)
    with pytest.raises(
        InvalidName, match="does not give a name for topic persistent://public/default/orders-of-the-year"
    ):
        remote_topic("orders-of-the-year", template)
    assert clashes([("orders-of-the-year", template), ("t", "")]) == {}


@given(st.lists(st.sampled_from([*(f"{{{field}}}" for field in FIELDS), "a", "-", ".", "/", "{", "}", "://"])))
def test_a_checked_template_gives_valid_names(pieces: list[str]) -> None:
    template = "".join(pieces)
    try:
        check_template(template)
    except InvalidName:
        return
    renamed = remote_topic(f"{ORDERS}-partition-3", template)
    assert TopicName.parse(renamed).partition == 3
    assert remote_topic(renamed, template) == renamed

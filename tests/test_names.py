"""Topic and namespace names: spellings, partitions, and rejected names."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.errors import InvalidName
from magnetar.names import (
    PARSED_NAMES_MAX,
    PARTITION_MAX,
    TOPIC_NAME_BYTES_MAX,
    TopicName,
    _parse_topic,
    check_entity,
    parse_namespace,
)

entities = st.text(string.ascii_letters + string.digits + "-=:._", min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..")
)
locals_ = st.text(
    st.characters(exclude_characters="/", exclude_categories=("Cc", "Cs")), min_size=1, max_size=40
).filter(lambda name: not name.isspace() and name not in (".", "..") and "://" not in name)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("orders", "persistent://public/default/orders"),
        ("acme/shop/orders", "persistent://acme/shop/orders"),
        ("persistent://acme/shop/orders", "persistent://acme/shop/orders"),
        ("non-persistent://acme/shop/orders", "non-persistent://acme/shop/orders"),
        ("persistent://a=b/c:d.e_f-g/größe {1}?#%2F", "persistent://a=b/c:d.e_f-g/größe {1}?#%2F"),
        ("persistent://acme/shop/a://b", None),
    ],
)
def test_every_spelling_leads_to_the_full_name(text: str, full: str | None) -> None:
    if full is None:
        with pytest.raises(InvalidName):
            TopicName.parse(text)
        return
    assert TopicName.parse(text).full == str(TopicName.parse(text)) == full


def test_the_parts_of_a_name() -> None:
    name = TopicName.parse("non-persistent://acme/shop/orders-partition-12")
    assert (name.domain, name.tenant, name.namespace, name.local) == (
        "non-persistent",
        "acme",
        "shop",
        "orders-partition-12",
    )
    assert name.namespace_full == "acme/shop"
    assert name.partition == 12
    assert name.is_partition
    assert not name.is_persistent
    assert name.base.full == "non-persistent://acme/shop/orders"
    assert not name.base.is_partition
    assert name.base.partition == -1
    assert TopicName.parse("orders").is_persistent


def test_partitions_of_a_topic() -> None:
    base = TopicName.parse("orders")
    assert base.base == base
    assert base.with_partition(3) == TopicName.parse("orders-partition-3")
    # Metadata may exist under the name of a partition (AC7); its partitions are not its siblings.
    assert base.with_partition(3).with_partition(4) == TopicName.parse("orders-partition-3-partition-4")
    assert base.with_partition(PARTITION_MAX).partition == PARTITION_MAX
    for index in (-1, PARTITION_MAX + 1):
        with pytest.raises(InvalidName, match=f"partition {index} of topic persistent://public/default/orders"):
            base.with_partition(index)


@pytest.mark.parametrize(
    ("local", "partition"),
    [
        ("t-partition-0", 0),
        ("t-partition-10", 10),
        ("t-partition-01", -1),
        ("t-partition-00", -1),
        ("t-partition-", -1),
        ("t-partition--1", -1),
        ("t-partition-1x", -1),
        ("t-partition-٣", -1),
        ("t-PARTITION-1", -1),
        ("-partition-1", -1),
        ("t-partition-2147483647", 2147483647),
        ("t-partition-2147483648", -1),
        ("t-partition-99999999999999999999", -1),
        ("t-partition-0-partition-1", 1),
        ("t-partition-0-sub-DLQ", -1),
    ],
)
def test_only_a_canonical_number_denotes_a_partition(local: str, partition: int) -> None:
    name = TopicName.parse(local)
    assert name.partition == partition
    assert name.base.full == (name.full if partition < 0 else name.full.removesuffix(f"-partition-{partition}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty last part"),
        ("   ", "empty last part"),
        ("a/b", "not of the form"),
        ("bad//name", "tenant name 'bad'|namespace name ''"),
        ("persistent://a/b/", "empty last part"),
        ("persistent:///b/c", "tenant name ''"),
        ("persistent://orders", "not of the form"),
        ("persistent://a/b/c/d", "four parts: names with a cluster"),
        ("a/b/c/d", "four parts"),
        ("a/b/c/", "not of the form"),
        ("a/b/c/d/e", "not of the form"),
        ("kafka://a/b/c", "domain 'kafka' .* is not one of persistent, non-persistent"),
        ("Persistent://a/b/c", "domain 'Persistent'"),
        ("a b/c/d", "tenant name 'a b' may only contain letters"),
        ("é/c/d", r"tenant name '\\xe9'"),
        ("a/c\n/d", r"namespace name 'c\\n'"),
        ("../c/d", "tenant name '..'"),
        ("a/./d", "namespace name '.'"),
        ("a/b/..", "ends in .., which a URL cannot contain"),
        ("t\x00", r"control character U\+0000 at 1"),
        ("t\n", r"control character U\+000A"),
        ("t\x7f", r"control character U\+007F"),
        ("t\x85", r"control character U\+0085"),
        ("t\ud800", "not valid unicode"),
    ],
)
def test_illegal_names_are_rejected_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(InvalidName, match=message):
        TopicName.parse(text)


def test_bound_topic_name_counts_bytes_of_the_full_name() -> None:
    room = TOPIC_NAME_BYTES_MAX - len("persistent://public/default/")
    assert TopicName.parse("é" * (room // 2)).local == "é" * (room // 2)
    with pytest.raises(InvalidName, match=f"topic name of {TOPIC_NAME_BYTES_MAX + 1} bytes exceeds the limit of 1024"):
        TopicName.parse("x" * (room + 1))


def test_a_huge_name_is_shortened_in_the_error() -> None:
    with pytest.raises(InvalidName) as refused:
        TopicName.parse("a/" + "b" * 1_000_000)
    assert len(str(refused.value)) < 300


def test_names_are_values() -> None:
    name = TopicName.parse("orders")
    assert name == TopicName.parse("persistent://public/default/orders")
    assert len({name, TopicName.parse("persistent://public/default/orders"), TopicName.parse("other")}) == 2
    with pytest.raises(AttributeError):
        name.local = "other"  # type: ignore[misc]


def test_bound_parsed_names_are_cached() -> None:
    for number in range(PARSED_NAMES_MAX + 10):
        TopicName.parse(f"topic-{number}")
    assert _parse_topic.cache_info().currsize == PARSED_NAMES_MAX
    last = f"topic-{PARSED_NAMES_MAX}"
    assert TopicName.parse(last) is TopicName.parse(last)


def test_namespaces() -> None:
    assert parse_namespace("acme/shop") == ("acme", "shop")
    for text in ("acme", "", "acme/shop/x", "/shop", "acme/", "a b/c", "acme/.."):
        with pytest.raises(InvalidName):
            parse_namespace(text)


def test_entities() -> None:
    assert check_entity("cluster", "us-west=1") == "us-west=1"
    with pytest.raises(InvalidName, match="cluster name 'a/b' may only contain"):
        check_entity("cluster", "a/b")
    with pytest.raises(InvalidName, match="tenant name of 1025 bytes exceeds the limit of 1024"):
        check_entity("tenant", "a" * 1025)


@given(st.sampled_from(["persistent", "non-persistent"]), entities, entities, locals_)
def test_a_legal_name_round_trips_through_its_parts(domain: str, tenant: str, namespace: str, local: str) -> None:
    name = TopicName.parse(f"{domain}://{tenant}/{namespace}/{local}")
    assert (name.domain, name.tenant, name.namespace, name.local) == (domain, tenant, namespace, local)
    assert TopicName.parse(name.full) == name
    part = name.base.with_partition(7)
    assert (part.partition, part.base) == (7, name.base)


@given(st.text(max_size=60))
def test_any_text_is_a_name_or_rejected(text: str) -> None:
    try:
        name = TopicName.parse(text)
    except InvalidName:
        return
    assert name.full.endswith(text)
    assert TopicName.parse(name.full) == name

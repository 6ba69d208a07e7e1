"""Specs of declared pipelines: what a broker without Spark finds wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.declared.verbs import VERBS, checked_fields, spec_of, verb_named
from magnetar.errors import InvalidSetting
from magnetar.pipeline_bounds import ARCHIVE_TOPICS, PIPELINE_SPEC, REDRIVE_PATTERNS, REDRIVE_SOURCES

PROCESS = {"topic": "orders", "subscription": "billing"}
ARCHIVE = {"topics": ["orders"], "path": "/data"}


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        ("redrive", {"sources": ["orders-billing-DLQ"]}),
        ("redrive", {"sources": ["acme/shop"], "where": "__key = 'a'", "set": {"value": "upper(value)"}, "rate": 5}),
        ("redrive", {"sources": ["x-*-DLQ"], "to": "acme/shop/fixed", "function": "my.module:fix", "rate": 9.0}),
        ("process", {**PROCESS, "function": "my:charge", "into": "invoices", "retry": ["10s", "1m"]}),
        ("process", {**PROCESS, "sql": "select * from orders"}),
        ("archive", {**ARCHIVE, "format": "orc"}),
    ],
)
def test_sp3_sp7_valid_specs_are_kept_with_full_names(verb: str, fields: dict[str, Any]) -> None:
    found = checked_fields(verb, fields, "acme/shop")
    assert found.keys() == fields.keys()
    assert checked_fields(verb, found, "other/namespace") == found
    named = [*(found.get(field) for field in ("topic", "into", "to")), *found.get("sources", found.get("topics", ()))]
    assert all(name is None or name.startswith("persistent://acme/shop/") or name == "acme/shop" for name in named)


@pytest.mark.parametrize(
    ("verb", "fields", "reason"),
    [
        ("copy", {}, "verb 'copy' is not one of redrive, process, archive"),
        ("redrive", {}, "missing required field `sources`"),
        ("redrive", {"sources": []}, "sources is empty"),
        ("redrive", {"sources": ["x"], "sauce": 1}, "unknown field `sauce`"),
        ("redrive", {"sources": ["a/b/c/d"]}, "is not a persistent topic, a pattern or a namespace"),
        ("redrive", {"sources": ["x"], "rate": 0}, "rate"),
        ("redrive", {"sources": ["x"], "where": "java_method('a', 'b')"}, "java_method"),
        ("redrive", {"sources": ["x"], "set": {"value": "reflect('a', 'b')"}}, "reflect"),
        ("redrive", {"sources": ["x"], "to": "a/b"}, "a/b"),
        ("redrive", {"sources": ["x"], "function": "os.system"}, "is not of the form module:name"),
        ("process", PROCESS, "either function or sql"),
        ("process", {**PROCESS, "function": "a:b", "sql": "select 1"}, "either function or sql"),
        ("process", {**PROCESS, "subscription": "", "sql": "select 1"}, "subscription is empty"),
        ("archive", {**ARCHIVE, "topics": []}, "topics is empty"),
        ("archive", {**ARCHIVE, "path": " "}, "path is empty"),
    ],
)
def test_sp3_invalid_specs_are_refused_with_the_reason(verb: str, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        checked_fields(verb, fields, "acme/shop")
    assert reason in str(refused.value)


def test_sp7_every_topic_of_a_spec_gets_its_full_name() -> None:
    """A field that is left out would be one of another namespace to the process."""
    for verb, known in VERBS.items():
        named = {*known.topics, *known.topic_maps, *known.topic_sets}
        assert named <= {*known.spec.__struct_fields__}, verb
        about_topics = {name for name in known.spec.__struct_fields__ if "topic" in name}
        assert about_topics <= named, verb
    topics = {"retryTopic": "r", "deadLetterTopic": "d", "deadLetterTopics": {"ValueError": "v"}}
    found = checked_fields("process", {**PROCESS, "function": "a:b", **topics}, "acme/shop")
    assert found["deadLetterTopics"] == {"ValueError": "persistent://acme/shop/v"}
    assert (found["retryTopic"], found["deadLetterTopic"]) == ("persistent://acme/shop/r", "persistent://acme/shop/d")


def test_bound_pipeline_spec() -> None:
    with pytest.raises(InvalidSetting, match=str(PIPELINE_SPEC.limit)):
        checked_fields("process", {**PROCESS, "sql": "x" * PIPELINE_SPEC.limit}, "acme/shop")
    checked_fields("process", {**PROCESS, "sql": "x" * (PIPELINE_SPEC.limit - 200)}, "acme/shop")


def test_bound_redrive_sources() -> None:
    names = [f"t{number}-DLQ" for number in range(REDRIVE_SOURCES.limit + 1)]
    checked_fields("redrive", {"sources": names[1:]}, "acme/shop")
    with pytest.raises(InvalidSetting, match=f"limit is {REDRIVE_SOURCES.limit}"):
        checked_fields("redrive", {"sources": names}, "acme/shop")


def test_bound_redrive_patterns() -> None:
    names = [f"t{number}-*-DLQ" for number in range(REDRIVE_PATTERNS.limit + 1)]
    checked_fields("redrive", {"sources": names[1:]}, "acme/shop")
    with pytest.raises(InvalidSetting, match=f"limit is {REDRIVE_PATTERNS.limit}"):
        checked_fields("redrive", {"sources": names}, "acme/shop")


def test_bound_archive_topics() -> None:
    names = [f"t{number}" for number in range(ARCHIVE_TOPICS.limit + 1)]
    checked_fields("archive", {**ARCHIVE, "topics": names[1:]}, "acme/shop")
    with pytest.raises(InvalidSetting, match=f"limit is {ARCHIVE_TOPICS.limit}"):
        checked_fields("archive", {**ARCHIVE, "topics": names}, "acme/shop")


@pytest.mark.parametrize(
    ("verb", "fields", "tenants", "runs_code"),
    [
        ("redrive", {"sources": ["x", "b/n"], "to": "c/n/t"}, {"acme", "b", "c"}, False),
        ("redrive", {"sources": ["x"], "function": "a:b"}, {"acme"}, True),
        ("process", {**PROCESS, "sql": "select 1", "into": "b/n/t"}, {"acme", "b"}, True),
        ("archive", {**ARCHIVE, "topics": ["b/n"]}, {"b"}, True),
    ],
)
def test_sp7_what_a_spec_touches(verb: str, fields: dict[str, Any], tenants: set[str], runs_code: bool) -> None:
    spec = spec_of(verb, fields)
    assert verb_named(verb).tenants(spec, "acme/shop") == tenants
    assert verb_named(verb).runs_code(spec) is runs_code

"""Settings: defaults, allowed values, and the reference page."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from magnetar.errors import InvalidSetting
from magnetar.settings.kinds import Choice, Choices, Flag, Listeners, Number, Port, Text, Whole
from magnetar.settings.settings import KINDS, Settings, closest
from tools.settings_reference import HEADINGS, render

REFERENCE_PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def read(**pairs: str) -> Settings:
    settings, unknown = Settings.from_mapping(pairs)
    assert unknown == []
    return settings


def test_defaults_equal_pulsars_where_both_have_the_setting() -> None:
    settings = Settings()
    assert settings.maxMessageSize == 5 * 1024 * 1024
    assert settings.brokerServicePort == 6650
    assert settings.webServicePort == 8080
    assert settings.maxUnackedMessagesPerConsumer == 50_000
    assert settings.maxUnackedMessagesPerSubscription == 200_000
    assert settings.subscriptionTypesEnabled == {"Exclusive", "Shared", "Failover", "Key_Shared"}
    assert settings.acknowledgmentAtBatchIndexLevelEnabled is True
    assert settings.bindAddress == "127.0.0.1"


def test_without_input_all_settings_have_their_default() -> None:
    assert Settings.from_mapping({}) == (Settings(), [])


def test_texts_are_converted_to_values() -> None:
    settings = read(
        maxMessageSize=" 1048576 ",
        backlogQuotaDefaultLimitGB="1.5",
        brokerDeduplicationEnabled="TRUE",
        allowAutoTopicCreationType="partitioned",
        subscriptionTypesEnabled="Shared, Failover",
        clusterName="us-west",
        defaultRetentionTimeInMinutes="-1",
    )
    assert settings.maxMessageSize == 1048576
    assert settings.backlogQuotaDefaultLimitGB == 1.5
    assert settings.brokerDeduplicationEnabled is True
    assert settings.allowAutoTopicCreationType == "partitioned"
    assert settings.subscriptionTypesEnabled == {"Shared", "Failover"}
    assert settings.clusterName == "us-west"
    assert settings.defaultRetentionTimeInMinutes == -1


@pytest.mark.parametrize("name", KINDS)
def test_an_empty_text_means_the_default_and_defaults_round_trip(name: str) -> None:
    if isinstance(KINDS[name], Port):
        assert getattr(read(**{name: ""}), name) is None, "off"
    else:
        assert read(**{name: ""}) == Settings()
    assert read(**{name: KINDS[name].show(getattr(Settings(), name))}) == Settings()


def test_unknown_keys_are_returned_in_order() -> None:
    settings, unknown = Settings.from_mapping({"zookeeperServers": "a", "maxMessageSize": "2048", "authPlugin": "x"})
    assert unknown == ["zookeeperServers", "authPlugin"]
    assert settings.maxMessageSize == 2048


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("backlogQuotaCheckIntervalInSeconds", "abc", "a whole number from 1 to 86400"),
        ("backlogQuotaCheckIntervalInSeconds", "0", "a whole number from 1 to 86400"),
        ("backlogQuotaCheckIntervalInSeconds", "86401", "a whole number from 1 to 86400"),
        ("backlogQuotaCheckIntervalInSeconds", "1_000", "a whole number from 1 to 86400"),
        ("backlogQuotaCheckIntervalInSeconds", "٣", "a whole number from 1 to 86400"),
        ("backlogQuotaCheckIntervalInSeconds", "5.0", "a whole number from 1 to 86400"),
        ("backlogQuotaDefaultLimitGB", "nan", "a number from -1 to 2147483647"),
        ("backlogQuotaDefaultLimitGB", "-2", "a number from -1 to 2147483647"),
        ("allowAutoTopicCreation", "yes", "true or false"),
        ("allowAutoTopicCreationType", "both", "one of non-partitioned, partitioned"),
        (
            "subscriptionTypesEnabled",
            "Shared,Broadcast",
            "one or more, separated by commas, of Exclusive, Shared, Failover, Key_Shared",
        ),
        (
            "subscriptionTypesEnabled",
            ",",
            "one or more, separated by commas, of Exclusive, Shared, Failover, Key_Shared",
        ),
        ("clusterName", "a/b", "letters, digits and the characters - = : . _"),
        ("bindAddress", "two words", "a host name or an IP address"),
    ],
)
def test_an_invalid_value_is_rejected_with_key_value_and_allowed_values(name: str, text: str, allowed: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Settings.from_mapping({name: text})
    assert str(refused.value) == f"{name}={text} is not allowed: {allowed}"


@pytest.mark.parametrize(
    "text", ["west=", "=pulsar://w", "west=w:6650", "west=ftp://w", "west=pulsar://w:0", "west=https://w:70000", "w,,x"]
)
def test_a_trusted_cluster_has_a_name_or_a_name_and_an_address(text: str) -> None:
    with pytest.raises(InvalidSetting, match="is not allowed: names of clusters, or `name=address` as in `west=pulsar"):
        read(replicationTrustedClusters=text)
    for valid in ("", "west", "west , east=pulsar+ssl://e.example:6651,east=https://[::1]:65535"):
        assert read(replicationTrustedClusters=valid).replicationTrustedClusters == valid


def test_a_long_invalid_value_is_shortened_in_the_error() -> None:
    with pytest.raises(InvalidSetting) as refused:
        Settings.from_mapping({"maxMessageSize": "9" * 10_000})
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "values",
    [
        {"maxMessageSize": 1},
        {"maxMessageSize": "5242880"},
        {"maxMessageSize": True},
        {"allowAutoTopicCreation": 1},
        {"subscriptionTypesEnabled": frozenset()},
        {"subscriptionTypesEnabled": ["Shared"]},
    ],
)
def test_settings_with_an_invalid_value_cannot_be_built(values: dict[str, object]) -> None:
    with pytest.raises(InvalidSetting, match="is not allowed"):
        Settings(**values)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="is not allowed"):
        msgspec.structs.replace(Settings(), **values)


def test_settings_are_immutable() -> None:
    with pytest.raises(AttributeError):
        Settings().maxMessageSize = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ({}, -1),
        ({"backlogQuotaDefaultLimitBytes": "1000"}, 1000),
        ({"backlogQuotaDefaultLimitGB": "0.5"}, 1 << 29),
        ({"backlogQuotaDefaultLimitGB": "1", "backlogQuotaDefaultLimitBytes": "1000"}, 1 << 30),
        ({"backlogQuotaDefaultLimitGB": "0", "backlogQuotaDefaultLimitBytes": "1000"}, 1000),
    ],
)
def test_the_backlog_quota_in_bytes(pairs: dict[str, str], expected: int) -> None:
    assert read(**pairs).backlog_quota_bytes == expected


@pytest.mark.parametrize(
    ("name", "near"),
    [("maxMesageSize", "maxMessageSize"), ("MAXMESSAGESIZE", "maxMessageSize"), ("zzzzqqqq", None)],
)
def test_a_close_name_is_suggested(name: str, near: str | None) -> None:
    assert closest(name) == near


@pytest.mark.parametrize("name", KINDS)
def test_every_setting_has_one_sentence_and_fits_its_type(name: str) -> None:
    kind = KINDS[name]
    assert kind.meaning[0].isupper()
    assert kind.meaning.endswith(".")
    assert "|" not in kind.allowed + kind.meaning, "it would break the table of the reference page"
    types = {Whole: int, Number: float, Flag: bool, Text: str, Choice: str, Choices: frozenset, Listeners: str}
    value = getattr(Settings(), name)
    if isinstance(kind, Port):
        assert value is None or type(value) is int
    else:
        assert type(value) is types[type(kind)]


def test_the_reference_page_is_generated_from_the_settings() -> None:
    assert REFERENCE_PAGE.read_text(encoding="utf-8") == render(), "run `make docs`"


def test_every_heading_is_followed_by_a_setting() -> None:
    assert set(HEADINGS) <= set(KINDS)
    assert next(iter(KINDS)) in HEADINGS

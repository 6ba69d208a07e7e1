"""Advertised listeners: Pulsar's format, and the listener of a client."""

from __future__ import annotations

import pytest

from magnetar.errors import InvalidSetting, NotAllowed
from magnetar.settings.listeners import LISTENERS_MAX, Listener
from magnetar.settings.settings import Settings

TWO = "inside:pulsar://10.0.0.7:6650, outside:pulsar://localhost:7650,outside:http://[::1]:7080/"


def test_a_client_gets_the_listener_that_it_names_or_the_internal_one() -> None:
    settings = Settings(advertisedListeners=TWO)
    assert settings.listener() == settings.listener("inside") == Listener("pulsar://10.0.0.7:6650")
    assert settings.listener("outside") == Listener("pulsar://localhost:7650", "http://[::1]:7080")
    assert settings.listener("internal") == Listener(), "it is made of the ports"
    with pytest.raises(NotAllowed, match="advertisedListeners has no listener 'x', only inside, outside"):
        settings.listener("x")


def test_the_internal_listener_can_be_named_or_be_the_ports() -> None:
    assert Settings(advertisedListeners=TWO, internalListenerName="outside").listener() == Listener(
        "pulsar://localhost:7650", "http://[::1]:7080"
    )
    ports = Settings(advertisedListeners=TWO, internalListenerName="lan")
    assert ports.listener() == ports.listener("lan") == Listener()


def test_a_listener_has_an_address_of_each_scheme() -> None:
    four = "a:pulsar://h:1,a:pulsar+ssl://h:2,a:http://h:3,a:https://h:4"
    whole = Listener("pulsar://h:1", "http://h:3", "pulsar+ssl://h:2", "https://h:4")
    assert Settings(advertisedListeners=four).listener() == whole
    ports = Listener("pulsar://p:1", "http://p:2", "pulsar+ssl://p:3", "https://p:4")
    assert whole.or_else(ports) == whole
    assert Listener().or_else(ports) == ports
    half = Settings(advertisedListeners="a:pulsar+ssl://h:2").listener()
    assert half.or_else(ports) == Listener("", "http://p:2", "pulsar+ssl://h:2", "https://p:4")
    assert (half.any_service_url, ports.any_service_url) == ("pulsar+ssl://h:2", "pulsar://p:1")
    assert (Listener(http_url_tls="https://h:4").any_http_url, ports.any_http_url) == ("https://h:4", "http://p:2")


def test_without_listeners_a_name_is_refused() -> None:
    assert Settings().listener() == Listener()
    with pytest.raises(NotAllowed, match="no listener 'x'"):
        Settings().listener("x")


@pytest.mark.parametrize(
    "text",
    [
        "pulsar://host:1",
        "a:pulsar://host",
        "a:pulsar://host:0",
        "a:pulsar://host:70000",
        "a:ssl://host:1",
        "a:https://host:1,a:https://host:2",
        "a:pulsar://host:1,a:pulsar://other:1",
        "a b:pulsar://host:1",
        "a:pulsar://ho st:1",
        ",".join(f"n{number}:pulsar://host:1" for number in range(LISTENERS_MAX + 1)),
    ],
)
def test_a_bad_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"advertisedListeners=.* is not allowed: a list of name:scheme"):
        Settings(advertisedListeners=text)

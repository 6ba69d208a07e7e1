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
        "a:pulsar+ssl://host:1",
        "a:https://host:1",
        "a:pulsar://host:1,a:pulsar://other:1",
        "a b:pulsar://host:1",
        "a:pulsar://ho st:1",
        ",".join(f"n{number}:pulsar://host:1" for number in range(LISTENERS_MAX + 1)),
    ],
)
def test_a_bad_list_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"advertisedListeners=.* is not allowed: a list of name:pulsar"):
        Settings(advertisedListeners=text)

"""Connections of proxies: two proofs, that of the proxy and that of its client, and the end of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from passlib.hash import apr_md5_crypt  # type: ignore[import-untyped]

from magnetar.access.authentication import Authentication
from magnetar.access.providers.internal import InternalToken
from magnetar.log.events import AUTHENTICATION_FAILED
from magnetar.session.handles import ClientAddress
from magnetar.session.session import Session
from magnetar.wire import schema_pb2 as pb
from tests.access.keys import token
from tests.broker.world import World
from tests.session.talk import Talk
from tests.session.test_login import answer, kinds, refused, secured

Command = pb.BaseCommand
INTERVAL_MS = 60_000
WEB_SOCKETS = "__websocket_dummy_original_principle"


def world(**settings: Any) -> World:
    return secured(**{"proxyRoles": "proxy", "authenticateOriginalAuthData": True, **settings})


def expiring(world: World, role: str, seconds: int | None) -> bytes:
    return token(sub=role) if seconds is None else token(sub=role, exp=world.clock.now_ms() // 1000 + seconds)


def proxied(world: World, proxy: bytes, client: bytes = b"", **options: Any) -> Talk:
    given = {
        "auth_method_name": "token",
        "original_principal": "ann",
        "original_auth_method": "token",
        "feature_flags": pb.FeatureFlags(supports_auth_refresh=True),
        **options,
    }
    common_name = given.pop("common_name", "")
    talk = Talk(world, connect=False)
    where = ClientAddress("10.0.0.9:1", "", "", common_name=common_name)
    talk.session = Session(world.broker, where, lambda: None, talk._close)
    connect = pb.CommandConnect(
        client_version="t", protocol_version=21, auth_data=proxy, original_auth_data=client.decode(), **given
    )
    talk.send(Command(type=Command.CONNECT, connect=connect))
    return talk


def reasons(world: World) -> list[object]:
    return [values["reason"] for event, values in world.host.events if event is AUTHENTICATION_FAILED]


def test_the_client_of_a_proxy_is_asked_for_a_new_token() -> None:
    one = world()
    talk = proxied(one, expiring(one, "proxy", None), expiring(one, "ann", 30))
    assert kinds(talk) == [Command.CONNECTED]
    one.advance(milliseconds=INTERVAL_MS)
    (asked,) = talk.said()
    assert asked.authChallenge.challenge.auth_data == b"PulsarAuthRefresh"
    later = one.clock.now_ms() // 1000 + 500
    answer(talk, token(sub="ann", exp=later))
    one.advance(milliseconds=3 * INTERVAL_MS)
    assert talk.said() == []
    assert not talk.closed
    principal = talk.session.principal
    assert (principal.role, principal.original, principal.expires_ms) == ("proxy", "ann", later * 1000)


def test_the_client_of_a_proxy_that_does_not_answer_is_disconnected() -> None:
    one = world()
    talk = proxied(one, expiring(one, "proxy", None), expiring(one, "ann", 30))
    one.advance(milliseconds=INTERVAL_MS)
    assert not talk.closed
    one.advance(milliseconds=INTERVAL_MS)
    assert talk.closed
    assert "sent no new ones in time" in str(reasons(one)[-1])


def test_the_client_of_a_proxy_that_cannot_answer_is_disconnected_at_once() -> None:
    one = world()
    talk = proxied(one, expiring(one, "proxy", None), expiring(one, "ann", 30), feature_flags=pb.FeatureFlags())
    one.advance(milliseconds=INTERVAL_MS)
    assert talk.closed
    assert kinds(talk) == [Command.CONNECTED]


@pytest.mark.parametrize("role", ["proxy", "bob"])
def test_the_answer_is_a_proof_of_the_client_and_of_no_other_role(role: str) -> None:
    one = world()
    talk = proxied(one, expiring(one, "proxy", None), expiring(one, "ann", 30))
    talk.said()
    answer(talk, expiring(one, role, 1000))
    assert refused(talk).error == pb.AuthenticationError


@pytest.mark.parametrize("client_seconds", [None, 1000])
def test_a_connection_does_not_outlive_the_token_of_the_proxy(client_seconds: int | None) -> None:
    one = world()
    talk = proxied(one, expiring(one, "proxy", 90), expiring(one, "ann", client_seconds))
    one.advance(milliseconds=INTERVAL_MS)
    assert not talk.closed
    one.advance(milliseconds=INTERVAL_MS)
    assert talk.closed
    assert kinds(talk) == [Command.CONNECTED]  # a challenge would reach the client, which cannot renew this
    assert "the credentials of the proxy expired" in str(reasons(one)[-1])


@pytest.mark.parametrize("new_seconds", [None, 1000])
def test_a_new_token_of_the_client_does_not_extend_that_of_the_proxy(new_seconds: int | None) -> None:
    one = world()
    proxy = expiring(one, "proxy", 90)
    talk = proxied(one, proxy, expiring(one, "ann", 30))
    ends_ms = (one.clock.now_ms() // 1000 + 90) * 1000
    one.advance(milliseconds=INTERVAL_MS)
    assert kinds(talk) == [Command.CONNECTED, Command.AUTH_CHALLENGE]
    answer(talk, expiring(one, "ann", new_seconds))
    assert talk.session.principal.expires_ms == ends_ms
    one.advance(milliseconds=INTERVAL_MS)
    assert talk.closed
    assert talk.said() == []
    assert "the credentials of the proxy expired" in str(reasons(one)[-1])


def test_a_proxy_that_is_believed_ends_with_its_own_token() -> None:
    one = world(authenticateOriginalAuthData=False)
    talk = proxied(one, expiring(one, "proxy", 30), b"what is not looked at")
    assert talk.session.principal.original == "ann"
    one.advance(milliseconds=INTERVAL_MS)
    assert talk.closed
    assert kinds(talk) == [Command.CONNECTED]
    assert "the credentials of the proxy expired" in str(reasons(one)[-1])


@pytest.mark.parametrize("common_name", ["boss", "proxy"])
def test_the_certificate_of_a_proxy_proves_nothing_of_its_client(common_name: str) -> None:
    one = world(authenticationProviders="token,tls")
    by_token = proxied(one, token(sub="proxy"), common_name=common_name, original_auth_method="tls")
    assert refused(by_token).error == pb.AuthenticationError
    assert "no client certificate" in str(reasons(one)[-1])


def test_a_proxy_with_a_certificate_acts_for_a_client_with_a_token() -> None:
    one = world(authenticationProviders="token,tls")
    talk = proxied(one, b"", token(sub="ann"), common_name="proxy", auth_method_name="tls")
    assert kinds(talk) == [Command.CONNECTED]
    assert (talk.session.principal.role, talk.session.principal.original) == ("proxy", "ann")
    answer(talk, b"")  # is not the proof of the certificate
    assert refused(talk).error == pb.AuthenticationError


def test_the_password_of_the_client_of_a_proxy_is_checked_aside(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"ann:{apr_md5_crypt.hash('word')}")
    one = world(authenticationProviders="token,basic", basicAuthConf=str(tmp_path / "users"))
    waiting: list[Any] = []
    one.broker.check_login = lambda work, then, address: waiting.append((work, then))  # type: ignore[method-assign]
    talk = proxied(one, token(sub="proxy"), b"ann:word", original_auth_method="basic")
    assert talk.said() == []
    ((work, then),) = waiting
    work()
    then()
    assert kinds(talk) == [Command.CONNECTED]
    answer(talk, b"ann:wrong")
    work, then = waiting[-1]
    work()
    then()
    assert refused(talk).error == pb.AuthenticationError


def test_a_client_without_a_method_is_anonymous_behind_a_proxy_too() -> None:
    one = world(anonymousUserRole="guest")
    talk = proxied(one, expiring(one, "proxy", 30), original_auth_method="none")
    assert kinds(talk) == [Command.CONNECTED]
    assert talk.session.principal.original == "guest"
    one.advance(milliseconds=INTERVAL_MS)
    assert talk.closed


def test_a_proxy_that_is_believed_may_send_a_new_token_unasked() -> None:
    one = world(authenticateOriginalAuthData=False)
    talk = proxied(one, expiring(one, "proxy", 30))
    answer(talk, expiring(one, "proxy", 1000))
    one.advance(milliseconds=3 * INTERVAL_MS)
    assert not talk.closed
    assert talk.session.principal.original == "ann"


def test_no_proxy_acts_for_the_internal_role() -> None:
    one = world()
    assert refused(proxied(one, token(sub="proxy"), token(sub="$pipelines"))).error == pb.AuthenticationError
    internal = InternalToken()
    one.broker.authentication = Authentication.from_settings(one.broker.settings, internal)
    talk = proxied(one, token(sub="proxy"), internal.text.encode())
    assert refused(talk).error == pb.AuthorizationError


def test_a_proxy_of_web_sockets_shows_nothing_of_its_clients() -> None:
    """As in Pulsar: its own role counts, for which it has rights of its own."""
    one = world()
    talk = proxied(one, token(sub="sockets"), original_principal=WEB_SOCKETS, original_auth_method="")
    assert kinds(talk) == [Command.CONNECTED]
    assert (talk.session.principal.role, talk.session.principal.original) == ("sockets", "")


@pytest.mark.parametrize("seconds", [1, 59, 60, 61])
@pytest.mark.parametrize("can_refresh", [True, False])
def test_an_expired_token_serves_no_longer_than_two_checks(seconds: int, can_refresh: bool) -> None:
    one = secured()
    flags = pb.FeatureFlags(supports_auth_refresh=can_refresh)
    talk = Talk(one, connect=False)
    connect = pb.CommandConnect(
        client_version="t",
        protocol_version=21,
        auth_method_name="token",
        auth_data=expiring(one, "ann", seconds),
        feature_flags=flags,
    )
    talk.send(Command(type=Command.CONNECT, connect=connect))
    ends_ms = talk.session.principal.expires_ms
    assert ends_ms is not None
    while not talk.closed:
        assert one.clock.now_ms() - ends_ms <= INTERVAL_MS * (2 if can_refresh else 1)
        one.advance(milliseconds=500)

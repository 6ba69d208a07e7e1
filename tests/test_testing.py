"""The broker for tests, and the pytest plugin around it."""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta
from pathlib import Path

import pulsar
import pytest

from magnetar.errors import InvalidSetting
from magnetar.storage.api import StorageError
from magnetar.testing import TestBroker, broker

pytest_plugins = ["pytester"]

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def round_trip(running: TestBroker, payload: bytes) -> bytes:
    client = pulsar.Client(running.service_url, logger=QUIET)
    try:
        consumer = client.subscribe("topic", "s")
        client.create_producer("topic").send(payload)
        received: bytes = consumer.receive(10_000).data()
        return received
    finally:
        client.close()


def test_a_client_can_use_it() -> None:
    with broker() as running:
        assert running.service_url.startswith("pulsar://127.0.0.1:")
        assert running.http_url.startswith("http://127.0.0.1:")
        assert round_trip(running, b"hello") == b"hello"


def test_no_thread_is_left() -> None:
    before = set(threading.enumerate())
    with broker() as running:
        round_trip(running, b"x")
        assert set(threading.enumerate()) > before
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name in ("magnetar", "committer")]


def test_after_the_block_it_is_stopped() -> None:
    with broker() as running:
        pass
    with pytest.raises(pulsar.PulsarException):
        client = pulsar.Client(running.service_url, operation_timeout_seconds=1, logger=QUIET)
        client.create_producer("topic")


def test_settings_have_pulsars_names() -> None:
    with broker(clusterName="lab", maxProducersPerTopic=1) as running:
        assert running.server.settings.clusterName == "lab"
        assert running.server.settings.maxProducersPerTopic == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authenticationEnabled", False),
        ("authorizationEnabled", False),
        ("brokerServicePort", 0),
        ("webServicePort", 8080),
        ("tokenSecretKey", "/other/key"),
        ("withoutAuthentication", True),
    ],
)
def test_settings_do_not_take_the_protection_of_a_secure_broker_off(name: str, value: object) -> None:
    with (
        pytest.raises(InvalidSetting, match=r"--secure .*(leave one of the two out|contradict each other)"),
        broker(secure=True, **{name: value}),  # type: ignore[arg-type]
    ):
        pass


def test_settings_that_go_with_a_secure_broker_do_not_replace_its_own() -> None:
    with broker(secure=True, authorizationEnabled=True, superUserRoles="root", authenticateMetricsEndpoint=False) as b:
        settings = b.server.broker.settings
        assert settings.superUserRoles == "root,admin"
        assert not settings.authenticateMetricsEndpoint and settings.authenticationProviders == "token"


def test_a_secure_broker_lets_in_only_who_shows_a_token() -> None:
    with broker(secure=True, clusterName="lab") as running:
        assert running.service_url.startswith("pulsar+ssl://127.0.0.1:")
        assert running.http_url.startswith("https://127.0.0.1:")
        assert running.server.settings.clusterName == "lab"
        for role, error in (("admin", None), ("app", pulsar.AuthorizationError)):
            client = pulsar.Client(
                running.service_url,
                pulsar.AuthenticationToken(running.token(role)),
                tls_trust_certs_file_path=running.trust_certs_file,
                logger=QUIET,
            )
            with contextlib.nullcontext() if error is None else pytest.raises(error):
                client.create_producer("topic").send(b"x")
            client.close()
        folder = Path(running.trust_certs_file).parent
        assert folder.exists()
    assert not folder.exists()


def test_a_broker_without_security_has_no_tokens() -> None:
    with broker() as running, pytest.raises(RuntimeError, match="secure=True"):
        running.token("admin")


def test_an_invalid_setting_is_rejected() -> None:
    with pytest.raises(InvalidSetting, match="maxMessageSize=1 "), broker(maxMessageSize=1):
        pass


def test_an_unknown_setting_is_rejected() -> None:
    with pytest.raises(TypeError, match="noSuchSetting"), broker(noSuchSetting=1):
        pass


def test_messages_in_memory_are_lost_and_those_in_a_folder_are_kept(tmp_path: Path) -> None:
    for data, expected in ((None, 0), (tmp_path, 1)):
        for life in range(2):
            with broker(data) as running:
                if life == 0:
                    round_trip(running, b"x")
                else:
                    assert len(running.run(lambda: list(running.server.broker.catalog.topics))) == expected


def test_a_folder_in_use_is_rejected(tmp_path: Path) -> None:
    with broker(tmp_path), pytest.raises(StorageError), broker(tmp_path):
        pass


def test_run_returns_when_the_result_is_durable(tmp_path: Path) -> None:
    with broker(tmp_path) as running:
        running.run(lambda: running.server.broker.catalog.create_namespace("public/other"))
        assert running.server.broker.commits.idle
    with broker(tmp_path) as running:
        assert "public/other" in running.server.broker.catalog.namespaces


def test_run_propagates_errors() -> None:
    with broker() as running, pytest.raises(ZeroDivisionError):
        running.run(lambda: 1 // 0)


def test_advance_fires_due_timers_at_their_time() -> None:
    with broker() as running:
        fired: list[tuple[str, int]] = []
        start_ms = running.clock.now_ms()
        at = running.server.broker.wake_at
        for name, minutes in (("late", 9), ("early", 1), ("never", 30)):
            running.run(
                lambda name=name, minutes=minutes: at(  # type: ignore[misc]
                    start_ms + minutes * 60_000,
                    lambda: fired.append((name, (running.clock.now_ms() - start_ms) // 60_000)),
                )
            )
        running.advance(minutes=10)
        assert fired == [("early", 1), ("late", 9)]


def test_advance_fires_intervals_and_times_in_order() -> None:
    with broker() as running:
        fired: list[str] = []
        core = running.server.broker
        now_ms = running.clock.now_ms()
        running.run(lambda: core.wake_after(7 * 60_000, lambda: fired.append("interval")))
        running.run(lambda: core.wake_at(now_ms + 3 * 60_000, lambda: fired.append("early")))
        running.run(lambda: core.wake_at(now_ms + 9 * 60_000, lambda: fired.append("late")))
        running.advance(minutes=10)
        assert fired == ["early", "interval", "late"]


def test_a_broker_that_stopped_by_itself_is_closed_normally() -> None:
    with broker() as running:
        running.run(running.server.stop)
        running._thread.join(10)
        assert not running._thread.is_alive()


def test_advance_delivers_delayed_messages() -> None:
    with broker() as running:
        client = pulsar.Client(running.service_url, logger=QUIET)
        consumer = client.subscribe("topic", "s", pulsar.ConsumerType.Shared)
        client.create_producer("topic").send(b"later", deliver_after=timedelta(minutes=10))
        running.advance(minutes=10)
        assert consumer.receive(10_000).data() == b"later"
        client.close()


def test_the_fixture_and_its_marker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pulsar
        import pytest

        def produce(running):
            logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
            client = pulsar.Client(running.service_url, logger=logger)
            client.create_producer("topic").send(b"x")
            client.close()

        def test_plain(magnetar_broker):
            produce(magnetar_broker)
            assert not magnetar_broker.server.settings.brokerDeduplicationEnabled

        def test_each_test_has_its_own(magnetar_broker):
            assert not magnetar_broker.server.broker.catalog.topics

        @pytest.mark.magnetar(brokerDeduplicationEnabled=True)
        def test_with_settings(magnetar_broker):
            produce(magnetar_broker)
            assert magnetar_broker.server.settings.brokerDeduplicationEnabled

        @pytest.mark.magnetar(secure=True)
        def test_secure(magnetar_broker):
            client = pulsar.Client(
                magnetar_broker.service_url,
                pulsar.AuthenticationToken(magnetar_broker.token("admin")),
                tls_trust_certs_file_path=magnetar_broker.trust_certs_file,
                logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
            )
            client.create_producer("topic").send(b"x")
            client.close()
        """
    )
    result = pytester.runpytest_subprocess("--strict-markers", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=4)


def test_the_marker_is_documented(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.magnetar(*settings)*"])

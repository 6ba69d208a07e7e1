"""Lookup of a topic's broker: redirects, proxies, several addresses."""

from __future__ import annotations

from itertools import count

import pytest

from magnetar.client import Client
from magnetar.client.errors import ConnectionLost, InvalidArgument, NotFound, NotSupported, ServerFailure
from magnetar.testing import TestBroker
from magnetar.wire import schema_pb2 as pb
from tests.client.fake_broker import Answer, Command, FakeBroker, fake_broker, lookup_response


def looking_up(url: str, *, redirect: bool = False, proxy: bool = False) -> Answer:
    def answer(broker: FakeBroker, command: Command) -> Command | None:
        return lookup_response(command, url, redirect=redirect, proxy=proxy) if command.type == Command.LOOKUP else None

    return answer


def test_the_owner_of_the_topic_is_used() -> None:
    with fake_broker() as owner, fake_broker(looking_up(owner.url)) as asked, Client(asked.url) as client:
        client.producer("t").send(b"x")
        assert asked.types() == ["CONNECT", "PARTITIONED_METADATA", "LOOKUP"]
        assert owner.types() == ["CONNECT", "PRODUCER", "SEND"]


def test_a_redirect_is_followed_with_its_authority_flag() -> None:
    with (
        fake_broker() as owner,
        fake_broker(looking_up(owner.url)) as second,
        fake_broker(looking_up(second.url, redirect=True)) as first,
        Client(first.url) as client,
    ):
        client.producer("t").send(b"x")
        assert [command.lookupTopic.authoritative for command in first.received if command.type == Command.LOOKUP] == [
            False
        ]
        assert second.types() == ["CONNECT", "LOOKUP"]
        assert second.received[-1].lookupTopic.authoritative
        assert owner.types() == ["CONNECT", "PRODUCER", "SEND"]


def test_endless_redirects_are_an_error() -> None:
    def again(broker: FakeBroker, command: Command) -> Command | None:
        return lookup_response(command, broker.url, redirect=True) if command.type == Command.LOOKUP else None

    with (
        fake_broker(again) as fake,
        Client(fake.url) as client,
        pytest.raises(ServerFailure, match="redirected more than 20 times"),
    ):
        client.producer("t")


def test_a_proxy_receives_the_brokers_address() -> None:
    with fake_broker(looking_up("pulsar://inside:6650", proxy=True)) as proxy, Client(proxy.url) as client:
        client.producer("t").send(b"x")
        connects = [command.connect for command in proxy.received if command.type == Command.CONNECT]
        assert [connect.proxy_to_broker_url for connect in connects] == ["", "inside:6650"]
        assert proxy.types()[-2:] == ["PRODUCER", "SEND"]


@pytest.mark.parametrize(
    ("url", "error"),
    [("nonsense", InvalidArgument), ("pulsar+ssl://a:6651", NotSupported), ("", ServerFailure)],
)
def test_a_broker_with_an_invalid_address(url: str, error: type[Exception]) -> None:
    with fake_broker(looking_up(url)) as fake, Client(fake.url) as client, pytest.raises(error):
        client.producer("t")


def test_a_failed_lookup() -> None:
    def fail(broker: FakeBroker, command: Command) -> Command | None:
        if command.type != Command.LOOKUP:
            return None
        kind = pb.CommandLookupTopicResponse
        response = kind(
            request_id=command.lookupTopic.request_id, response=kind.Failed, error=pb.TopicNotFound, message="gone"
        )
        return Command(type=Command.LOOKUP_RESPONSE, lookupTopicResponse=response)

    with (
        fake_broker(fail) as fake,
        Client(fake.url) as client,
        pytest.raises(NotFound, match="lookup of persistent://public/default/t: gone"),
    ):
        client.producer("t")


def dead_address() -> str:
    with fake_broker() as fake:
        return fake.address


def test_the_next_address_is_tried(running: TestBroker, topic: str) -> None:
    live = running.service_url.removeprefix("pulsar://")
    with Client(f"pulsar://{dead_address()},{live}") as client:
        client.producer(topic).send(b"x")


def test_the_next_http_address_is_tried(running: TestBroker, topic: str) -> None:
    live = running.http_url.removeprefix("http://")
    with Client(f"http://{dead_address()},{live}") as client:
        client.producer(topic).send(b"x")


@pytest.mark.parametrize("scheme", ["pulsar", "http"])
def test_all_addresses_are_named_when_none_answers(scheme: str) -> None:
    first, second = dead_address(), dead_address()
    with Client(f"{scheme}://{first},{second}") as client, pytest.raises(ConnectionLost) as raised:
        client.producer("t")
    assert first in str(raised.value) and second in str(raised.value)


def test_a_connection_is_shared(running: TestBroker, topic: str) -> None:
    with Client(running.service_url) as client:
        before = len(running.run(lambda: list(running.server.connections)))
        for index in range(5):
            client.producer(f"{topic}-{index}")
            client.reader(f"{topic}-{index}")
        assert len(running.run(lambda: list(running.server.connections))) - before == 1


def test_a_broker_that_is_not_ready_for_a_producer_is_retried() -> None:
    asked = count()

    def later(broker: FakeBroker, command: Command) -> Command | None:
        if command.type == Command.PRODUCER and next(asked) < 2:
            error = pb.CommandError(
                request_id=command.producer.request_id, error=pb.ServiceNotReady, message="being loaded"
            )
            return Command(type=Command.ERROR, error=error)
        return None

    with fake_broker(later) as fake, Client(fake.url) as client:
        client.producer("t").send(b"x")
        assert fake.types().count("PRODUCER") == 3

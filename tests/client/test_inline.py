"""A client whose loop runs in the calling thread: interrupts, errors and long pauses."""

from __future__ import annotations

import asyncio
import threading

import pytest

from magnetar.client import EARLIEST, LATEST, AsyncClient, Client
from magnetar.client.errors import Closed, ConnectionLost, NotFound
from magnetar.client.gather import gather
from magnetar.client.inline import InlineClient, InlineLoop
from magnetar.testing import TestBroker
from tests.client.connection.test_reconnect import drop_connections


def test_coroutines_of_the_client_run_without_a_thread(running: TestBroker, topic: str) -> None:
    before = threading.active_count()
    with InlineClient(running.service_url) as inline:
        producer = inline.run(inline.client.producer(topic))
        inline.run(producer.send(b"1"))
        reader = inline.run(inline.client.reader(topic, EARLIEST))
        assert inline.run(reader.read(10)).value == b"1"
        assert threading.active_count() == before


def test_an_error_is_raised_and_the_client_stays_usable(running: TestBroker, topic: str) -> None:
    with InlineClient(running.service_url) as inline:
        with pytest.raises(NotFound):
            inline.run(inline.client.entries(topic, EARLIEST, LATEST))
        assert inline.run(inline.client.topics("public/default", f".*/{topic}")) == []


def test_an_interrupt_ends_the_coroutine(running: TestBroker) -> None:
    ended: list[str] = []

    async def interrupted() -> None:
        try:
            asyncio.get_running_loop().call_soon(_interrupt)
            await asyncio.sleep(60)
        finally:
            ended.append("yes")

    with InlineClient(running.service_url) as inline:
        with pytest.raises(KeyboardInterrupt):
            inline.run(interrupted())
        assert ended == ["yes"]
        assert inline.run(asyncio.sleep(0, "alive")) == "alive"


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_a_connection_lost_in_a_pause_is_reopened(
    running: TestBroker, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.client.inline._PAUSE_S", 0.0)
    client.producer(topic).send(b"1")
    with InlineClient(running.service_url) as inline:
        for _ in range(3):
            reader = inline.run(inline.client.entries(topic, EARLIEST, LATEST))
            assert len(inline.run(reader.next())) == 1
            drop_connections(running)


def test_an_unreachable_broker_is_an_error_at_once() -> None:
    with InlineClient("pulsar://127.0.0.1:1") as inline, pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1"):
        inline.run(inline.client.topics("public/default"))


def test_after_close_nothing_runs(running: TestBroker) -> None:
    inline = InlineClient(running.service_url)
    inline.close()
    inline.close()
    with pytest.raises(Closed):
        inline.run(inline.client.topics("public/default"))


def test_several_clients_share_a_loop(running: TestBroker, topic: str) -> None:
    loop = InlineLoop()
    clients = [AsyncClient(running.service_url) for _ in range(2)]

    async def say(client: AsyncClient, value: bytes) -> bytes:
        async with await client.producer(topic) as producer:
            await producer.send(value)
        return value

    assert loop.run(gather(say(client, b"%d" % n) for n, client in enumerate(clients))) == [b"0", b"1"]
    loop.close(*clients)
    loop.close()
    with pytest.raises(Closed):
        loop.run(asyncio.sleep(0))


def test_gather_awaits_all_before_it_raises_an_error(running: TestBroker) -> None:
    ended: list[int] = []

    async def end(number: int) -> None:
        await asyncio.sleep(0.01 * number)
        ended.append(number)
        if number != 2:
            raise ValueError(str(number))

    with InlineClient(running.service_url) as inline, pytest.raises(ValueError, match="0"):
        inline.run(gather(end(number) for number in range(3)))
    assert ended == [0, 1, 2]


def test_a_closed_cursor_is_free_for_the_next_client(running: TestBroker, topic: str) -> None:
    async def take_turns(first: AsyncClient, second: AsyncClient) -> None:
        async with await first.producer(topic) as producer:
            sent = await producer.send(b"1")
        one = await first.cursor(topic, "s", initial_position=EARLIEST)
        assert (await one.position()).entry_id == -1
        one.acknowledge_soon(sent)
        await one.close_and_wait()
        async with asyncio.timeout(0.09):  # the first back-off is longer
            two = await second.cursor(topic, "s")
            assert (await two.position()).position == sent.position

    loop = InlineLoop()
    clients = [AsyncClient(running.service_url) for _ in range(2)]
    loop.run(clients[1].topics("public/default"))
    loop.run(take_turns(*clients))
    loop.close(*clients)

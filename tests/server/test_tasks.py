"""Background tasks: reported and started again when they fail; the end of the HTTP server is the end of the broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import httpx
import pytest

import magnetar.testing
from magnetar.bounds import SCHEMA_THREADS
from magnetar.broker.host import FaultKind
from magnetar.server import tasks
from magnetar.server.tasks import Aside, spawn
from magnetar.server.tcp import Connection
from magnetar.settings.settings import Settings
from magnetar.storage.memory import MemoryStorage
from magnetar.testing import TestBroker

from .raw_client import RawClient

WAIT_S = 60


def eventually(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_fault_task_that_dies_is_reported_and_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "PAUSE_FIRST_S", 0.001)
    reports: list[tuple[FaultKind, str, str]] = []
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        await asyncio.sleep(0)
        if runs < 4:
            raise ValueError(f"number {runs}")

    async def main() -> None:
        await spawn("sweeper", run, lambda kind, error, where: reports.append((kind, str(error), where)))

    asyncio.run(main())
    assert runs == 4, "until it returns"
    assert [(kind, error) for kind, error, _ in reports] == [("task", f"number {number}") for number in (1, 2, 3)]
    assert all(where.startswith("sweeper, started again in") for _, _, where in reports)


def test_pauses_double_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            raise asyncio.CancelledError

    async def fail() -> None:
        raise ValueError

    async def main() -> None:
        monkeypatch.setattr(tasks.asyncio, "sleep", sleep)
        task = spawn("t", fail, lambda *report: None)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_cancelled_task_ends() -> None:
    async def main() -> None:
        task = spawn("t", asyncio.Event().wait, lambda *report: None)  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_keep_alive_reaches_the_other_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[Connection] = []

    def keep_alive(connection: Connection) -> None:
        reached.append(connection)
        if len(reached) % 2:
            raise ValueError("planted")

    monkeypatch.setattr(Connection, "keep_alive", keep_alive)
    with magnetar.testing.broker(keepAliveIntervalSeconds=1) as running:
        clients = [RawClient(running), RawClient(running)]
        eventually(lambda: len(set(reached)) == 2)
        assert running.server.faults["command"]
        for client in clients:
            client.close()


def test_a_tick_that_fails_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with magnetar.testing.broker() as running:
        ran: list[int] = []

        def plant() -> None:
            broker = running.server.broker
            with monkeypatch.context() as broken:
                broken.setattr(broker, "tick", lambda: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    running.server.tick()
            broker.wake_at(broker.now_ms() + 1, lambda: ran.append(1))

        running.run(plant)
        eventually(lambda: ran == [1])


def test_a_later_timer_of_one_kind_does_not_delay_an_earlier_one_of_the_other() -> None:
    with magnetar.testing.broker() as running:
        broker, ran = running.server.broker, list[str]()

        def plant() -> None:
            broker.intervals._heap.clear()  # so that each is the first of its kind
            broker.intervals._known.clear()
            broker.wake_after(20, lambda: ran.append("interval"))
            broker.wake_at(broker.now_ms() + 50_000_000, lambda: ran.append("never"))
            broker.wake_at(broker.now_ms() + 20, lambda: ran.append("time"))
            broker.wake_after(50_000_000, lambda: ran.append("never"))

        running.run(plant)
        eventually(lambda: sorted(ran) == ["interval", "time"])


def test_fault_http_server_that_ends_is_the_end_of_the_broker() -> None:
    running = TestBroker(MemoryStorage(), Settings())
    http = running.server._http
    assert http is not None and httpx.get(f"{running.http_url}/admin/v2/clusters").status_code == 200

    async def fail(counter: int) -> bool:
        raise OSError("planted")

    running.run(lambda: setattr(http._uvicorn, "on_tick", fail))
    with pytest.raises(OSError, match="planted"):
        eventually(lambda: not running._thread.is_alive())
        running.close()
    assert running.server.stop_reason == "the HTTP server ended"


def test_bound_schema_threads() -> None:
    threads: list[threading.Thread] = []
    running = most = 0

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        threads.append(threading.current_thread())
        time.sleep(0.001)
        running -= 1
        raise ValueError("planted")

    async def main() -> None:
        loop, done, order = asyncio.get_running_loop(), asyncio.Event(), list[int]()
        aside = Aside(loop)

        def then(number: int) -> None:
            assert asyncio.get_running_loop() is loop
            order.append(number)
            if number == 19:
                done.set()

        for number in range(20):
            aside.run(work, lambda number=number: then(number))  # type: ignore[misc]
        await asyncio.wait_for(done.wait(), WAIT_S)
        assert order == list(range(20))
        aside.close()
        await asyncio.to_thread(threads[0].join, WAIT_S)

    asyncio.run(main())
    assert most == SCHEMA_THREADS.limit == len(set(threads))
    assert not threads[0].is_alive() and threads[0].daemon


def test_sources_of_work_have_their_turns() -> None:
    order: list[str] = []

    async def main() -> None:
        started, released, done = threading.Event(), threading.Event(), asyncio.Event()
        aside = Aside(asyncio.get_running_loop())

        def first() -> None:
            started.set()
            released.wait(WAIT_S)

        aside.run(first, lambda: None, "a")
        await asyncio.to_thread(started.wait, WAIT_S)
        for name in ("a1", "a2", "a3", "b1", "b2", "c1"):
            aside.run(lambda name=name: order.append(name), lambda: None, name[0])  # type: ignore[misc]
        aside.run(lambda: None, done.set, "a")
        released.set()
        await asyncio.wait_for(done.wait(), WAIT_S)
        aside.close()

    asyncio.run(main())
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_work_that_outlives_the_loop_is_dropped() -> None:
    closed, called = threading.Event(), list[int]()

    async def main() -> Aside:
        aside = Aside(asyncio.get_running_loop())
        aside.run(lambda: closed.wait(WAIT_S), lambda: called.append(1))
        aside.close()
        return aside

    aside = asyncio.run(main())
    closed.set()
    assert aside._thread is not None
    aside._thread.join(WAIT_S)
    assert not aside._thread.is_alive() and not called

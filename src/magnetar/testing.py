"""A real broker for tests: on free ports, in a thread of the test's process, stopped at the end of the block.

    with magnetar.testing.broker() as b:
        client = pulsar.Client(b.service_url)

    with magnetar.testing.broker(secure=True) as b:  # TLS, tokens and authorization, made for this test
        client = pulsar.Client(b.service_url, pulsar.AuthenticationToken(b.token("admin")),
                               tls_trust_certs_file_path=b.trust_certs_file)

Messages are kept in memory unless `data` names a folder. `b.advance(minutes=10)` moves the broker's clock and returns
when everything that became due (delayed messages, time to live, quotas) is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack

from magnetar.clock import Duration, ShiftedClock, milliseconds
from magnetar.server.ports.addresses import Ports
from magnetar.server.server import Server
from magnetar.settings.settings import Settings
from magnetar.storage.api import Storage
from magnetar.storage.memory import MemoryStorage

if TYPE_CHECKING:
    from magnetar.server.secure.folder import SecureFolder

_START_TIMEOUT_S = 30

T = TypeVar("T")


class TestBroker:
    """A running broker. Its state belongs to its own thread; `run` calls a function there."""

    __test__ = False  # not a test, despite its name

    def __init__(self, storage: Storage, settings: Settings, secure: SecureFolder | None = None) -> None:
        self.clock = ShiftedClock()
        self._secure = secure
        self._storage = storage
        self._settings = settings
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._server: Server | None = None
        self._thread = threading.Thread(target=self._main, name="magnetar", daemon=True)
        self._thread.start()
        self._started.wait(_START_TIMEOUT_S)
        if self._failure is not None:
            raise self._failure

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        server = Server(self._settings, self._storage, self.clock, bind="127.0.0.1", ports=_free(self._settings))
        try:
            await server.start()
            self._server = server
            self._started.set()
            await server.wait()
        finally:
            await server.close()
        if server.failure is not None:
            raise server.failure

    @property
    def server(self) -> Server:
        if self._server is None:
            raise RuntimeError("the broker is not running")
        return self._server

    @property
    def service_url(self) -> str:
        return self.server.service_url("127.0.0.1")

    @property
    def http_url(self) -> str:
        return self.server.http_url("127.0.0.1")

    @property
    def trust_certs_file(self) -> str:
        """The authority of a secured broker, which clients have to trust."""
        return str(self._secured().trust_certs_file)

    def token(self, role: str) -> str:
        """A token for a role of a secured broker; `admin` is a super user, others have what they are granted."""
        return self._secured().token(role)

    def _secured(self) -> SecureFolder:
        if self._secure is None:
            raise RuntimeError("the broker has no security: start it with secure=True")
        return self._secure

    def run(self, action: Callable[[], T]) -> T:
        """Calls `action` in the broker's thread and returns its result once everything it changed is durable."""

        async def call() -> T:
            result = action()
            await self.server.committer.drained()
            return result

        return asyncio.run_coroutine_threadsafe(call(), self.server.loop).result()

    def advance(self, **duration: Unpack[Duration]) -> None:
        """Moves the broker's clock: `advance(minutes=10)`. Timers that become due fire in order, each at its time."""
        target_ms = self.clock.now_ms() + milliseconds(**duration)

        def step() -> bool:
            left_ms, wait_ms = max(0, target_ms - self.clock.now_ms()), self.server.broker.wait_ms
            is_last = wait_ms is None or wait_ms > left_ms
            self.clock.advance_ms(left_ms if wait_ms is None or is_last else wait_ms)
            self.server.tick()
            return is_last

        while not self.run(step):
            pass

    def close(self) -> None:
        if self._server is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed already
                self._server.loop.call_soon_threadsafe(self._server.stop)
        self._thread.join(_START_TIMEOUT_S)
        if self._failure is not None:
            raise self._failure


@contextlib.contextmanager
def broker(data: Path | str | None = None, *, secure: bool = False, **settings: object) -> Iterator[TestBroker]:
    """A broker for the length of the block; `settings` are broker settings under Pulsar's names.

    A `secure` one has only ports with TLS, and clients need its `token` and trust its `trust_certs_file`; settings that
    contradict this are refused, as on the command line.
    """
    with contextlib.ExitStack() as stack:
        folder = _secure(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="magnetar-")))) if secure else None
        given = settings if folder is None else {**settings, **_decided(folder, settings)}
        running = TestBroker(_storage(data), Settings(**given), folder)  # type: ignore[arg-type]  # checked by Settings
        stack.callback(running.close)
        yield running


def _secure(folder: Path) -> SecureFolder:
    from magnetar.clock import SystemClock
    from magnetar.server.ports.own_names import certificate_names
    from magnetar.server.secure.folder import SecureFolder

    found = SecureFolder(folder / "secure")
    found.prepare(certificate_names(Settings()), SystemClock().now_ms())
    return found


def _decided(folder: SecureFolder, settings: Mapping[str, object]) -> dict[str, object]:
    """The settings that the folder adds to or changes; raises `InvalidSetting` where they contradict each other."""
    texts = {name: _text(value) for name, value in settings.items()}
    merged = folder.over(texts)
    decided, _ = Settings.from_mapping(merged)
    return {
        name: getattr(decided, name)
        for name, text in merged.items()
        if text != texts.get(name) and name in Settings.__struct_fields__
    }


def _text(value: object) -> str:
    """A value as in a file of settings."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _free(settings: Settings) -> Ports:
    """A free port for each that is on."""
    wanted = Ports.of(settings)
    numbers = (wanted.binary, wanted.http, wanted.binary_tls, wanted.http_tls)
    return Ports(*(None if number is None else 0 for number in numbers))


def _storage(data: Path | str | None) -> Storage:
    if data is None:
        return MemoryStorage()
    from magnetar.storage.rocks import RocksStorage

    return RocksStorage(Path(data))

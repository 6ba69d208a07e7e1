"""The event loop of the blocking client, in its own thread, and calls into it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from magnetar.client.errors import Closed

_T = TypeVar("_T")


class LoopThread:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="magnetar-client", daemon=True)
        self._thread.start()

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:  # which cancels the tasks that are left
            runner.get_loop().run_forever()

    @property
    def is_running(self) -> bool:
        return not self.loop.is_closed() and self._thread.is_alive()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Coroutines limit their own waiting; an interrupt of the caller cancels the coroutine."""
        if not self.is_running:
            coroutine.close()
            raise Closed("the client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except CancelledError:  # another thread closed the client, and the loop with it
            raise Closed("the client is closed") from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

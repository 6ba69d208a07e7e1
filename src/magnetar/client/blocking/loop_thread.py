"""An event loop in a thread of its own, and the way to it and back: what the blocking client is made of."""

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
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:  # which ends what is left over
            runner.get_loop().run_forever()

    @property
    def is_running(self) -> bool:
        return not self.loop.is_closed() and self._thread.is_alive()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Every coroutine that is run here limits its own waiting; an interrupt of the caller cancels it."""
        if not self.is_running:
            coroutine.close()
            raise Closed("the client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except CancelledError:  # somebody closed the client meanwhile, and the loop with it
            raise Closed("the client is closed") from None
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

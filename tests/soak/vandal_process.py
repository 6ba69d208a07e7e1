"""A vandal that stays connected: `python -m tests.soak.vandal_process PORT SEED FRAMES_PER_S`, until its input ends.

Sends hostile frames of all commands on its own topics, reconnects whenever it is thrown out, and prints how often.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time
from random import Random

from tests.fuzz.vandal import CONNECT, Vandal, flow, good_send, produce, subscribe
from tests.soak.link import HOST

_TOPICS = tuple(f"persistent://public/default/vandal-{number}".encode() for number in range(5))
_CONNECT_TIMEOUT_S = 60.0


class VandalProcess:
    def __init__(self, port: int, seed: int, frames_per_s: float) -> None:
        self._port = port
        self._rng = Random(f"vandal {seed}")
        self._vandal = Vandal(self._rng, {"topic": _TOPICS, "subscription": (b"v1", b"v2")})
        self._pause_s = 1 / frames_per_s
        self._socket: socket.socket | None = None
        self.frames = self.thrown_out = 0

    def run(self) -> None:
        while not _is_over():
            data = self._next()
            try:
                self._send(data)
            except OSError:
                self.thrown_out += 1
                self._close()
            time.sleep(self._pause_s)
        self._close()

    def _next(self) -> bytes:
        if self._socket is None:
            self._socket = socket.create_connection((HOST, self._port), _CONNECT_TIMEOUT_S)
            self._socket.setblocking(False)
            topic = self._rng.choice(_TOPICS).decode()
            own = (subscribe(topic, "v1", dead_letters=True), flow(1, 1000), produce(topic), good_send(0, batch=3))
            return b"".join((CONNECT, *own))
        self.frames += 1
        return self._vandal.any_frame() if self._rng.random() < 0.95 else self._rng.randbytes(40)

    def _send(self, data: bytes) -> None:
        assert self._socket is not None
        while data:
            readable, writable, _ = select.select([self._socket], [self._socket], [], 1.0)
            if readable and not self._socket.recv(1 << 20):
                raise ConnectionError("thrown out")
            if writable:
                data = data[self._socket.send(data) :]
            elif not readable and _is_over():
                return

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _is_over() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main() -> None:
    port, seed, frames_per_s = sys.argv[1:]
    vandal = VandalProcess(int(port), int(seed), float(frames_per_s))
    vandal.run()
    print(json.dumps({"frames": vandal.frames, "thrown_out": vandal.thrown_out}))


if __name__ == "__main__":
    main()

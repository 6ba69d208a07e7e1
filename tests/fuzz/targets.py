"""The fuzz targets: one per command and one per REST route.

A target makes an input from a seed, as bytes, and plays any input; raising means that the broker failed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from random import Random

from magnetar.admin.routes import ROUTES, Route
from magnetar.session.table import TABLE
from tests.admin.driver import Admin
from tests.admin.random_requests import Maker, Request
from tests.admin.route_requests import catalog_of, check_response, kept, key, new_world, send

from . import corpus
from .limits import cpu_limit
from .scene import hold, play
from .vandal import Command, CommandType, Vandal
from .wire_message import mutated

_VARIED_SIZE_MAX = 3000  # of an input of the corpus from which others are made


@dataclass(frozen=True)
class Target:
    folder: str
    """Of its inputs in the corpus."""
    make: Callable[[Random], bytes]
    play: Callable[[bytes], None]


# -- commands


def _conversation(kind: CommandType, rng: Random) -> bytes:
    known = _known(Command.Type.Name(kind).lower())
    if known and rng.random() < 0.2:
        return mutated(rng, rng.choice(known), lambda: rng.choice(known))
    return b"".join(Vandal(rng).conversation(kind))


@cache
def _known(folder: str) -> list[bytes]:
    """Inputs of the corpus that are small enough to be varied."""
    found = (corpus.read(path) for path in corpus.paths() if path.parent.name == folder)
    return [data for data in found if len(data) < _VARIED_SIZE_MAX]


def play_conversation(data: bytes) -> None:
    """Plays it twice: frame by frame, and in as few reads as possible on a broker that deduplicates."""
    frames = corpus.frames_in(data)
    play(frames)
    play(frames, in_one_read=True, deduplicates=True)


# -- routes


def _requests(route: Route, rng: Random) -> bytes:
    return encode(Maker(rng).request(route))


def encode(request: Request) -> bytes:
    return b"%s %s?%s\n%s" % (request.method.encode(), request.path.encode(), request.query, request.body)


def decode(data: bytes) -> Request:
    line, _, body = data.partition(b"\n")
    method, _, target = line.decode(errors="replace").partition(" ")
    path, _, query = target.partition("?")
    return Request(method, path, query.encode(), body)


def play_request(data: bytes) -> None:
    """One request to a broker with one of everything: an answer below 500, and a refusal changes nothing."""
    request = decode(data)
    admin = new_world()
    before = kept(admin)
    with cpu_limit():
        answer = asyncio.run(send(admin, request.method, request.path, request.query, request.body))
    admin.commit()
    check_response(answer)
    hold(answer.status < 400 or kept(admin) == before, f"refused with {answer.status}, and yet something changed")
    admin.broker.invariants()
    hold(catalog_of(admin) == catalog_of(Admin(admin.storage.crash())), "memory and disk differ")


@cache
def targets() -> Mapping[str, Target]:
    supported = {kind for commands in TABLE.values() for kind in commands} | {Command.SEND}
    found = {}
    for name, kind in Command.Type.items():
        folder = name.lower() if kind in supported else "unsupported"
        found[name] = Target(folder, partial(_conversation, kind), play_conversation)
    for route in ROUTES:
        found[key(route)] = Target(corpus.REST, partial(_requests, route), play_request)
    return found


def play_file(folder: str, data: bytes) -> None:
    if folder == PLANTED:
        _play_planted(data)
    else:
        (play_request if folder == corpus.REST else play_conversation)(data)


PLANTED = "planted"


def _play_planted(data: bytes) -> None:
    """Inputs that break a limit by themselves, to test the limits."""
    if data == b"fatal":
        os.abort()
    with cpu_limit():
        large = bytes(1 << 30) if data == b"large" else b""
        while not large:
            pass

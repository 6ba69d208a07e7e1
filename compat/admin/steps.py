"""The command files, run on both brokers, one step per line.

    $ tenants list                          a pulsar-admin command
    % namespaces list acme                  a pulsarctl command
    GET namespaces/acme/shop/retention      a request below /admin/v2, with JSON after the path where it has a body
    publish persistent://acme/shop/a 10     a verb of `sides.py`, for client operations

A word in angle brackets (`<ledger>`, `<mark>`) is replaced by its value during the run.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

METHODS = ("GET", "PUT", "POST", "DELETE")
FOLDER = Path(__file__).resolve().parent / "commands"


@dataclass(frozen=True)
class Step:
    """`kind` is "pulsar-admin", "pulsarctl", "http" or "do"; `text` is the line in the file."""

    kind: str
    words: tuple[str, ...]
    text: str


def read(name: str) -> list[Step]:
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return [step(line) for line in lines if line and not line.startswith("#")]


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def step(line: str) -> Step:
    if line.startswith("$ "):
        return Step("pulsar-admin", tuple(shlex.split(line[2:])), line)
    if line.startswith("% "):
        return Step("pulsarctl", tuple(shlex.split(line[2:])), line)
    method, _, rest = line.partition(" ")
    if method in METHODS:
        path, _, body = rest.partition(" ")
        return Step("http", (method, path, body.strip()), line)
    return Step("do", tuple(shlex.split(line)), line)

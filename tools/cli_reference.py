"""Draws docs/cli.md from the commands themselves: `python -m tools.cli_reference > docs/cli.md`.

Owns the page's layout and introduction; every name, option and sentence comes from the commands.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Iterator
from enum import Enum

from typer.models import ArgumentInfo, OptionInfo

from magnetar.cli.app import GROUPS, group_of
from magnetar.cli.command import CommandHelp

_INTRODUCTION = """\
# Command line

`magnetar standalone` starts a broker; its options are in `magnetar standalone --help`, its settings in
[settings.md](settings.md). Everything below talks to a running broker, ours or Apache Pulsar, by Pulsar's admin REST
API v2 and binary protocol. The words are those of `pulsar-admin`.

- `--url URL` is the HTTP address of the broker, by default `http://localhost:8080`; the variable `MAGNETAR_URL` says
  the same. `messages` finds the binary address by it, unless `--service-url` or `MAGNETAR_SERVICE_URL` names one.
- `--token TOKEN` or `MAGNETAR_TOKEN` is for a broker that authenticates; `file:///path` names a file that has the
  token, which then no list of processes shows. `https://` trusts the authorities of the system, or those in
  `--trust-certs FILE` or `MAGNETAR_TRUST_CERTS`.
- `--json` prints one JSON document to stdout and nothing else there; `messages` and `subscriptions peek` print one for
  each message, on a line of its own.
- `--help` explains every command and option.
- A TOPIC is `orders` (in `public/default`), `acme/shop/orders` or `persistent://acme/shop/orders`.
- A TIME is `90s`, `5m`, `3h`, `2d`, `1w` or `1y`, and seconds without a letter. A SIZE is `4096`, `100K`, `10M`, `16G`
  or `2T`. A POSITION is `earliest`, `latest` or `ledger:entry`.
- What is set about dead letters, redelivery back-off, circuit breakers and pausing is for our broker alone;
  `deadletters` also reads those of Apache Pulsar, by the binary protocol.
- The exit code is 0, or 1 when the broker refused or cannot be reached (stderr says why in one line), or 2 when the
  command was written wrongly. `doctor` also answers 1 when it found something; of `replication diff` and
  `replication verify` 1 says that the clusters differ, and 2 that it could not be told.

This page is drawn from the code by `make docs`.
"""


def render() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION.rstrip()
    for group in map(group_of, GROUPS):
        yield from ("", f"## magnetar {group.name}", "", group.help, "", "| command | what it does |", "|---|---|")
        for entry in group.commands:
            yield f"| `{_usage(entry)}` | {_cell(entry.help)} |"


def _usage(entry: CommandHelp) -> str:
    arguments = [_argument(parameter) for parameter in entry.parameters if isinstance(_info(parameter), ArgumentInfo)]
    options = [_option(parameter) for parameter in entry.parameters if isinstance(_info(parameter), OptionInfo)]
    return _cell(" ".join([entry.name, *arguments, *options]))


def _argument(parameter: inspect.Parameter) -> str:
    name = str(_info(parameter).metavar)
    if parameter.default is not inspect.Parameter.empty:
        name = f"[{name}]"
    return name + ("…" if typing.get_origin(_kind(parameter)) is list else "")


def _option(parameter: inspect.Parameter) -> str:
    info = _info(parameter)
    names = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
    kind = _kind(parameter)
    text = ", ".join(names)
    if kind is not bool:
        text += " " + (info.metavar or _choices(kind))
    if typing.get_origin(kind) is list:
        text += "…"
    return text if parameter.default is inspect.Parameter.empty else f"[{text}]"


def _choices(kind: object) -> str:
    (item,) = typing.get_args(kind) or (kind,)
    if isinstance(item, type) and issubclass(item, Enum):
        return "/".join(str(choice.value) for choice in item)
    return {"str": "TEXT", "Path": "FILE"}[item.__name__]


def _info(parameter: inspect.Parameter) -> typing.Any:
    return typing.get_args(parameter.annotation)[1]


def _kind(parameter: inspect.Parameter) -> object:
    """The type of a value, without "or None"."""
    kind = typing.get_args(parameter.annotation)[0]
    if isinstance(kind, types.UnionType):
        (kind,) = (one for one in typing.get_args(kind) if one is not type(None))
    return kind


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())

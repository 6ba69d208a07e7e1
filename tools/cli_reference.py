"""The generator of docs/cli.md: `python -m tools.cli_reference > docs/cli.md`.

Owns the layout and the introduction; names, options and sentences come from the commands.
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
from magnetar.cli.help import PULSAR_ONLY_PANEL

_INTRODUCTION = """\
# Command line

`magnetar standalone` starts a broker; see `magnetar standalone --help` for its options and [settings.md](settings.md)
for its settings. With `--secure DIR` it has TLS, tokens and authorization ([security.md](security.md)). The commands
below talk to a running broker, Magnetar or Apache Pulsar, by Pulsar's admin REST API v2 and binary protocol; `tokens`
needs none. Their names are those of `pulsar-admin`. `magnetar backup DIR` copies all data
of a running broker, `magnetar restore BACKUP --data DIR` makes a data folder from the copy
([operations.md](operations.md)). `magnetar console` serves the web console of a broker ([console.md](console.md)).
`magnetar tour` shows two clusters, failing consumers, dead letters, stuck replication and a redrive, in about a minute
on brokers of its own. `magnetar top` shows the whole of a running Magnetar broker in the terminal, and first
what needs attention ([operations.md](operations.md#watching)); `--interval DURATION` is the time between two frames,
`--sort` one of name, rateIn, rateOut, backlog, storedBytes and deadLetters, `--once` prints one frame, `--json` the
overview.

- `--url URL` or `MAGNETAR_URL` is the HTTP address of the broker, by default `http://localhost:8080`. `messages` finds
  the binary address by a lookup, unless `--service-url` or `MAGNETAR_SERVICE_URL` is given.
- `--token file:PATH` is the authentication token in a file, which is read again when it changes; `env:NAME` is in a
  variable, `-` in the first line of stdin. A token itself is refused on the command line, which every user of the
  machine sees. `MAGNETAR_TOKEN` is a token, `MAGNETAR_TOKEN_FILE` the path of one. `https://` uses the certificate
  authorities of the system, or those in `--trust-certs FILE` or `MAGNETAR_TRUST_CERTS`.
- `--profile NAME` or `MAGNETAR_PROFILE` takes address and login from a table `[profile.NAME]` in
  `~/.config/magnetar/config.toml`, or in the file that `MAGNETAR_CONFIG` names; `--profile FILE` from a file with one
  profile ([profiles](#profiles)). Options override the profile, and the profile the environment.
- Before the command, as in `magnetar --client-conf FILE topics list`, there are also the options of `pulsar-admin`:
  `--auth-plugin` and `--auth-params`, `--tls-cert` and `--tls-key` for a client certificate, `--tls-allow-insecure`;
  and `--client-conf FILE` or `PULSAR_CLIENT_CONF` for Pulsar's `conf/client.conf`.
- `--json` prints exactly one JSON document to stdout; `messages` and `subscriptions peek` print one line per message.
- `--help` or `-h` explains every command and option. `magnetar completion bash|zsh|fish` prints a script that completes
  them with the tab key: `eval "$(magnetar completion bash)"` in `~/.bashrc`, the same with `zsh` at the end of
  `~/.zshrc`, and `magnetar completion fish > ~/.config/fish/completions/magnetar.fish`. `magnetar --install-completion`
  changes these files itself, also those of PowerShell.
- Commands marked "Apache Pulsar only" are rejected by this broker with 501.
- A TOPIC is `orders` (in `public/default`), `acme/shop/orders` or `persistent://acme/shop/orders`. Commands that only
  read a namespace default to `public/default`.
- A DURATION is `90s`, `5m`, `3h`, `2d`, `1w` or `1y`; a number without a unit is in seconds. A TIME is
  `2026-01-31T18:00:00Z`. A SIZE is `4096`, `100K`, `10M`, `16G` or `2T`. A POSITION is `earliest`, `latest` or
  `ledger:entry`.
- Dead letter policies, redelivery back-off, circuit breakers, pausing and route policies need a Magnetar broker.
  `deadletters` also works with Apache Pulsar: it reads the topic by the binary protocol.
- The exit code is 0 on success, 1 if the broker rejected the request or cannot be reached (with one line on stderr),
  and 2 for a usage error. `doctor` returns 1 if it found something; `replication diff` and `replication verify` return
  1 if the clusters differ and 2 if they could not be compared.

`make docs` generates this page from the code.

## Profiles

```toml
[profile.prod]
url = "https://broker.example.com:8443"
service_url = "pulsar+ssl://broker.example.com:6651"  # without it, found by a lookup
token_file = "prod.token"                             # relative to the folder of this file
trust_certs = "ca.pem"
```

A profile may have `url`, `service_url`, `token_file`, `token`, `username`, `password`, `auth_plugin`, `auth_params`,
`trust_certs`, `tls_cert`, `tls_key`, `tls_allow_insecure` and `tls_verify_hostname`. A login is one of token, password,
plugin and certificate. It is sent to the profile's own address only: `--url` beside `--profile` is refused, and beside
`MAGNETAR_PROFILE` it takes nothing from the profile. A file with a token or password in it that other users can read is
refused.
"""


def render() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION.rstrip()
    for group in map(group_of, GROUPS):
        yield from ("", f"## magnetar {group.name}", "", group.help)
        panels = sorted(dict.fromkeys(entry.panel for entry in group.commands), key=PULSAR_ONLY_PANEL.__eq__)
        for panel in panels:
            if len(panels) > 1:
                yield from ("", f"### {panel}")
            yield from ("", "| command | description |", "|---|---|")
            for entry in group.commands:
                if entry.panel == panel:
                    yield f"| `{_usage(entry)}` | {_cell(entry.help)} |"


def _usage(entry: CommandHelp) -> str:
    arguments = [_argument(parameter) for parameter in entry.parameters if _is_shown(parameter, ArgumentInfo)]
    options = [_option(parameter) for parameter in entry.parameters if _is_shown(parameter, OptionInfo)]
    return _cell(" ".join([entry.name, *arguments, *options]))


def _is_shown(parameter: inspect.Parameter, kind: type[ArgumentInfo | OptionInfo]) -> bool:
    info = _info(parameter)
    return isinstance(info, kind) and not info.hidden


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
    """The type of a value, without `None`."""
    kind = typing.get_args(parameter.annotation)[0]
    if isinstance(kind, types.UnionType):
        (kind,) = (one for one in typing.get_args(kind) if one is not type(None))
    return kind


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render())

"""The commands, declared with Typer: names, options and help texts, nothing else.

Each command group has a module, imported when it is used; none of them imports an HTTP client before a command runs.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Annotated, Any

import typer
from typer.main import get_command

from magnetar.cli.command import CommandGroup
from magnetar.cli.console import console as _console
from magnetar.cli.help import CONTEXT, PlainCommand, PlainGroup
from magnetar.cli.login.login import LoginOptions
from magnetar.cli.login.options import BEFORE_COMMANDS, remember
from magnetar.cli.nouns import standalone as _standalone
from magnetar.cli.nouns.backup import backup, restore
from magnetar.cli.nouns.process import process

app = typer.Typer(
    name="magnetar",
    help="A message broker that speaks Apache Pulsar's protocol.",
    cls=PlainGroup,
    context_settings=CONTEXT,
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"magnetar {version('magnetar')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
]


def magnetar(context: typer.Context, version: Version = False, **login: Any) -> None:
    """A message broker that speaks Apache Pulsar's protocol.

    Options of login may be given here, before the command, as to pulsar-admin.
    """
    remember(context, LoginOptions(**login))


magnetar.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [*list(inspect.signature(magnetar, eval_str=True).parameters.values())[:2], *BEFORE_COMMANDS]
)
magnetar.__annotations__ = {}
app.callback()(magnetar)


ConfigFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="A broker.conf or standalone.conf of Pulsar to read settings from.")
]
Secure = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="Serve with TLS, tokens and authorization. Certificates, keys and a token of an administrator are made in"
        " this folder by the first start. --port and --http-port are those with TLS then, 6651 and 8443.",
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(metavar="LEVEL", help="The least important lines to log: debug, info, warning or error."),
]
LogFormat = Annotated[str | None, typer.Option(metavar="FORMAT", help="The log: text or json.")]

RenameCluster = Annotated[
    bool, typer.Option("--rename-cluster", help="Give a data folder of another cluster the name in --cluster.")
]
AcceptLoss = Annotated[
    bool,
    typer.Option("--accept-loss", help="Start although acknowledged changes are missing, and keep the damaged log."),
]
Bind = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="The address to listen on. Other than loopback needs authentication, or the next option.",
        show_default="127.0.0.1",
    ),
]
WithoutAuthentication = Annotated[
    bool,
    typer.Option(
        _standalone.OPEN_OPTION, help="Serve other machines without authentication: any client can do everything."
    ),
]

WithConsole = Annotated[
    bool, typer.Option(_standalone.CONSOLE_OPTION, help="Start the web console beside the broker, on loopback.")
]
ConsolePort = Annotated[
    str | None,
    typer.Option(metavar="PORT", help="The port of the console; 0 picks a free one.", show_default="8090"),
]


@app.command(cls=PlainCommand)
def standalone(
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The data folder, created if missing.",
            show_default=f"{_standalone.DATA_DEFAULT}",
        ),
    ] = None,
    port: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="The port of the binary protocol; 0 picks a free one.", show_default="6650"),
    ] = None,
    http_port: Annotated[
        str | None,
        typer.Option(metavar="PORT", help="The HTTP port; 0 picks a free one.", show_default="8080"),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The name of the cluster.", show_default="that of the data, or standalone"),
    ] = None,
    rename_cluster: RenameCluster = False,
    accept_loss: AcceptLoss = False,
    bind: Bind = None,
    without_authentication: WithoutAuthentication = False,
    secure: Secure = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    config: ConfigFile = None,
    console: WithConsole = False,
    console_port: ConsolePort = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting, as in broker.conf; may be repeated."),
    ] = None,
) -> int:
    """Start a broker on this machine.

    Flags override --set, --set overrides the environment
    (MAGNETAR_CLUSTER_NAME or PULSAR_PREFIX_clusterName), and the environment
    overrides --config.
    """
    options = _standalone.StandaloneOptions(
        data=data,
        port=port,
        http_port=http_port,
        cluster=cluster,
        bind=bind,
        log_level=log_level,
        log_format=log_format,
        config=config,
        secure=secure,
        set=set_ or (),
        rename_cluster=rename_cluster,
        accept_loss=accept_loss,
        without_authentication=without_authentication,
        console=console,
        console_port=console_port,
    )
    return _standalone.start(options)


app.command("console", cls=PlainCommand)(_console)
app.command(cls=PlainCommand)(process)
app.command(cls=PlainCommand)(backup)
app.command(cls=PlainCommand)(restore)


GROUPS = {
    "brokers": "nouns.brokers",
    "tenants": "nouns.tenants",
    "clusters": "nouns.clusters",
    "namespaces": "nouns.namespaces",
    "topics": "nouns.topics",
    "subscriptions": "nouns.subscriptions",
    "schemas": "nouns.schemas",
    "messages": "nouns.messages",
    "deadletters": "nouns.deadletters",
    "redrive": "redrive.redrive",
    "pipelines": "nouns.pipelines",
    "archive": "archive.archive",
    "replication": "replication.replication",
    "tokens": "nouns.tokens",
    "doctor": "doctor.doctor",
    "profiles": "nouns.profiles",
}
_added: set[str] = set()


def group_of(name: str) -> CommandGroup:
    group = importlib.import_module(f"magnetar.cli.{GROUPS[name]}").group
    assert isinstance(group, CommandGroup)
    return group


def command_for(words: Sequence[str]) -> Callable[..., object]:
    """The parser with the group of these words; help and mistakes need all groups, which takes longer."""
    for name in words[:1] if words and words[0] in GROUPS else GROUPS:
        if name not in _added:
            app.add_typer(group_of(name).app)
            _added.add(name)
    return _command(frozenset(_added))


@lru_cache(maxsize=1)
def _command(added: frozenset[str]) -> Callable[..., object]:
    return get_command(app)

"""Commands that compare two clusters, A and B: their addresses, credentials and exit codes.

Exit codes: 0 no difference, 1 differences, 2 error. Knows no resource.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from magnetar.cli.command import CommandGroup, CommandHelp, Json
from magnetar.cli.help import PlainCommand
from magnetar.cli.login.login import Login, LoginOptions, login_of, of_environment, security_of, token_of
from magnetar.cli.login.login_source import LoginSource
from magnetar.cli.login.options import CONTEXT, TOKEN, TRUST_CERTS, take_options
from magnetar.cli.rest import Refused, Rest, check_no_login
from magnetar.errors import InvalidSetting, MagnetarError

if TYPE_CHECKING:
    from magnetar.cli.output import Output

FOUND = 1
ERROR = 2

_RUNTIME = ("brokers", "configuration", "runtime")
_BINARY = ("pulsar://", "pulsar+ssl://")
_SHAPE = "http://host:8080, or pulsar://host:6650,http://host:8080, or the name of a profile"

A = Annotated[str, typer.Argument(metavar="A", help=f"The address of the first cluster: {_SHAPE}.")]
B = Annotated[str, typer.Argument(metavar="B", help="The address of the second cluster.")]
OtherToken = Annotated[
    str | None,
    typer.Option(
        "--token-b",
        metavar="file:PATH|env:NAME|-",
        help="The authentication token for B.",
        show_default="that of A, unless only A is encrypted",
    ),
]


class ComparedCluster(NamedTuple):
    """One of the two clusters. `label` is A or B."""

    label: str
    rest: Rest
    service_url: str | None

    @property
    def url(self) -> str:
        return self.rest.url


def split_addresses(text: str) -> tuple[str, str | None]:
    """The HTTP address and, if given, the binary one, which may contain commas."""
    check_no_login(text, "a cluster to compare")
    parts = [part for part in text.split(",") if part]
    http = [part for part in parts if part.startswith(("http://", "https://"))]
    rest = [part for part in parts if part not in http]
    if len(http) != 1 or (rest and not rest[0].startswith(_BINARY)):
        raise InvalidSetting(f"{text!r} is not of the form {_SHAPE}")
    return http[0], ",".join(rest) or None


_CHECK_A = "check that cluster A runs, and its address, the first argument"
_CHECK_B = "check that cluster B runs, and its address, the second argument"


def own_name(rest: Rest) -> str | None:
    """The name of a cluster in its settings; None if they cannot be read."""
    try:
        settings = rest.get(*_RUNTIME)
    except Refused:
        return None
    name = settings.get("clusterName") if isinstance(settings, dict) else None
    return str(name) if name else None


def add_command(group: CommandGroup, name: str, function: Callable[..., Output]) -> None:
    """Adds a function whose first parameters are two `ComparedCluster`; its docstring is the help text."""

    def run(**options: Any) -> int:
        as_json, other_token = options.pop("json"), options.pop("token_b")
        login_a, login_b = _logins(options.pop("a"), options.pop("b"), take_options(options), other_token)
        service_a, service_b = login_a.service_url, login_b.service_url
        with (
            Rest(login_a.url, login_a.security, trust_from=login_a.trust_from, hint=_CHECK_A) as rest_a,
            Rest(login_b.url, login_b.security, trust_from=login_b.trust_from, hint=_CHECK_B) as rest_b,
        ):
            a, b = ComparedCluster("A", rest_a, service_a), ComparedCluster("B", rest_b, service_b)
            return _exit_code(lambda: function(a, b, **options), as_json)

    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(inspect.signature(function, eval_str=True).parameters.values())[2:]
    ]
    sides = [_parameter("a", A), _parameter("b", B)]
    shared = [
        TOKEN,
        _parameter("token_b", OtherToken, None),
        TRUST_CERTS,
        _parameter("json", Json, False),
    ]
    run.__signature__ = inspect.Signature([*sides, CONTEXT, *own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {}
    run.__doc__ = help_text = inspect.getdoc(function) or ""
    group.app.command(name, cls=PlainCommand)(run)
    group.commands.append(CommandHelp(name, help_text, (*sides, *own, shared[1])))


def _logins(a: str, b: str, options: LoginOptions, other_token: str | None) -> tuple[Login, Login]:
    """Of both clusters. The token for A is for B too, unless it would be sent there in plain text."""
    for option, value in (
        ("--url", options.url),
        ("--profile", options.profile),
        ("--client-conf", options.client_conf),
    ):
        if value is not None:
            raise InvalidSetting(f"{option} is of no use here: the clusters are the two arguments")
    shared = options.source().over(of_environment())
    of_b = shared
    if other_token is not None:
        file, token = token_of(other_token, "--token-b")
        of_b = LoginSource(token_file=file, token=token).over(shared)
    elif _is_encrypted(a) and not _is_encrypted(b):
        of_b = shared.without_login()
    if _is_encrypted(a) != _is_encrypted(b):  # if neither is, the first request reports the mistake
        shared, of_b = (shared, of_b.without_tls()) if _is_encrypted(a) else (shared.without_tls(), of_b)
    return _login(a, shared, "--token"), _login(b, of_b, "--token-b" if other_token else "--token")


def _login(text: str, source: LoginSource, name: str) -> Login:
    """A profile has a login of its own."""
    if _is_profile(text):
        return login_of(LoginOptions(profile=text))
    return Login(*split_addresses(text), security_of(source, name))


def _is_profile(text: str) -> bool:
    return "://" not in text


def _is_encrypted(text: str) -> bool:
    return "https://" in text


def _exit_code(command: Callable[[], Output], as_json: bool) -> int:
    from magnetar.cli.output import present, print_note

    try:
        return present(command(), as_json=as_json)
    except MagnetarError as error:
        print_note(f"magnetar: {error}")
        return ERROR


def _parameter(name: str, annotation: object, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

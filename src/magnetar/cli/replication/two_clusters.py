"""Commands that compare two clusters, A and B: their addresses, credentials and exit codes.

Exit codes: 0 no difference, 1 differences, 2 error. Knows no resource.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from magnetar.cli.command import CommandGroup, CommandHelp, Json, Token, TrustCerts, security_of
from magnetar.cli.help import PlainCommand
from magnetar.cli.rest import Refused, Rest
from magnetar.errors import InvalidSetting, MagnetarError

if TYPE_CHECKING:
    from magnetar.cli.output import Output

FOUND = 1
ERROR = 2

_RUNTIME = ("brokers", "configuration", "runtime")
_BINARY = ("pulsar://", "pulsar+ssl://")
_SHAPE = "http://host:8080, or pulsar://host:6650,http://host:8080"

A = Annotated[str, typer.Argument(metavar="A", help=f"The address of the first cluster: {_SHAPE}.")]
B = Annotated[str, typer.Argument(metavar="B", help="The address of the second cluster.")]
OtherToken = Annotated[
    str | None,
    typer.Option(
        "--token-b",
        metavar="TOKEN",
        help="The authentication token for B, or file:///path of it.",
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
        as_json, trust_certs = options.pop("json"), options.pop("trust_certs")
        token, other_token = options.pop("token"), options.pop("token_b")
        (url_a, service_a), (url_b, service_b) = split_addresses(options.pop("a")), split_addresses(options.pop("b"))
        if _is_encrypted(url_b) or not _is_encrypted(url_a):
            other_token = other_token or token  # never in plain text
        trusted_by_a, trusted_by_b = _trusted(url_a, url_b, trust_certs)
        with (
            Rest(url_a, security_of(token, trusted_by_a), hint=_CHECK_A) as rest_a,
            Rest(url_b, security_of(other_token, trusted_by_b), hint=_CHECK_B) as rest_b,
        ):
            a, b = ComparedCluster("A", rest_a, service_a), ComparedCluster("B", rest_b, service_b)
            return _exit_code(lambda: function(a, b, **options), as_json)

    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(inspect.signature(function, eval_str=True).parameters.values())[2:]
    ]
    sides = [_parameter("a", A), _parameter("b", B)]
    shared = [
        _parameter("token", Token, None),
        _parameter("token_b", OtherToken, None),
        _parameter("trust_certs", TrustCerts, None),
        _parameter("json", Json, False),
    ]
    run.__signature__ = inspect.Signature([*sides, *own, *shared])  # type: ignore[attr-defined]
    run.__annotations__ = {}
    run.__doc__ = help_text = inspect.getdoc(function) or ""
    group.app.command(name, cls=PlainCommand)(run)
    group.commands.append(CommandHelp(name, help_text, (*sides, *own, shared[1])))


def _is_encrypted(url: str) -> bool:
    return url.startswith("https:")


def _trusted(url_a: str, url_b: str, trust_certs: str | None) -> tuple[str | None, str | None]:
    """The certificates for each cluster that uses https://; if neither does, the first request reports the mistake."""
    if _is_encrypted(url_a) == _is_encrypted(url_b):
        return trust_certs, trust_certs
    return (trust_certs, None) if _is_encrypted(url_a) else (None, trust_certs)


def _exit_code(command: Callable[[], Output], as_json: bool) -> int:
    from magnetar.cli.output import present, print_note

    try:
        return present(command(), as_json=as_json)
    except MagnetarError as error:
        print_note(f"magnetar: {error}")
        return ERROR


def _parameter(name: str, annotation: object, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

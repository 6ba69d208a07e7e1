"""Options of login: those of every command, and those before the name of a command, like pulsar-admin's.

Owns their names and help texts. A function that takes a `Login` as its first parameter becomes a command by
`with_login`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from magnetar.cli.login.login import Login, LoginOptions, login_of
from magnetar.cli.rest import DEFAULT_URL, check_no_login

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help="The HTTP address of the broker, Magnetar or Apache Pulsar; MAGNETAR_URL.",
        show_default=DEFAULT_URL,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="file:PATH|env:NAME|-",
        help="The authentication token: in a file, a variable or the first line of stdin; MAGNETAR_TOKEN.",
    ),
]
TrustCerts = Annotated[
    str | None,
    typer.Option(
        "--trust-certs",
        metavar="FILE",
        help="Trusted certificate authorities, in PEM, for https:// and pulsar+ssl://; MAGNETAR_TRUST_CERTS.",
        show_default="the system's",
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME|FILE", help="A profile with address and login; MAGNETAR_PROFILE."),
]
ClientConf = Annotated[
    str | None,
    typer.Option("--client-conf", metavar="FILE", help="A client.conf of Pulsar; PULSAR_CLIENT_CONF."),
]
AuthPlugin = Annotated[
    str | None,
    typer.Option("--auth-plugin", metavar="NAME", help="An authentication plugin, by its name in Pulsar's clients."),
]
AuthParams = Annotated[
    str | None,
    typer.Option("--auth-params", metavar="TEXT", help="Its parameters: file:///path, tlsCertFile:…, or JSON."),
]
TlsCert = Annotated[
    str | None, typer.Option("--tls-cert", metavar="FILE", help="The client's certificate, in PEM; MAGNETAR_TLS_CERT.")
]
TlsKey = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its private key; MAGNETAR_TLS_KEY.")]
TlsAllowInsecure = Annotated[
    bool | None, typer.Option("--tls-allow-insecure", help="Accept any certificate: for tests only.")
]


_ADDRESSES = {
    "service_url": "--service-url",
    "service_url_tls": "--service-url-tls",
    "broker_url": "--broker-url",
    "broker_url_tls": "--broker-url-tls",
    "from_": "--from",
    "admin_from": "--admin-from",
    "to": "--to",
}
"""Options of single commands that may be addresses, by their parameter."""


def _parameter(name: str, annotation: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


CONTEXT = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
TOKEN = _parameter("token", Token)
TRUST_CERTS = _parameter("trust_certs", TrustCerts)
OF_COMMANDS = (_parameter("url", Url), TOKEN, TRUST_CERTS, _parameter("profile", ProfileName))
BEFORE_COMMANDS = (
    *OF_COMMANDS,
    *(
        _parameter(name, annotation)
        for name, annotation in (
            ("client_conf", ClientConf),
            ("auth_plugin", AuthPlugin),
            ("auth_params", AuthParams),
            ("tls_cert", TlsCert),
            ("tls_key", TlsKey),
            ("tls_allow_insecure", TlsAllowInsecure),
        )
    ),
)


def remember(context: typer.Context, options: LoginOptions) -> None:
    """The options before the name of a command."""
    context.find_root().obj = options


def take_options(options: dict[str, Any]) -> LoginOptions:
    """Takes the parameters `CONTEXT` and `OF_COMMANDS` from those of a command. Raises `InvalidSetting` if one of the
    others is an address with a login in it, which every user of the machine sees."""
    _check_addresses(options)
    before = options.pop("context").find_root().obj
    own = LoginOptions(**{parameter.name: options.pop(parameter.name, None) for parameter in OF_COMMANDS})
    return own.over(before) if isinstance(before, LoginOptions) else own


def _check_addresses(options: dict[str, Any]) -> None:
    for name, option in _ADDRESSES.items():
        given = options.get(name)
        for address in given if isinstance(given, list) else [given]:
            check_no_login(str(address or ""), option)


def with_login(function: Callable[..., int]) -> Callable[..., int]:
    """A command that has the options of login, from a function whose first parameter is a `Login`."""

    @functools.wraps(function)
    def run(**options: Any) -> int:
        login: Login = login_of(take_options(options), options.get("from_"))
        return function(login, **options)

    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    shown = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    run.__signature__ = inspect.Signature([CONTEXT, *shown, *OF_COMMANDS])  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run

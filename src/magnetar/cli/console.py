"""`magnetar console`: the web console of a broker, in a process of its own.

Owns its options. A session logs in with its own token, so the login of a profile or of the environment is not used:
their address and trusted certificates are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from magnetar.cli.argument import whole
from magnetar.cli.login.login import LoginOptions, login_of
from magnetar.cli.login.options import ProfileName, TrustCerts, Url
from magnetar.cli.rest import checked_url
from magnetar.console.options import BIND_DEFAULT, PORT_DEFAULT, ConsoleOptions

if TYPE_CHECKING:
    from magnetar.security.credentials import Security

_NO_LOGIN = (
    "token",
    "token_file",
    "token_supplier",
    "username",
    "password",
    "oauth2",
    "certificate_file",
    "key_file",
)

Port = Annotated[
    int, typer.Option("--port", metavar="PORT", parser=whole(0, 65535), help="The port; 0 picks a free one.")
]
Bind = Annotated[
    str,
    typer.Option(
        "--bind",
        metavar="ADDRESS",
        help="The address to listen on. Other than loopback needs a broker with authentication, or the next option.",
    ),
]
WithoutAuthentication = Annotated[
    bool,
    typer.Option(
        "--without-authentication", help="Serve other machines without a login: any of them can do everything."
    ),
]
TrustedHost = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-host", metavar="NAME", help="A host name of the console, for one behind a proxy; may be repeated."
    ),
]

UntilEof = Annotated[bool, typer.Option("--until-eof", hidden=True, help="End with the standard input.")]


def console(
    context: typer.Context,
    port: Port = PORT_DEFAULT,
    bind: Bind = BIND_DEFAULT,
    without_authentication: WithoutAuthentication = False,
    trusted_host: TrustedHost = None,
    until_eof: UntilEof = False,
    url: Url = None,
    trust_certs: TrustCerts = None,
    profile: ProfileName = None,
) -> int:
    """Serve the web console of a broker, Magnetar or Apache Pulsar.

    If the broker has authentication, each browser logs in with a token, and
    may do what the broker allows its role.
    """
    before = context.find_root().obj
    own = LoginOptions(url=url, trust_certs=trust_certs, profile=profile)
    login = login_of(own.over(before) if isinstance(before, LoginOptions) else own)
    options = ConsoleOptions(
        url=checked_url(login.url),
        security=_without_login(login.security),
        bind=bind,
        port=port,
        without_authentication=without_authentication,
        trusted_hosts=tuple(trusted_host or ()),
        until_eof=until_eof,
    )
    from magnetar.console.start import run_console

    return run_console(options, lambda line: print(line, flush=True))


def _without_login(security: Security | None) -> Security | None:
    import msgspec

    return None if security is None else msgspec.structs.replace(security, **dict.fromkeys(_NO_LOGIN))

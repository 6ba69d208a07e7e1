"""`magnetar tokens …`: makes keys and tokens, and looks at them, without a broker. Pulsar's `bin/pulsar tokens`.

Owns where a command takes secrets from: files, the environment and standard input, never an argument, which other users
of the machine see. `access.signing` makes keys and tokens.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from magnetar.access import json_web_token, signing
from magnetar.access.sources import read_file, read_source
from magnetar.access_bounds import TOKEN_SIZE
from magnetar.cli.argument import parse_duration, properties_of
from magnetar.cli.command import CommandGroup
from magnetar.cli.output import Done, Page, Record, shown_time
from magnetar.clock import SystemClock
from magnetar.errors import InvalidSetting
from magnetar.security.private_files import PUBLIC_MODE, check_file, write_new
from magnetar.settings.source_path import path_of

group = CommandGroup("tokens", "Make keys and tokens of the authentication provider token; no broker is needed.")

TOKEN_VARIABLES = ("MAGNETAR_TOKEN", "TOKEN")
"""The first is also that of other commands, the second that of Pulsar's tool."""

_ENVIRONMENT = "env:"
_TIMES = ("exp", "nbf", "iat")

_ALGORITHMS = (*signing.SECRET_ALGORITHMS, *signing.PAIR_ALGORITHMS)


def _one_of(names: tuple[str, ...]) -> Callable[[str], str]:
    def parse_algorithm(text: str) -> str:
        if text not in names:
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(names)}")
        return text

    return parse_algorithm


def _algorithm(default: str, kind: str = "The algorithm", names: tuple[str, ...] = _ALGORITHMS) -> Any:
    return typer.Option(
        "--algorithm",
        "-a",
        "--signature-algorithm",
        metavar="NAME",
        parser=_one_of(names),
        help=f"{kind} of tokens.",
        show_default=default,
    )


SecretKey = Annotated[
    str | None, typer.Option("--secret-key", "-sk", metavar="FILE", help="The secret key: a file, or env:NAME.")
]
TokenFile = Annotated[str | None, typer.Option("--token-file", "-f", metavar="FILE", help="The file of the token.")]
Stdin = Annotated[bool, typer.Option("--stdin", "-i", help="Read the token from standard input.")]
Literal = Annotated[str | None, typer.Argument(metavar="TOKEN", help="Refused: others would see it.", hidden=True)]


def create_key(
    algorithm: Annotated[str | None, _algorithm("HS256, or RS256 for a key pair")] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="The file of the secret key to make.")
    ] = None,
    as_base64: Annotated[
        bool,
        typer.Option("--base64", "-b", help="Write the secret key as a setting has it, and not as a file has it."),
    ] = False,
    private_key: Annotated[
        str | None,
        typer.Option(
            "--private-key", "--output-private-key", metavar="FILE", help="The file of the private key to make."
        ),
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option("--public-key", "--output-public-key", metavar="FILE", help="The file of its public key."),
    ] = None,
) -> Page:
    """Make a secret key (HS256, HS384, HS512) or a key pair (RS256 … ES512) that signs tokens."""
    is_pair = bool(private_key or public_key) or algorithm in signing.PAIR_ALGORITHMS
    name = algorithm or ("RS256" if is_pair else "HS256")
    if not is_pair:
        return _new_secret(name, output, as_base64)
    if name in signing.SECRET_ALGORITHMS:
        raise InvalidSetting(f"{name} has a secret key and no key pair: give --output, or another --algorithm")
    if output is not None or as_base64:
        raise InvalidSetting("--output and --base64 are of a secret key; a key pair has --private-key and --public-key")
    if not private_key or not public_key:
        raise InvalidSetting(f"{name} has a key pair: give --private-key FILE and --public-key FILE")
    return _new_pair(name, private_key, public_key)


def _new_secret(algorithm: str, output: str | None, as_base64: bool) -> Page:
    if not output and not as_base64:
        raise InvalidSetting("give --output FILE, which only you can read, or --base64 for a key that is printed")
    secret = signing.new_secret(algorithm)
    content = base64.b64encode(secret) if as_base64 else secret
    if not output:
        return Page({"algorithm": algorithm, "key": content.decode()}, [Done(content.decode())])
    path = Path(output)
    write_new(path, content, "--output")
    value = {"algorithm": algorithm, "file": str(path), "tokenSecretKey": path.resolve().as_uri()}
    if as_base64:
        del value["tokenSecretKey"]  # of a file, the bytes are the key: in base64 they are those of another
    return Page(value, [Record(value)])


def _new_pair(algorithm: str, private_key: str, public_key: str) -> Page:
    private, public = Path(private_key), Path(public_key)
    for path, option in ((private, "--private-key"), (public, "--public-key")):
        if os.path.lexists(path):
            raise InvalidSetting(f"{option}: {path} exists, and is not overwritten")
    pair = signing.new_key_pair(algorithm)
    write_new(private, pair.private, "--private-key")
    try:
        write_new(public, pair.public, "--public-key", mode=PUBLIC_MODE)
    except InvalidSetting:
        private.unlink()  # without its public key it is of no use, and in the way of the next attempt
        raise
    value = {
        "algorithm": algorithm,
        "private key": str(private),
        "public key": str(public),
        "tokenPublicKey": public.resolve().as_uri(),
        "tokenPublicAlg": algorithm,
    }
    return Page(value, [Record(value)])


def create(
    subject: Annotated[
        str, typer.Option("--subject", "-s", metavar="ROLE", help="The role that a client with this token has.")
    ],
    secret_key: SecretKey = None,
    private_key: Annotated[
        str | None,
        typer.Option("--private-key", "-pk", metavar="FILE", help="The private key: a file, or env:NAME."),
    ] = None,
    expiry_time: Annotated[
        int | None,
        typer.Option(
            "--expiry-time",
            "-e",
            metavar="DURATION",
            parser=parse_duration,
            help="How long the token is valid, such as 1h, 3d or 1y.",
            show_default="for good",
        ),
    ] = None,
    algorithm: Annotated[str | None, _algorithm("the strongest for the size of the key")] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--headers", "-hs", metavar="KEY=VALUE", help="A header of the token; may be repeated."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="The file of the token, instead of stdout.")
    ] = None,
) -> Page:
    """Make a token for a role, signed with a secret key or a private key."""
    if expiry_time == 0:
        raise InvalidSetting("--expiry-time 0: the token would have expired when it is made")
    option, key = _only("--secret-key", secret_key, "--private-key", private_key)
    signer_of = signing.secret_signer if option == "--secret-key" else signing.private_signer
    signer = signer_of(_secret(option, key), option, algorithm or "")
    expires_ms = None if expiry_time is None else SystemClock().now_ms() + expiry_time * 1000
    token = signer.sign(subject, expires_ms, properties_of(headers))
    expires = None if expires_ms is None else shown_time(expires_ms)
    about = {"subject": subject, "algorithm": signer.algorithm, "expires": expires}
    if output is None:
        return Page({"token": token, **about}, [Done(token)])
    write_new(Path(output), token.encode(), "--output")
    value = {"file": output, **about}
    return Page(value, [Record(value)])


def validate(
    secret_key: SecretKey = None,
    public_key: Annotated[
        str | None,
        typer.Option("--public-key", "-pk", metavar="FILE", help="The public key: a file, env:NAME, data: or base64."),
    ] = None,
    algorithm: Annotated[
        str | None, _algorithm("all of the key", "The only algorithm", signing.PAIR_ALGORITHMS)
    ] = None,
    token_file: TokenFile = None,
    stdin: Stdin = False,
    literal: Literal = None,
) -> Record:
    """Check the signature and the times of a token with a key, and show its claims.

    The token is in --token-file, in MAGNETAR_TOKEN or TOKEN, or comes from standard input. The exit code is 1 if it is
    not valid.
    """
    option, text = _only("--secret-key", secret_key, "--public-key", public_key)
    key: Any
    if option == "--secret-key":
        if algorithm is not None:
            raise InvalidSetting(f"{algorithm} is an algorithm of public keys: give --public-key, or no --algorithm")
        key = _secret(option, text)
        json_web_token.check_secret(key, option)
        algorithms = json_web_token.secret_algorithms(key)
    else:
        key = json_web_token.read_public_key(read_source(_named(option, text), option), algorithm or "", option)
        algorithms = (algorithm,) if algorithm else json_web_token.public_algorithms(key)
    claims = json_web_token.verified(_token(literal, token_file, stdin), key, algorithms)
    json_web_token.check_times(claims, SystemClock().now_ms(), 0)
    return Record(claims, fields=_shown(claims))


def show(token_file: TokenFile = None, stdin: Stdin = False, literal: Literal = None) -> Page:
    """Show the header and the claims of a token; nothing is verified.

    The token is in --token-file, in MAGNETAR_TOKEN or TOKEN, or comes from standard input.
    """
    token = _token(literal, token_file, stdin)
    header, claims = dict(json_web_token.header_of(token)), dict(json_web_token.claims_of(token))
    value = {"header": header, "claims": claims}
    return Page(value, [Record(header, title="header"), Record(claims, title="claims", fields=_shown(claims))])


group.offline("create-key", create_key, also=("create-secret-key", "create-key-pair"))
group.offline("create", create)
group.offline("validate", validate)
group.offline("show", show)


# -- where secrets come from


def _only(first: str, one: str | None, second: str, other: str | None) -> tuple[str, str]:
    if one is not None and other is not None:
        raise InvalidSetting(f"give only one of {first} and {second}")
    if one is not None:
        return first, one
    if other is None:
        raise InvalidSetting(f"give either {first} or {second}")
    return second, other


def _secret(option: str, text: str) -> bytes:
    """The bytes of a secret key or a private key, which the text names; raises `InvalidSetting` if it has them."""
    is_named = text.startswith(_ENVIRONMENT)
    found = _named(option, text)
    path = path_of(found, option)
    if path is not None:
        check_file(Path(path), option)
        return read_file(path, option)
    if not is_named:
        raise InvalidSetting(
            f"{option} is neither a file that exists nor env:NAME; a key itself is not taken from the command line,"
            " which other users of this machine see"
        )
    return read_source(found, option)


def _named(option: str, text: str) -> str:
    """What a variable has, for `env:NAME`; otherwise the text itself."""
    if not text.startswith(_ENVIRONMENT):
        return text
    name = text.removeprefix(_ENVIRONMENT)
    found = os.environ.get(name)
    if not found:
        raise InvalidSetting(f"{option}: the environment has no {name}")
    return found


def _token(literal: str | None, file: str | None, stdin: bool) -> bytes:
    if literal is not None:
        raise InvalidSetting(
            "a token is not taken from the command line, which other users of this machine see: give --token-file FILE,"
            " --stdin or MAGNETAR_TOKEN"
        )
    if file is not None and stdin:
        raise InvalidSetting("give only one of --token-file and --stdin")
    if file is not None:
        return read_file(path_of(file, "--token-file") or file, "--token-file").strip()
    name = next((name for name in TOKEN_VARIABLES if os.environ.get(name)), None)
    if name is not None and not stdin:
        return _token_in(name)
    if not stdin and sys.stdin.isatty():
        raise InvalidSetting("there is no token: give --token-file FILE, --stdin or MAGNETAR_TOKEN")
    return sys.stdin.buffer.read(TOKEN_SIZE.limit + 2).strip()


def _token_in(variable: str) -> bytes:
    """In the forms that other commands take: the token, `token:…` or `file:///path`."""
    text = os.environ[variable].strip()
    if text.startswith("file:"):
        return read_file(path_of(text, variable) or "", variable).strip()
    return os.fsencode(text.removeprefix("token:"))


def _shown(claims: json_web_token.Claims) -> dict[str, object]:
    """Times as people read them."""
    shown = dict(claims)
    for name in _TIMES:
        time_s = claims.get(name)
        if isinstance(time_s, int | float) and 0 < time_s < 1 << 37:
            shown[name] = f"{time_s} ({shown_time(int(time_s * 1000))})"
    return shown

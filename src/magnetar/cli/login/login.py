"""The login of a command: where its broker is, and what is shown to it.

Options come first, then the profile, then the environment. A profile is used with its own address only: `--url` takes
none from MAGNETAR_PROFILE, and beside `--profile` it is refused, so no token of one cluster is sent to another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from magnetar.cli.login.login_source import ADDRESSES, LoginSource, is_path, refuse_secret
from magnetar.cli.login.profiles import Profile, read_client_conf, read_profile
from magnetar.cli.rest import DEFAULT_URL, TRUST_CERTS, check_no_login
from magnetar.errors import InvalidSetting

if TYPE_CHECKING:
    from magnetar.client import Security

PROFILE_VARIABLE = "MAGNETAR_PROFILE"
CLIENT_CONF_VARIABLE = "PULSAR_CLIENT_CONF"
VARIABLES = {
    "url": "MAGNETAR_URL",
    "service_url": "MAGNETAR_SERVICE_URL",
    "token": "MAGNETAR_TOKEN",
    "token_file": "MAGNETAR_TOKEN_FILE",
    "auth_plugin": "MAGNETAR_AUTH_PLUGIN",
    "auth_params": "MAGNETAR_AUTH_PARAMS",
    "trust_certs": "MAGNETAR_TRUST_CERTS",
    "tls_cert": "MAGNETAR_TLS_CERT",
    "tls_key": "MAGNETAR_TLS_KEY",
}
INSTEAD_OF_TOKEN = "give file:PATH, env:NAME, - for the first line of stdin, or a profile"
_INSTEAD_OF_PARAMETERS = (
    "give file:///PATH of a token, tlsCertFile:/PATH,tlsKeyFile:/PATH, MAGNETAR_AUTH_PARAMS, --client-conf or a profile"
)
_TOKEN_SIZE_MAX = 1 << 20


class Login(NamedTuple):
    """`service_url` is None if it is to be found by a lookup.

    `trust_from` and `service_url_from` say where the trusted certificates and that address are from, for errors.
    """

    url: str
    service_url: str | None
    security: Security | None
    trust_from: str = TRUST_CERTS
    service_url_from: str = ""


class LoginOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line, as text."""

    url: str | None = None
    token: str | None = None
    profile: str | None = None
    trust_certs: str | None = None
    client_conf: str | None = None
    auth_plugin: str | None = None
    auth_params: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_allow_insecure: bool | None = None

    def over(self, other: LoginOptions) -> LoginOptions:
        """Options of a command over those before its name."""
        own = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(other, **own)

    def source(self) -> LoginSource:
        """Raises `InvalidSetting` for a secret on the command line."""
        if self.url:
            check_no_login(self.url, "--url")
        if self.auth_params and not is_path(self.auth_params, self.auth_plugin):
            raise refuse_secret("--auth-params", _INSTEAD_OF_PARAMETERS)
        if self.token and (self.auth_plugin or self.auth_params):
            raise InvalidSetting("--token and --auth-plugin exclude each other")
        token_file, token = token_of(self.token, "--token") if self.token is not None else (None, None)
        return LoginSource(
            url=self.url,
            token=token,
            token_file=token_file,
            auth_plugin=self.auth_plugin,
            auth_params=self.auth_params,
            trust_certs=self.trust_certs,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            tls_allow_insecure=self.tls_allow_insecure,
        )


def login_of(options: LoginOptions, address: str | None = None) -> Login:
    """Raises `InvalidSetting`, which names the source of the mistake. `address` was given by another option."""
    profile = _profile_of(options, options.url is not None or address is not None)
    given, environment = options.source(), of_environment()
    found = given if profile is None else given.over(profile.source)
    if profile is None:
        found = found.over(environment)
    else:  # its addresses are its own, those of the environment are of another broker
        found = found.over(msgspec.structs.replace(environment, url=None, service_url=None))
    return Login(
        DEFAULT_URL if found.url is None else found.url,
        found.service_url if options.url is None else None,
        security_of(found, _name_of(given, profile)),
        TRUST_CERTS if given.trust_certs else _trust_from(profile),
        _place_of("service_url", profile),
    )


def _trust_from(profile: Profile | None) -> str:
    place = _place_of("trust_certs", profile)
    if profile is None or place != profile.name:
        return place
    return f"{place}: its trust_certs" if profile.source.url else f"{place} has no url: its trust_certs"


def _place_of(setting: str, profile: Profile | None) -> str:
    """Where a setting that no option gave is from, for errors."""
    return VARIABLES[setting] if profile is None or getattr(profile.source, setting) is None else profile.name


def security_of(source: LoginSource, name: str) -> Security | None:
    """Raises `InvalidSetting`; `name` is of the place with the mistake."""
    from magnetar.errors import MagnetarError

    try:
        return source.security()
    except MagnetarError as error:
        raise InvalidSetting(f"{name}: {error}") from error


def token_of(text: str, option: str) -> tuple[str | None, str | None]:
    """The file of a token, or the token, from `file:PATH`, `env:NAME` or `-`; raises `InvalidSetting`."""
    from magnetar.client.errors import InvalidArgument

    if text == "-":
        line = sys.stdin.buffer.readline(_TOKEN_SIZE_MAX).decode(errors="replace").strip()
        if not line:
            raise InvalidSetting(f"{option} -: the first line of stdin is empty")
        return None, line
    kind, _, rest = text.partition(":")
    if kind == "env" and rest:
        if not os.environ.get(rest, "").strip():
            raise InvalidSetting(f"{option} {text}: the variable {rest} is not set")
        return None, os.environ[rest].strip()
    if kind == "file" and rest:
        from magnetar.security.pulsar_parameters import token_settings

        try:
            return os.path.expanduser(token_settings(text, option)["token_file"]), None
        except InvalidArgument as error:
            raise InvalidSetting(str(error)) from error
    if not text.strip():
        raise InvalidSetting(f"{option} is empty: {INSTEAD_OF_TOKEN}")
    raise refuse_secret(option, INSTEAD_OF_TOKEN)


def of_environment(variables: Mapping[str, str] = VARIABLES) -> LoginSource:
    """Raises `InvalidSetting`."""
    values = {name: os.environ.get(variable, "").strip() or None for name, variable in variables.items()}
    for name in ADDRESSES:
        check_no_login(values.get(name) or "", variables.get(name, name))
    return msgspec.convert(values, LoginSource)


def _profile_of(options: LoginOptions, has_address: bool) -> Profile | None:
    for option, value in (("--profile", options.profile), ("--client-conf", options.client_conf)):
        if value is not None and not value.strip():
            raise InvalidSetting(f"{option} is empty")
        if value is not None and has_address:
            raise InvalidSetting(f"{option} has an address of its own, to which alone its login is sent: give no other")
    if options.profile is not None and options.client_conf is not None:
        raise InvalidSetting("--profile and --client-conf exclude each other")
    if options.profile is not None:
        return read_profile(options.profile)
    if options.client_conf is not None:
        return read_client_conf(options.client_conf)
    return None if has_address else _profile_of_environment()


def _profile_of_environment() -> Profile | None:
    profile, conf = (os.environ.get(name, "").strip() for name in (PROFILE_VARIABLE, CLIENT_CONF_VARIABLE))
    url = os.environ.get(VARIABLES["url"], "").strip()
    if profile and url:
        raise InvalidSetting(f"{PROFILE_VARIABLE} and {VARIABLES['url']} are both set: which broker is meant?")
    if profile:
        return read_profile(profile)
    return read_client_conf(conf) if conf and not url else None


def _name_of(given: LoginSource, profile: Profile | None) -> str:
    """Where the login is from, for errors."""
    if given.token_file or given.token:
        return "--token"
    if given.has_login:
        options = {"--auth-plugin": given.auth_plugin, "--auth-params": given.auth_params}
        return " and ".join(option for option, value in options.items() if value is not None)
    if profile is not None and not profile.source.is_empty:
        return profile.name
    if given.tls_cert or given.tls_key:
        return "--tls-cert"
    if given.trust_certs:
        return TRUST_CERTS
    used = [variable for variable in VARIABLES.values() if os.environ.get(variable, "").strip()]
    return next((variable for variable in used if not variable.endswith("URL")), "login")

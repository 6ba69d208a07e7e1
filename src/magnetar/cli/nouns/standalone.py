"""`magnetar standalone`: reads the settings of a broker from its options, and starts it.

Owns their precedence: flags override `--set`, which overrides the environment, which overrides `--config`. It does not
know Typer, nor how a broker runs. Only imports that every start needs are at the top.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.errors import InvalidSetting
from magnetar.log.output import write_log
from magnetar.settings.addresses import is_loopback

if TYPE_CHECKING:
    from magnetar.server.secure.folder import SecureFolder
    from magnetar.settings.settings import Settings

log = logging.getLogger("magnetar.settings")

DATA_DEFAULT = Path("data/standalone")

_PULSAR_BIND = "0.0.0.0"
"""The address in the files of Apache Pulsar."""

_PLUGIN = "brokerClientAuthenticationPlugin"

Asked = dict[str, tuple[str, str]]
"""Protection that the broker does not have, by setting: the source and the text. A later source replaces an earlier."""


class StandaloneOptions:
    """The options as text, not checked yet."""

    __slots__ = (
        "accept_loss",
        "bind",
        "cluster",
        "config",
        "console",
        "console_port",
        "data",
        "http_port",
        "log_format",
        "log_level",
        "port",
        "rename_cluster",
        "secure",
        "set",
        "without_authentication",
    )

    def __init__(
        self,
        *,
        data: str | None = None,
        port: str | None = None,
        http_port: str | None = None,
        cluster: str | None = None,
        bind: str | None = None,
        log_level: str | None = None,
        log_format: str | None = None,
        config: str | None = None,
        secure: str | None = None,
        set: Sequence[str] = (),
        rename_cluster: bool = False,
        accept_loss: bool = False,
        without_authentication: bool = False,
        console: bool = False,
        console_port: str | None = None,
    ) -> None:
        self.data = data
        self.port = port
        self.http_port = http_port
        self.cluster = cluster
        self.bind = bind
        self.log_level = log_level
        self.log_format = log_format
        self.config = config
        self.secure = secure
        self.set = tuple(set)
        self.rename_cluster = rename_cluster
        self.accept_loss = accept_loss
        self.without_authentication = without_authentication
        self.console = console
        self.console_port = console_port

    def flags(self) -> Iterable[tuple[str, str, str]]:
        """The given flags that are settings: flag, setting, text. A secured broker has only ports with TLS."""
        tls = "" if self.secure is None else "Tls"
        for flag, setting, text in (
            ("--port", f"brokerServicePort{tls}", self.port),
            ("--http-port", f"webServicePort{tls}", self.http_port),
            ("--cluster", "clusterName", self.cluster),
            ("--bind", "bindAddress", self.bind),
            ("--log-level", "logLevel", self.log_level),
            ("--log-format", "logFormat", self.log_format),
            (OPEN_OPTION, "withoutAuthentication", "true" if self.without_authentication else None),
        ):
            if text is not None:
                yield flag, setting, text


SINGLE_OPTIONS = {
    "--data": "data",
    "--port": "port",
    "--http-port": "http_port",
    "--cluster": "cluster",
    "--bind": "bind",
    "--log-level": "log_level",
    "--log-format": "log_format",
    "--config": "config",
    "--secure": "secure",
    "--console-port": "console_port",
}
REPEATED_OPTION = "--set"
OPEN_OPTION = "--without-authentication"
CONSOLE_OPTION = "--console"


def read_plain(words: Sequence[str]) -> StandaloneOptions | None:
    """The options if all are `--option value`, `--option=value` or a flag; None for the full parser."""
    values: dict[str, str] = {}
    pairs: list[str] = []
    flags = dict.fromkeys((OPEN_OPTION, CONSOLE_OPTION), False)
    rest = iter(words)
    for word in rest:
        if word in flags:
            flags[word] = True
            continue
        option, separator, value = word.partition("=")
        if not separator:
            value = next(rest, "--")
            if value.startswith("--"):
                return None
        if option == REPEATED_OPTION:
            pairs.append(value)
        elif option in SINGLE_OPTIONS:
            values[SINGLE_OPTIONS[option]] = value
        else:
            return None
    return StandaloneOptions(
        set=pairs,
        rename_cluster=False,
        accept_loss=False,
        without_authentication=flags[OPEN_OPTION],
        console=flags[CONSOLE_OPTION],
        **values,
    )


def start(options: StandaloneOptions) -> int:
    """Check the options and run the broker until it is stopped; returns the exit code."""
    gc.disable()  # until the broker serves: what a start makes stays, and looking for garbage in it takes time
    try:
        return _start(options)
    finally:
        gc.enable()


def _start(options: StandaloneOptions) -> int:
    from magnetar.settings.settings import Settings

    warnings: list[str] = []
    pairs = pairs_of(options, warnings.append)
    settings, _ = Settings.from_mapping(pairs)
    data = _data_of(options)
    console_port = _console_port_of(options)
    secure = _secure_of(options)
    if secure is not None:
        _prepare(secure, settings)
    _check_files(settings)
    warnings += _without_effect(settings)
    write_log(sys.stderr, level=settings.logLevel, form=settings.logFormat)
    for warning in warnings:
        log.warning("%s", warning)

    from magnetar.server.standalone import run_standalone

    return run_standalone(
        settings,
        data,
        cluster=settings.clusterName if "clusterName" in pairs else None,
        rename_cluster=options.rename_cluster,
        accept_loss=options.accept_loss,
        bind=settings.bindAddress,
        port=settings.brokerServicePort,
        http_port=settings.webServicePort,
        secure=secure,
        out=_print,
        console_port=console_port,
    )


def pairs_of(options: StandaloneOptions, warn: Callable[[str], None]) -> dict[str, str]:
    """The settings of all sources, merged; raises `InvalidSetting`, which names the source."""
    asked: Asked = {}
    file = _from_file(options.config, warn, asked)
    environment = _from_environment(warn, asked)
    given = {**environment, **_from_set(options.set, asked, {**file, **environment}), **_from_flags(options)}
    _refuse_what_is_not_obeyed(asked)
    pairs = {**file, **given}
    secure = _secure_of(options)
    if secure is not None:
        pairs = secure.over(pairs)
    if not is_loopback(pairs.get("bindAddress", "").strip() or "localhost"):
        _check_openness(pairs, options.config if "bindAddress" not in given else None, warn)
    if options.rename_cluster and "clusterName" not in pairs:
        raise InvalidSetting("--rename-cluster needs the new name: give --cluster NAME")
    return pairs


def _refuse_what_is_not_obeyed(asked: Asked) -> None:
    if not asked:
        return
    from magnetar.settings.refused import asks_for_protection, refusal

    refused = [(source, name, text) for name, (source, text) in asked.items() if asks_for_protection(name, text)]
    if refused:
        raise refusal(refused)


def _check_openness(pairs: dict[str, str], config: str | None, warn: Callable[[str], None]) -> None:
    """Other machines are served if their clients have to log in, or if the operator wants it otherwise.

    `config` is the file that the address is from, if it is from one.
    """
    address = pairs["bindAddress"].strip()
    found = _openness(pairs)
    if found is None:
        return
    reason, remedy = found
    if _is_true(pairs, "withoutAuthentication"):
        warn(f"listening on {address} {reason}: any client can read, write and delete")
        return
    remedy = f"{remedy}, or give {OPEN_OPTION} too"
    if config is not None and address == _PULSAR_BIND:  # the address of Pulsar's own file is no choice of the operator
        warn(f"bindAddress={address} of {config} is ignored, only this machine is served: {remedy}")
        del pairs["bindAddress"]
        return
    raise InvalidSetting(
        f"{f'{config}: ' if config is not None else ''}bindAddress={address} lets other machines in, and"
        f" {reason} any client can read, write and delete: {remedy}"
    )


def _openness(pairs: Mapping[str, str]) -> tuple[str, str] | None:
    """Why every client may do everything, and the remedy; None if a client without a login may not."""
    if not _is_true(pairs, "authenticationEnabled"):
        return "without authentication", "enable authentication (authenticationEnabled=true)"
    role = pairs.get("anonymousUserRole", "").strip()
    if not role:
        return None
    from magnetar.access.authorization import roles_in

    if not _is_true(pairs, "authorizationEnabled"):
        return (
            f"with anonymousUserRole={role} and without authorization",
            "remove anonymousUserRole, or enable authorization (authorizationEnabled=true)",
        )
    if role in roles_in(pairs.get("superUserRoles", "")):
        return f"with the super user {role} as anonymousUserRole", "remove it from one of the two"
    return None


def _is_true(pairs: Mapping[str, str], name: str) -> bool:
    return pairs.get(name, "").strip().lower() == "true"


def _from_file(config: str | None, warn: Callable[[str], None], asked: Asked) -> dict[str, str]:
    if config is None:
        return {}
    from magnetar.settings.properties_file import parse_properties

    try:
        text = Path(config).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InvalidSetting(f"--config {config} cannot be read: {reason}") from error
    pairs = parse_properties(text)
    unknown = _check(f"{config}:", pairs)
    _check_config(config, pairs)
    asked.update({name: (config, pairs[name]) for name in unknown})
    if unknown:
        warn(f"{config} has {_counted(len(unknown), 'setting')} without effect: {', '.join(unknown)}")
    return pairs


def _check_config(config: str, pairs: Mapping[str, str]) -> None:
    """A file with a secret is private; one without may be read by other users, but not written."""
    from magnetar.security.private_files import check_file, check_unchanged_by_others

    secret = _secret_of(pairs, pairs.get(_PLUGIN, ""))
    if secret is not None:
        check_file(Path(config), f"--config with {secret}, a secret unless it is the path of a file that exists")
    check_unchanged_by_others(Path(config), "--config")


def _from_environment(warn: Callable[[str], None], asked: Asked) -> dict[str, str]:
    from magnetar.settings.environment import read_environment
    from magnetar.settings.kinds import Port
    from magnetar.settings.settings import KINDS

    found = read_environment(os.environ)
    for setting, text in found.pairs.items():
        _check(f"{found.variables[setting]}:", {setting: text})
    asked.update(found.refused)
    if found.unknown:
        warn(f"{_counted(len(found.unknown), 'variable')} without effect: {', '.join(found.unknown)}")
    return {setting: text for setting, text in found.pairs.items() if text.strip() or isinstance(KINDS[setting], Port)}


def _counted(count: int, noun: str) -> str:
    from magnetar.cli.output import counted

    return counted(count, noun)


def _from_set(words: Iterable[str], asked: Asked, beneath: Mapping[str, str]) -> dict[str, str]:
    """`beneath` has the settings of the sources that these override."""
    pairs: dict[str, str] = {}
    for word in words:
        name, separator, text = word.partition("=")
        if not separator:
            raise InvalidSetting(f"--set {word} is not of the form key=value")
        pairs[name.strip()] = text
    secret = _secret_of(pairs, {**beneath, **pairs}.get(_PLUGIN, ""))
    if secret is not None:  # every user sees the command line of every process
        raise InvalidSetting(
            f"--set {secret} shows a secret to every user of this machine: use --config, the environment, file: or"
            " the path of a file that exists"
        )
    for name in _check("--set", pairs):
        if not _is_pulsars(name):
            raise InvalidSetting(f"--set {name} is not a setting{_suggestion(name)}")
        asked[name] = ("--set", pairs[name])
    return pairs


def _is_pulsars(name: str) -> bool:
    """Whether it is a setting of protection: refused or, with the value that means none, taken."""
    from magnetar.settings.refused import PROTECTING

    return name in PROTECTING


def _secret_of(pairs: Mapping[str, str], plugin: str) -> str | None:
    """The first setting that is a secret; where one is kept is none. `plugin` is that of
    brokerClientAuthenticationParameters."""
    from magnetar.settings.refused import is_secret

    return next((name for name, text in pairs.items() if is_secret(name, text, plugin=plugin.strip())), None)


def _from_flags(options: StandaloneOptions) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for flag, setting, text in options.flags():
        if not text.strip():
            raise InvalidSetting(f"{flag} is empty")
        _check(f"{flag}:", {setting: text})
        pairs[setting] = text
    return pairs


def _check(source: str, pairs: dict[str, str]) -> list[str]:
    """Rejects invalid values, naming their source; returns the unknown keys."""
    from magnetar.settings.settings import Settings

    try:
        return Settings.from_mapping(pairs)[1]
    except InvalidSetting as error:
        raise InvalidSetting(f"{source} {error}") from error


def _suggestion(name: str) -> str:
    from magnetar.settings.settings import closest

    near = closest(name)
    return f"; did you mean {near}?" if near else ""


def _check_files(settings: Settings) -> None:
    from magnetar.security.private_files import check_files

    check_files(settings)


def _without_effect(settings: Settings) -> Iterable[str]:
    from magnetar.access.access import without_effect

    return without_effect(settings)


def _secure_of(options: StandaloneOptions) -> SecureFolder | None:
    if options.secure is None:
        return None
    if not options.secure.strip():
        raise InvalidSetting("--secure is empty")
    from magnetar.server.secure.folder import SecureFolder

    return SecureFolder(Path(options.secure))


def _prepare(secure: SecureFolder, settings: Settings) -> None:
    from magnetar.clock import SystemClock
    from magnetar.server.ports.own_names import certificate_names

    secure.prepare(certificate_names(settings), SystemClock().now_ms())


def _console_port_of(options: StandaloneOptions) -> int | None:
    """None without a console."""
    if not options.console:
        if options.console_port is not None:
            raise InvalidSetting("--console-port needs --console")
        return None
    from magnetar.console.options import PORT_DEFAULT
    from magnetar.console.start import check_installed

    check_installed()
    text = str(PORT_DEFAULT) if options.console_port is None else options.console_port
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise InvalidSetting(f"--console-port {text} is not a port: 0 to 65535")
    return int(text)


def _data_of(options: StandaloneOptions) -> Path:
    if options.data is None:
        return DATA_DEFAULT
    if not options.data.strip():
        raise InvalidSetting("--data is empty")
    return Path(options.data)


def _print(line: str) -> None:
    print(line, flush=True)

"""Settings from environment variables, as in Pulsar's images: `PULSAR_PREFIX_clusterName`, `clusterName`; and as
`MAGNETAR_CLUSTER_NAME`.

Owns the names of the variables, and which have secrets in them. Values are not checked here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar.settings.refused import PROTECTING
from magnetar.settings.settings import KINDS, SECRET

PULSAR_PREFIX = "PULSAR_PREFIX_"
MAGNETAR_PREFIX = "MAGNETAR_"

_OF_COMMANDS = {
    "MAGNETAR_URL",
    "MAGNETAR_SERVICE_URL",
    "MAGNETAR_TOKEN",
    "MAGNETAR_TOKEN_FILE",
    "MAGNETAR_AUTH_PLUGIN",
    "MAGNETAR_AUTH_PARAMS",
    "MAGNETAR_TRUST_CERTS",
    "MAGNETAR_TLS_CERT",
    "MAGNETAR_TLS_KEY",
    "MAGNETAR_PROFILE",
    "MAGNETAR_CONFIG",
    "MAGNETAR_REMOTE_TOKEN",
}
"""Variables of other commands, which may share an environment with a broker."""

_REFUSED_BY_WORDS = {name.replace("_", "").lower(): name for name in PROTECTING}
_OF_LINKED_SERVICE = re.compile(
    r"MAGNETAR_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR|START|END))?)", re.ASCII
)
_SECRETS = re.compile(
    r"TOKEN|(MAGNETAR|PULSAR)_\w*(token|passw|secret|credential|auth\w*param)\w*(?<!_file)(?<!path)", re.IGNORECASE
)
"""Variables of commands, and of other programs for Pulsar; the path of a secret is none."""

_BY_WORDS = {name.lower(): name for name in KINDS}


@dataclass(frozen=True, slots=True)
class Environment:
    """`variables` has the variable of each setting. `unknown` are variables that look like settings and are none."""

    pairs: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    refused: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Of those that no setting has, by the name of the setting that is meant: variable and text."""


def read_environment(environment: Mapping[str, str]) -> Environment:
    """`MAGNETAR_…` takes precedence over `PULSAR_PREFIX_…`, which does over the bare name."""
    found = Environment()
    for prefix in ("", PULSAR_PREFIX, MAGNETAR_PREFIX):
        for variable in sorted(environment):
            if not variable.startswith(prefix) or variable in _OF_COMMANDS:
                continue
            setting = _setting_of(variable, prefix)
            if setting is not None:
                found.pairs[setting] = environment[variable]
                found.variables[setting] = variable
            elif prefix and not _is_of_linked_service(variable, environment[variable]):
                found.unknown.append(variable)
                found.refused[_meant_by(variable, prefix)] = (variable, environment[variable])
            elif not prefix and variable in PROTECTING:  # other bare names are of other programs
                found.unknown.append(variable)
                found.refused[variable] = (variable, environment[variable])
    return found


def _meant_by(variable: str, prefix: str) -> str:
    rest = variable.removeprefix(prefix)
    return _REFUSED_BY_WORDS.get(rest.replace("_", "").lower(), rest) if prefix == MAGNETAR_PREFIX else rest


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """For a child, which passes its environment on to others. It may need those of Spark and its storage."""
    return {variable: value for variable, value in environment.items() if not _is_secret(variable)}


def _is_secret(variable: str) -> bool:
    if _SECRETS.fullmatch(variable):
        return True
    prefixes = ("", PULSAR_PREFIX, MAGNETAR_PREFIX)
    return any(variable.startswith(prefix) and _setting_of(variable, prefix) in SECRET for prefix in prefixes)


def _setting_of(variable: str, prefix: str) -> str | None:
    rest = variable.removeprefix(prefix)
    if prefix == MAGNETAR_PREFIX:
        return _BY_WORDS.get(rest.replace("_", "").lower())
    return rest if rest in KINDS else None


def _is_of_linked_service(variable: str, text: str) -> bool:
    """Docker and Kubernetes set variables for a linked service called magnetar."""
    if variable == "MAGNETAR_PORT":
        return "://" in text
    return _OF_LINKED_SERVICE.fullmatch(variable) is not None

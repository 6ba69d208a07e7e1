"""Private files: a file with a secret that every user of the machine can read is refused at the start of a broker.

Owns the rule, the settings that name such files, alone or among the parameters of a login, and the making of new ones.
Also the rule for files without a secret that decide whom the broker trusts: no other user writes to them. Reads none.

Rights of the group alone are the operator's decision. A file of root that others may read but not write is taken from a
mount of its own: Kubernetes and Docker hand secrets to a container like that.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from magnetar.errors import InvalidSetting
from magnetar.settings.settings import Settings
from magnetar.settings.source_path import path_of

PARAMETERS = "brokerClientAuthenticationParameters"
"""The setting that may name several, in a form that depends on brokerClientAuthenticationPlugin."""

KEY_FILE = "tlsKeyFilePath"

_PATHS_ONLY = (KEY_FILE, "tlsTrustCertsFilePath", "tlsCertificateFilePath", "brokerClientTrustCertsFilePath")
"""Settings whose text is always a path."""

SECRET_FILES = ("tokenSecretKey", "basicAuthConf", KEY_FILE, PARAMETERS)
"""Settings that may name a file with a secret."""

DECIDING_FILES = (
    "tlsTrustCertsFilePath",
    "tlsCertificateFilePath",
    "brokerClientTrustCertsFilePath",
    "tokenPublicKey",
    "openIDKeySetFile",
)
"""Settings that may name a file without a secret, by which the broker knows its clients or other clusters."""

PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644


def check_files(settings: Settings) -> None:
    """Raises `InvalidSetting` for the first file that other users can write, or read if it has a secret."""
    for names, check in ((SECRET_FILES, check_file), (DECIDING_FILES, check_unchanged_by_others)):
        for name in names:
            path = _path_of(name, getattr(settings, name))
            if path is not None:
                check(path, name)
    for file in _files_of_login(settings):
        check_file(Path(file), PARAMETERS)


def _files_of_login(settings: Settings) -> tuple[str, ...]:
    """Parameters of no known form are refused by the login."""
    if not settings.brokerClientAuthenticationPlugin:
        return ()
    from magnetar.client.errors import ClientError
    from magnetar.security.credentials import Security

    login = {
        "authPluginClassName": settings.brokerClientAuthenticationPlugin,
        "authParams": settings.brokerClientAuthenticationParameters,
    }
    try:
        return Security.from_pulsar(login).secret_files
    except ClientError:
        return ()


def check_file(path: Path, what: str) -> None:
    """A file that is missing is refused by its reader."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return
    mode = stat.S_IMODE(found.st_mode)
    if not mode & stat.S_IRWXO or not stat.S_ISREG(found.st_mode):
        return
    if not mode & stat.S_IWOTH and found.st_uid == 0 and os.geteuid() != 0 and found.st_dev != os.stat("/").st_dev:
        return
    raise InvalidSetting(f"{what}: {path} is open to every user of this machine (mode {mode:04o}): chmod o= {path}")


def check_unchanged_by_others(path: Path, what: str) -> None:
    """For a file without a secret, which decides what the broker does. One that is missing is refused by its reader."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return
    if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
        raise InvalidSetting(
            f"{what}: every user of this machine can write to {path} (mode {stat.S_IMODE(mode):04o}): chmod o-w {path}"
        )


def write_new(path: Path, content: bytes, what: str, *, mode: int = PRIVATE_MODE) -> None:
    """Makes a file that only its user can read, all of it or none; raises `InvalidSetting` if there is one already."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise InvalidSetting(f"{what}: {path} exists, and is not overwritten") from None
    except (OSError, ValueError) as error:
        raise InvalidSetting(f"{what}: {path} cannot be made: {getattr(error, 'strerror', error)}") from None
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InvalidSetting(f"{what}: {path} cannot be written: {error.strerror}") from None


def _path_of(name: str, text: str) -> Path | None:
    """As the reader of the setting opens it; a text of a wrong form is refused there."""
    try:
        path = text if name in _PATHS_ONLY else path_of(text, name)
    except InvalidSetting:
        return None
    return Path(path) if path else None

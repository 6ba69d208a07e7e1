"""The folder of `--secure`: what is in it, how it is made, and the settings of the broker that it secures.

    ca.pem      ca.key       an authority of its own: clients trust the first
    broker.pem  broker.key   the broker's certificate, made again before it expires and when the broker's names change
    token.key   admin.token  the secret key of all tokens, and a token of the role `admin`, which is a super user
    client.conf              for `magnetar`, `pulsar-admin` and `pulsar-client`, written at each start

A new folder is made whole or not at all: one with ca.pem is whole. Nothing in it that works is made again: clients keep
their trust and their tokens. Does not know how a broker is started.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from shlex import quote

from magnetar.access.signing import new_secret, secret_signer
from magnetar.errors import InvalidSetting
from magnetar.security.private_files import PRIVATE_MODE, PUBLIC_MODE, check_file
from magnetar.server.secure.authority import CERTIFICATE_DAYS, Certificate, Issued, can_name, issue, new_authority
from magnetar.settings.listeners import parse_listeners
from magnetar.settings.properties_file import property_line

ADMIN_ROLE = "admin"
AUTHORITY, AUTHORITY_KEY = "ca.pem", "ca.key"
CERTIFICATE, CERTIFICATE_KEY = "broker.pem", "broker.key"
TOKEN_KEY, ADMIN_TOKEN = "token.key", "admin.token"
CLIENT_CONF = "client.conf"
_IGNORED = frozenset({"lost+found"})  # of a file system that is mounted here
_PRIVATE = (AUTHORITY_KEY, CERTIFICATE_KEY, TOKEN_KEY, ADMIN_TOKEN)
_FILES = (AUTHORITY, AUTHORITY_KEY, CERTIFICATE, CERTIFICATE_KEY, TOKEN_KEY, ADMIN_TOKEN, CLIENT_CONF)

_FOLDER_MODE = 0o700
_DAY_MS = 86_400_000
_RENEW_MS = CERTIFICATE_DAYS * _DAY_MS // 3
"""What is left of a certificate when it is made again."""
_SOON = "expires soon"

_PLAIN_PORTS = ("brokerServicePort", "webServicePort")
_TLS_PORTS = {"brokerServicePortTls": "6651", "webServicePortTls": "8443"}
_LISTS = {"authenticationProviders": "token", "superUserRoles": ADMIN_ROLE}
_UNLESS_GIVEN = {"authenticateMetricsEndpoint": "true"}  # metrics name every tenant and topic


class SecureFolder:
    """`path` is absolute. Nothing is read or made before `prepare`."""

    def __init__(self, path: Path) -> None:
        path = path.expanduser().absolute()
        self.path = path.resolve() if ".." in path.parts else path

    @property
    def trust_certs_file(self) -> Path:
        """What clients have to trust."""
        return self.path / AUTHORITY

    # -- settings

    def settings(self) -> dict[str, str]:
        """Those that the folder decides."""
        return {
            **dict.fromkeys(_PLAIN_PORTS, ""),
            "tlsCertificateFilePath": str(self.path / CERTIFICATE),
            "tlsKeyFilePath": str(self.path / CERTIFICATE_KEY),
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "tokenSecretKey": (self.path / TOKEN_KEY).as_uri(),
        }

    def over(self, pairs: Mapping[str, str]) -> dict[str, str]:
        """The settings of the operator with those of the folder; raises `InvalidSetting` where they contradict."""
        merged = dict(pairs)
        if merged.get("withoutAuthentication", "").strip().lower() == "true":
            raise InvalidSetting("--secure and --without-authentication contradict each other")
        if merged.get("anonymousUserRole", "").strip():
            raise InvalidSetting(
                f"anonymousUserRole is set, and --secure {self.path} lets in no client without a login: leave one of"
                " the two out"
            )
        self._check_listeners(merged.get("advertisedListeners", ""))
        for name, text in self.settings().items():
            given = merged.get(name)
            if given is not None and given.strip() != text:
                has = "has only ports with TLS" if name in _PLAIN_PORTS else "has its own"
                raise InvalidSetting(f"{name} is set, and --secure {self.path} {has}: leave one of the two out")
            merged[name] = text
        for name, text in _TLS_PORTS.items():
            merged.setdefault(name, text)
        for name, text in _UNLESS_GIVEN.items():
            if not merged.get(name, "").strip():
                merged[name] = text
        for name, text in _LISTS.items():
            words = [word.strip() for word in merged.get(name, "").split(",") if word.strip()]
            merged[name] = ",".join(words if text in words else [*words, text])
        return merged

    def _check_listeners(self, text: str) -> None:
        for listener in parse_listeners(text).values():
            for url in (listener.service_url, listener.http_url):
                if url:
                    raise InvalidSetting(
                        f"advertisedListeners has {url}, and --secure {self.path} has only ports with TLS: advertise"
                        " pulsar+ssl:// and https://"
                    )

    # -- files

    def prepare(self, hosts: frozenset[str], now_ms: int) -> None:
        """Makes what is missing, for a broker with these names; raises `InvalidSetting`."""
        try:
            if not self.path.exists():
                self._make_beside(hosts, now_ms)
            elif not (self.path / AUTHORITY).exists():
                self._make_inside(hosts, now_ms)
            self._check_folder()
            self.renew(hosts, now_ms)
            self._check_token()
        except OSError as error:
            name = Path(str(error.filename)).name
            path = self.path / name if name in _FILES else self.path  # and no file of a moment
            raise InvalidSetting(f"--secure {path}: {error.strerror or error}") from error

    def renew(self, names: Iterable[str], now_ms: int) -> bool:
        """Makes the broker's certificate again if it has to be; returns whether. Raises `InvalidSetting`, `OSError`.

        Without the key of the authority, one that is still valid serves on.
        """
        hosts = frozenset(filter(can_name, names))
        authority = self._read(AUTHORITY)
        reason = self._why_renew(authority, hosts, now_ms)
        if not reason:
            return False
        if not (self.path / AUTHORITY_KEY).exists():
            if reason == _SOON:
                return False
            raise InvalidSetting(
                f"{self._of(CERTIFICATE)} {reason}, and without {AUTHORITY_KEY} none can be signed: put it back"
            )
        check_file(self.path / AUTHORITY_KEY, "--secure")
        key = self._read(CERTIFICATE_KEY) if (self.path / CERTIFICATE_KEY).exists() else b""
        try:
            issued = issue(Issued(authority, self._read(AUTHORITY_KEY)), hosts, now_ms, key)
        except (ValueError, TypeError):
            raise InvalidSetting(
                f"--secure {self.path}: {AUTHORITY}, {AUTHORITY_KEY} or {CERTIFICATE_KEY} is not what was made here"
            ) from None
        if not key:
            self._write(CERTIFICATE_KEY, issued.key)
        self._write(CERTIFICATE, issued.certificate, PUBLIC_MODE)
        return True

    def days_left(self, now_ms: int) -> int | None:
        """Of a certificate that expires soon and cannot be made again; None for any other. Raises `OSError`."""
        if (self.path / AUTHORITY_KEY).exists():
            return None
        left_ms = Certificate(self._read(CERTIFICATE)).not_after_ms - now_ms
        return max(left_ms, 0) // _DAY_MS if left_ms < _RENEW_MS else None

    def write_client_conf(self, service_url: str, http_url: str) -> None:
        """Raises `InvalidSetting`."""
        pairs = {
            "brokerServiceUrl": service_url,
            "webServiceUrl": http_url,
            "authPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "authParams": (self.path / ADMIN_TOKEN).as_uri(),
            "tlsTrustCertsFilePath": str(self.path / AUTHORITY),
            "tlsEnableHostnameVerification": "true",
        }
        comment = "# Written at each start of the broker: set PULSAR_CLIENT_CONF to this file."
        lines = (comment, *(property_line(name, text) for name, text in pairs.items()))
        content = "".join(f"{line}\n" for line in lines).encode("ascii")
        try:
            if not (self.path / CLIENT_CONF).exists() or self._read(CLIENT_CONF) != content:
                self._write(CLIENT_CONF, content, PUBLIC_MODE)
        except OSError as error:
            raise InvalidSetting(f"{self._of(CLIENT_CONF)} cannot be written: {error.strerror or error}") from error

    def first_steps(self, service_url: str) -> tuple[str, ...]:
        """Printed with the addresses: what an operator does next."""
        path = {name: quote(str(self.path / name)) for name in (CLIENT_CONF, TOKEN_KEY)}
        return (
            f"  secured  {self.path}",
            "  try it   as the administrator, with magnetar or pulsar-admin:",
            f"             export PULSAR_CLIENT_CONF={path[CLIENT_CONF]}",
            "             magnetar namespaces grant-permission public/default --role app --actions produce,consume",
            "           a token for that role:",
            f"             magnetar tokens create --subject app --secret-key {path[TOKEN_KEY]} --output app.token",
            "           and a client with it, after pip install pulsar-client, in Python:",
            "             import pathlib, pulsar",
            "             token = pulsar.AuthenticationToken(pathlib.Path('app.token').read_text())",
            f"             trust = {str(self.path / AUTHORITY)!r}",
            f"             client = pulsar.Client({service_url!r}, token, tls_trust_certs_file_path=trust)",
            "             client.create_producer('hello').send(b'world')",
        )

    def token(self, role: str) -> str:
        """A token that never expires, signed with the key of the folder; raises `InvalidSetting`."""
        return secret_signer(self._read(TOKEN_KEY), self._of(TOKEN_KEY)).sign(role)

    # -- making

    def _make_beside(self, hosts: frozenset[str], now_ms: int) -> None:
        """In a folder that takes the name of this one when it is complete: no start finds a half of it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._made(self.path.parent, hosts, now_ms) as new:
                try:
                    new.path.rename(self.path)
                except OSError:
                    if not (self.path / AUTHORITY).exists():  # or another broker was first
                        raise
        except OSError as error:
            raise InvalidSetting(f"--secure {self.path} cannot be made: {error.strerror or error}") from error

    def _make_inside(self, hosts: frozenset[str], now_ms: int) -> None:
        """In an empty folder that is there already: a mount point, behind a link, or all that may be written."""
        with _locked(self.path):
            if set(os.listdir(self.path)) - _IGNORED:
                return  # another broker was first, or it is no folder for this
            if self.path.stat().st_uid == os.geteuid():
                self.path.chmod(_FOLDER_MODE)
            _check_owner(self.path)
            with self._made(self.path, hosts, now_ms) as new:
                self._take_from(new)

    @contextlib.contextmanager
    def _made(self, within: Path, hosts: frozenset[str], now_ms: int) -> Iterator[SecureFolder]:
        """A complete folder for a moment, of any name."""
        new = SecureFolder(Path(tempfile.mkdtemp(prefix=f".{self.path.name}-", dir=within)))
        try:
            authority = new_authority(now_ms)
            new._write(AUTHORITY_KEY, authority.key)
            new._write(AUTHORITY, authority.certificate, PUBLIC_MODE)
            new.renew(hosts, now_ms)
            new._write(TOKEN_KEY, new_secret())
            new._write(ADMIN_TOKEN, new.token(ADMIN_ROLE).encode())
            new.path.chmod(_FOLDER_MODE)
            yield new
        finally:
            shutil.rmtree(new.path, ignore_errors=True)

    def _take_from(self, new: SecureFolder) -> None:
        """One file after the other, the authority last; all of them or none."""
        names = (*_PRIVATE, CERTIFICATE, AUTHORITY)
        try:
            for name in names:
                (new.path / name).rename(self.path / name)
        except BaseException:
            for name in names:
                (self.path / name).unlink(missing_ok=True)
            raise

    def _check_folder(self) -> None:
        if not self.path.is_dir():
            raise InvalidSetting(f"--secure {self.path} is not a folder")
        if not (self.path / AUTHORITY).exists():
            raise InvalidSetting(
                f"--secure {self.path} is not empty and has no {AUTHORITY}: give a new folder, or empty it"
            )
        for path in (self.path, *(self.path / name for name in _FILES)):
            if path.exists():
                _check_owner(path)
        for name in _PRIVATE:
            check_file(self.path / name, "--secure")

    def _check_token(self) -> None:
        key, token = self.path / TOKEN_KEY, self.path / ADMIN_TOKEN
        if not key.exists():
            if token.exists():
                raise InvalidSetting(
                    f"{self._of(TOKEN_KEY)} is missing, which signed {ADMIN_TOKEN}: put it back, or remove"
                    f" {ADMIN_TOKEN} too, and no token that was made before is valid"
                )
            self._write(TOKEN_KEY, new_secret())
        if not token.exists():
            self._write(ADMIN_TOKEN, self.token(ADMIN_ROLE).encode())

    def _why_renew(self, authority: bytes, hosts: frozenset[str], now_ms: int) -> str:
        """Empty if the certificate serves on."""
        if not (self.path / CERTIFICATE).exists() or not (self.path / CERTIFICATE_KEY).exists():
            return "is missing, or its key"
        try:
            found = Certificate(self._read(CERTIFICATE))
            is_pair = found.has_key(self._read(CERTIFICATE_KEY))
        except (ValueError, TypeError):
            raise InvalidSetting(
                f"{self._of(CERTIFICATE)} or {CERTIFICATE_KEY} cannot be read: remove them to have them made again"
            ) from None
        if not found.is_signed_by(authority):
            raise InvalidSetting(
                f"{self._of(CERTIFICATE)} is not signed by {AUTHORITY}: remove it to have it made again; for a"
                " certificate of your own, set tlsCertificateFilePath and the other settings instead of --secure"
            )
        if not is_pair:
            return f"is not of {CERTIFICATE_KEY}"
        if not hosts <= found.hosts:
            return f"does not have the name {min(hosts - found.hosts)}"
        left_ms = found.not_after_ms - now_ms
        return "has expired" if left_ms <= 0 else _SOON if left_ms < _RENEW_MS else ""

    def _of(self, name: str) -> str:
        return f"--secure {self.path / name}"

    def _read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def _write(self, name: str, content: bytes, mode: int = PRIVATE_MODE) -> None:
        """All of it or nothing, private from the first moment."""
        file, fresh = tempfile.mkstemp(prefix=f".{name}-", dir=self.path)  # with mode 0600
        try:
            with os.fdopen(file, "wb") as opened:
                opened.write(content)
                opened.flush()
                os.fchmod(opened.fileno(), mode)
                os.fsync(opened.fileno())
            os.replace(fresh, self.path / name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Against another broker that starts with the same folder; some file systems have no locks."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _check_owner(path: Path) -> None:
    """The owner of a file or folder, and a user that can write to it, knows the keys or replaces them."""
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()):
        raise InvalidSetting(
            f"--secure {path}: it belongs to another user of this machine ({found.st_uid}), who can read and change it:"
            " give a folder of your own"
        )
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWOTH:
        raise InvalidSetting(f"--secure {path}: every user of this machine can write to it (mode {mode:04o})")

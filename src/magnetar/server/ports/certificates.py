"""The broker's certificates: read at the start, and again when their files change. New connections use the new ones.

Files that cannot be used leave the old certificates in force. What a context is made of is `security.server_tls`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

from magnetar.errors import InvalidSetting
from magnetar.log.events import CERTIFICATES_READ, CERTIFICATES_REFUSED
from magnetar.security.server_tls import Stamp, TlsContexts, read_contexts, stamp_of
from magnetar.settings.settings import Settings

Report = Callable[..., None]


class Certificates:
    """`check` does nothing while the files are the same; `run` calls it now and then."""

    def __init__(self, settings: Settings, report: Report) -> None:
        """Raises InvalidSetting."""
        self._settings = settings
        self._report = report
        self._stamp = stamp_of(settings)
        self._refused: tuple[Stamp, str] | None = None  # what was reported
        self._contexts = read_contexts(settings)
        self._every_s = settings.tlsCertRefreshCheckDurationSec

    def binary(self) -> ssl.SSLContext:
        """For one connection."""
        return self._current().binary

    def http(self) -> ssl.SSLContext:
        return self._current().http

    def _current(self) -> TlsContexts:
        if not self._every_s:
            self.check()
        return self._contexts

    async def run(self) -> None:
        while self._every_s:
            await asyncio.sleep(self._every_s)
            self._take(*await asyncio.to_thread(self._look))

    def check(self) -> None:
        self._take(*self._look())

    def _look(self) -> tuple[Stamp, TlsContexts | str | None]:
        """The state of the files, and what is in them: nothing if it is known, or why they cannot be used."""
        stamp = stamp_of(self._settings)  # before they are read: a change in between is seen the next time
        if stamp == self._stamp:
            return stamp, None
        try:
            return stamp, read_contexts(self._settings)
        except InvalidSetting as error:
            return stamp, str(error)

    def _take(self, stamp: Stamp, found: TlsContexts | str | None) -> None:
        if isinstance(found, str):  # tried again the next time: files are replaced one after the other
            if self._refused != (stamp, found):
                self._refused = (stamp, found)
                self._report(CERTIFICATES_REFUSED, reason=found)
        elif found is not None:
            self._stamp, self._contexts, self._refused = stamp, found, None
            self._report(CERTIFICATES_READ, path=self._settings.tlsCertificateFilePath)

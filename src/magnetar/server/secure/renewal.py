"""The certificate of `--secure` while the broker runs: made again before it expires, or a warning once a day.

Knows nothing of the server, which loads certificates that were replaced by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from magnetar.clock import Clock
from magnetar.log.events import CERTIFICATE_EXPIRES, emit
from magnetar.server.secure.folder import AUTHORITY_KEY, CERTIFICATE, SecureFolder

INTERVAL_S = 86_400.0


async def keep_certificate(secure: SecureFolder, names: Iterable[str], clock: Clock) -> None:
    """Runs until it is cancelled; the start of the broker has made a certificate already where it had to."""
    while True:
        report_expiry(secure, clock.now_ms())
        await asyncio.sleep(INTERVAL_S)
        await asyncio.to_thread(secure.renew, names, clock.now_ms())


def report_expiry(secure: SecureFolder, now_ms: int) -> None:
    days = secure.days_left(now_ms)
    if days is not None:
        emit(CERTIFICATE_EXPIRES, path=secure.path / CERTIFICATE, days=days, key=secure.path / AUTHORITY_KEY)

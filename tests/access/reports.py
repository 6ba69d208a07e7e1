"""Events of files that were replaced, as the log has them."""

from __future__ import annotations

import pytest

from magnetar.log.events import ACCESS_FILE_READ, ACCESS_FILE_REFUSED, Occurrence


def reported(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and text of each since the last call."""
    found = [
        (record.levelname, str(record.msg))
        for record in caplog.records
        if isinstance(record.msg, Occurrence) and record.msg.event in (ACCESS_FILE_READ, ACCESS_FILE_REFUSED)
    ]
    caplog.clear()
    return found

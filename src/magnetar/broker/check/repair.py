"""The repair of a storage: applies the changes of findings, and checks again until nothing is left that can be done.

What one round writes anew may explain what another finds: data without a record, once its topic is known. The caller
keeps what is overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from magnetar.broker.check.check import DataCheck
from magnetar.broker.check.finding import Change, Finding, apply
from magnetar.storage.api import Storage

_ROUNDS_MAX = 1000
_PER_ROUND = 10_000

Keep = Callable[[Finding, Change, bytes], None]
"""Gets a change before it is made, with the value that it overwrites or deletes."""


def repair(storage: Storage, keep: Keep, kept: Callable[[], None]) -> None:
    """`kept()` is called before the changes of a round are made: all that was given to `keep` has to be safe then."""
    for _ in range(_ROUNDS_MAX):
        findings = [finding for finding in islice(DataCheck(storage).findings(), _PER_ROUND) if finding.changes]
        if not findings:
            return
        for finding in findings:
            for change in finding.changes:
                value = storage.get(change.space, change.key)
                if value is not None:
                    keep(finding, change, value)
        kept()
        for finding in findings:
            batch = storage.batch()
            for change in finding.changes:
                apply(batch, change)
            storage.write(batch)
        storage.sync()

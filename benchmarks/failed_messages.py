"""Rows for failed messages, on Magnetar alone: process, redrive, SQL over dead letters, archive.

Each against what its users would do without it. Owns the sizes and the list; a row is in its own module.
"""

from __future__ import annotations

from archive import ArchiveFailed, archive_rows
from contestant import Contestant
from dead_letter_sql import SqlFailed, dead_letter_sql_rows
from processing import ProcessingFailed, processing_rows
from redrive import RedriveFailed, redrive_rows
from scale import Log, Scale, Values

FAILED_MESSAGES_FAILURES = (ArchiveFailed, ProcessingFailed, RedriveFailed, SqlFailed)


def process(contestant: Contestant, scale: Scale, log: Log) -> Values:
    return processing_rows(contestant, scale.failed_messages.processed, log)


def redrive(contestant: Contestant, scale: Scale, log: Log) -> Values:
    return redrive_rows(contestant, scale.failed_messages.redriven, log)


def dead_letter_sql(contestant: Contestant, scale: Scale, log: Log) -> Values:
    return dead_letter_sql_rows(contestant, scale.failed_messages.queried, log)


def archive(contestant: Contestant, scale: Scale, log: Log) -> Values:
    return archive_rows(contestant, scale.failed_messages.archived, log)


FAILED_MESSAGES = {"process": process, "redrive": redrive, "dead-letters-sql": dead_letter_sql, "archive": archive}

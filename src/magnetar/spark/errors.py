"""The errors of the source and the sink that are not the client's own."""

from __future__ import annotations


class SparkSourceError(Exception):
    """What ends a query: the text says which option, topic or message it is about."""


class InvalidOption(SparkSourceError, ValueError):
    """An option, a schema or a column that cannot be, or not with another one."""


class DataLoss(SparkSourceError):
    """Messages that the query should have read next are not there any more (`failOnDataLoss`)."""


class UnreadablePayload(SparkSourceError):
    """A message that is corrupt, encrypted or not of its schema (`onUnreadable` = fail)."""


class UnwritableRow(SparkSourceError):
    """A row that cannot be written, or not where it is; the text names its column, its place or its position."""

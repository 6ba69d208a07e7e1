"""Errors of the source and the sink, besides those of the client."""

from __future__ import annotations


class SparkSourceError(Exception):
    """An error that ends a query; its text names the option, topic or message."""


class InvalidOption(SparkSourceError, ValueError):
    """An option, schema or column that is invalid or conflicts with another one."""


class DataLoss(SparkSourceError):
    """Messages were deleted before the query read them (`failOnDataLoss`)."""


class UnreadablePayload(SparkSourceError):
    """A message that is corrupt, encrypted or does not match its schema (`onUnreadable` = fail)."""


class UnwritableRow(SparkSourceError):
    """A row that cannot be written; the text names its column, its index or its source position."""

"""Data loss: messages deleted before they were read, reported as an error or a warning (`failOnDataLoss`)."""

from __future__ import annotations

import logging

from magnetar.client.message import MessageId
from magnetar.spark.errors import DataLoss

log = logging.getLogger(__name__)


class DataLossReporter:
    """Raises `DataLoss`, or logs each text once."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._reported: set[str] = set()

    def report(self, text: str) -> None:
        if self._fail:
            raise DataLoss(f"{text}; set option failOnDataLoss=false to continue with the remaining messages")
        if text not in self._reported:
            self._reported.add(text)
            log.warning("%s; continuing with the remaining messages", text)


def messages_deleted(topic: str, offset: MessageId, before_first: MessageId) -> str:
    return f"{topic} was read up to {offset}, but the messages up to {before_first} were deleted before they were read"


def topic_recreated(topic: str, offset: MessageId, before_first: MessageId) -> str:
    return (
        f"{topic} was read up to {offset}, but was then deleted and created again: its first message now comes after"
        f" {before_first}"
    )


def topic_deleted(topic: str, offset: MessageId) -> str:
    return f"{topic} was read up to {offset}, but no longer exists"

"""Messages that are gone before they were read: what is said, and whether it ends the query (`failOnDataLoss`)."""

from __future__ import annotations

import logging

from magnetar.client.message import MessageId
from magnetar.spark.errors import DataLoss

log = logging.getLogger(__name__)


class DataLossReporter:
    """Each is an error, or a warning that is said once."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail
        self._reported: set[str] = set()

    def report(self, text: str) -> None:
        if self._fail:
            raise DataLoss(f"{text}; with option failOnDataLoss=false the query would go on with what is there")
        if text not in self._reported:
            self._reported.add(text)
            log.warning("%s; the query goes on with what is there", text)


def messages_deleted(topic: str, offset: MessageId, before_first: MessageId) -> str:
    return (
        f"{topic} was read up to {offset}, but the first message that is still there comes after {before_first}: what"
        " was between is deleted"
    )


def topic_recreated(topic: str, offset: MessageId, before_first: MessageId) -> str:
    return (
        f"{topic} was read up to {offset}, but was deleted and created again since: its first message now comes after"
        f" {before_first}"
    )


def topic_deleted(topic: str, offset: MessageId) -> str:
    return f"{topic} was read up to {offset}, and does not exist any more"

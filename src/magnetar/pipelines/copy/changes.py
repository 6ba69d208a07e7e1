"""The changes that a route policy makes to the entries of an assignment, if any (SP6).

Supplies `transform` with the messages to keep and with schemas, which it cannot wait for itself.
"""

from __future__ import annotations

from magnetar.client import Entry
from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.copy.copy_encoder import ParsedEntry
from magnetar.pipelines.copy.errors import source_errors
from magnetar.pipelines.copy.schemas import Schemas


class Changes:
    """The changes of one assignment. `is_plain`: there are none."""

    def __init__(self, assignment: Assignment, schemas: Schemas) -> None:
        policy = assignment.policy
        self.is_plain = not (policy.changes_messages or policy.rename)
        self._assignment = assignment
        self._schemas = schemas
        self._transform = None
        if not self.is_plain:
            from magnetar.pipelines.transform.transform import (
                Transform,  # most policies change nothing, and need no codecs
            )

            self._transform = Transform(policy, assignment.topic, schemas.known)

    async def changed(self, entry: Entry, content: ParsedEntry) -> ParsedEntry | None:
        """The entry to copy; None if no message of it is kept. Raises `MessageRefused`."""
        if self._transform is None:
            return content
        if content.version:
            with source_errors():
                await self._schemas.source(content.version)
        kept = self._assignment.messages_kept
        changed = self._transform.apply(
            content.metadata, content.payload, None if kept is None else kept.get(entry.id.position, ())
        )
        return None if changed is None else ParsedEntry(*changed, content.version)

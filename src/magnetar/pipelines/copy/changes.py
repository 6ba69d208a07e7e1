"""What a way does to the entries of an assignment, if it does anything (SP6).

Owns that the transformation has what it needs: which messages of an entry stay, and schemas, which it cannot wait for.
What it does with them is in `transform`.
"""

from __future__ import annotations

from magnetar.client import Entry
from magnetar.pipelines.copy.assignment import Assignment
from magnetar.pipelines.copy.copy_encoder import ParsedEntry
from magnetar.pipelines.copy.errors import source_errors
from magnetar.pipelines.copy.refusal import MessageRefused
from magnetar.pipelines.copy.schemas import Schemas


class Changes:
    """Of one assignment. `is_plain`: nothing is changed."""

    def __init__(self, assignment: Assignment, schemas: Schemas) -> None:
        policy = assignment.policy
        self.is_plain = not (policy.changes_messages or policy.rename)
        self._assignment = assignment
        self._schemas = schemas
        self._transform = None
        if not self.is_plain:
            from magnetar.pipelines.transform.transform import Transform  # most ways change nothing, and need no codecs

            self._transform = Transform(policy, assignment.topic, schemas.known)

    async def changed(self, entry: Entry, content: ParsedEntry) -> ParsedEntry | None:
        """The entry as it goes on; None if nothing of it does. Raises `MessageRefused`."""
        if self._transform is None:
            return content
        from magnetar.pipelines.transform.transform import Refused

        if content.version:
            with source_errors():
                await self._schemas.source(content.version)
        kept = self._assignment.messages_kept
        try:
            changed = self._transform.apply(
                content.metadata, content.payload, None if kept is None else kept.get(entry.id.position, ())
            )
        except Refused as refused:
            raise MessageRefused(str(refused)) from None
        return None if changed is None else ParsedEntry(*changed, content.version)

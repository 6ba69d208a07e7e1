"""The check of one schema against the versions of a topic: which of them it equals, and whether it may follow them.

An examination works on what it was given and keeps what it finds, a refusal too: a long one is made in another thread,
ahead of the command that needs it. Knows neither the registry, storage nor threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from magnetar.bounds import SCHEMA_EXAMINATIONS, SCHEMA_IN_TURN
from magnetar.broker.schema import compatibility, definition
from magnetar.errors import MagnetarError, ServiceNotReady
from magnetar.schema.types import PRIMITIVE, Schema, SchemaType

if TYPE_CHECKING:
    from magnetar.broker.schema.registry import Version

_IN_TURN_MAX = SCHEMA_IN_TURN.limit
_ATTEMPTS_MAX = SCHEMA_EXAMINATIONS.limit


class Examination:
    """Its methods raise InvalidSchema and IncompatibleSchema, again and again the same."""

    __slots__ = ("_attempt", "_outcomes", "is_ready", "schema", "versions")

    def __init__(self, schema: Schema, versions: Sequence[Version], outdated: Examination | None = None) -> None:
        """`outdated`: the one that this one repeats, because the versions have changed."""
        self.schema = schema
        self.versions = list(versions)
        self.is_ready = False  # it was made ahead
        self._attempt: int = 1 if outdated is None else outdated._attempt + 1
        self._outcomes: dict[str, Version | MagnetarError | None] = {}

    def fits(self, schema: Schema, versions: Sequence[Version]) -> bool:
        """Whether it is about this schema, and the versions have not changed since."""
        return self.schema == schema and self.versions == versions

    def check_attempt(self) -> None:
        """Raises when the versions changed too often while this schema was examined."""
        if self._attempt > _ATTEMPTS_MAX:
            raise ServiceNotReady(f"the schema was examined {_ATTEMPTS_MAX} times, and others were added each time")

    # -- its size

    @property
    def is_large(self) -> bool:
        """Parsing and comparing may hold up others: it is made aside, unless a shortcut applies."""
        own = self.schema.size
        if self.schema.type in PRIMITIVE or own > definition.SCHEMA_SIZE_MAX:
            return False
        return own + sum(own + version.schema.size for version in self.versions) > _IN_TURN_MAX

    @property
    def literal(self) -> Version | None:
        """The version that has the same bytes."""
        return next((version for version in self.versions if _is_literally(version.schema, self.schema)), None)

    def is_read_by_itself(self, strategy: str) -> bool:
        """A consumer with the schema of the latest version needs no comparison, unless it has to read all of them."""
        return (
            bool(self.versions)
            and "TRANSITIVE" not in strategy
            and _is_literally(self.versions[-1].schema, self.schema)
        )

    # -- what it finds

    def check(self) -> None:
        self._once("valid", lambda: definition.check(self.schema))

    def find(self) -> Version | None:
        """The version that equals this schema."""
        return self._once("found", self._find)

    def _find(self) -> Version | None:
        found = self.literal
        if found is None:
            self.check()
            same = (version for version in self.versions if definition.are_same(version.schema, self.schema))
            found = next(same, None)
        return found

    def check_compatible(self, strategy: str) -> None:
        """Raises unless the schema may become the next version."""
        self.check()
        self._once(strategy, lambda: compatibility.check(self.schema, self._numbered(), strategy))

    def find_or_check(self, strategy: str) -> Version | None:
        """The version that equals this schema; without one it has to be compatible."""
        found = self.find()
        if found is None:
            self.check_compatible(strategy)
        return found

    def check_reader(self, strategy: str) -> None:
        """Raises unless a consumer with this schema can read the topic."""
        if self.is_read_by_itself(strategy):
            return
        if strategy == compatibility.ALWAYS_INCOMPATIBLE and self.find() is not None:
            return
        self.check()
        self._once(f"reader {strategy}", lambda: compatibility.check_reader(self.schema, self._numbered(), strategy))

    def _numbered(self) -> list[tuple[int, Schema]]:
        return [(version.number, version.schema) for version in self.versions]

    def _once(self, what: str, step: Callable[[], Version | None]) -> Version | None:
        if what not in self._outcomes:
            try:
                self._outcomes[what] = step()
            except MagnetarError as error:
                self._outcomes[what] = error
        outcome = self._outcomes[what]
        if isinstance(outcome, MagnetarError):
            raise outcome
        return outcome


def _is_literally(one: Schema, other: Schema) -> bool:
    if one.type is not other.type or one.data != other.data:
        return False
    return one.type is not SchemaType.KEY_VALUE or one.properties == other.properties

"""Forwarding: plain letters go back inside the broker, which stores and acknowledges them in one commit.

The quick way for a redrive that chooses and edits nothing, on a cluster with moves: no letter leaves the broker. One
that is not plain (a batch, encrypted, in chunks, for quarantine) ends it: `stage` continues from there. What the broker
makes of a letter is in `deadletter.redriven`, and in SQL in `rows`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from magnetar.bounds import REQUEST_BODY
from magnetar.client.errors import ServerFailure
from magnetar.deadletter.redriven import ANY_ORIGIN, OriginKey
from magnetar.pipeline_bounds import REDRIVE_TARGETS, REDRIVEN_PER_REQUEST
from magnetar.pipelines.redrive.stage import RedriveTarget
from magnetar.spark.dead_letters.cursor_admin import CursorAdmin
from magnetar.spark.dead_letters.plan import LetterRange


class _Unknown(msgspec.Struct):
    topic: str | None
    partition: int | None
    subscription: str | None


class _Result(msgspec.Struct, rename="camel"):
    up_to: int
    plain: bool
    sent: list[int]
    kept: list[int]
    sent_to: int
    unknown: list[_Unknown]


_TABLE_BYTES = REQUEST_BODY.limit - 2000  # the others are a few names and numbers
_ORIGIN = ("originTopic", "originPartition", "originSubscription")

_result = msgspec.json.Decoder(_Result)


@dataclass
class Forwarded:
    """What became of a range: all its letters up to `up_to` are sent, or stay. Without `is_plain` the next one is not.
    `unknown` are origins without a target that come next."""

    up_to: int
    is_plain: bool = True
    sent: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    unknown: set[OriginKey] = field(default_factory=set)


@dataclass(frozen=True)
class Forwarder:
    """`run` raises `ClientError`; then letters may have been sent that nothing counts."""

    admin: CursorAdmin
    generations_max: int
    published_until_ms: int

    def run(self, letters: LetterRange, targets: Mapping[OriginKey, RedriveTarget]) -> Forwarded:
        span = letters.span
        found = Forwarded(span.start.entry_id)
        named = [(origin, target) for origin, target in targets.items() if origin != ANY_ORIGIN]
        table = msgspec.Raw(msgspec.json.encode([_named(origin, target) for origin, target in named]))
        if len(named) > REDRIVE_TARGETS.limit or len(bytes(table)) > _TABLE_BYTES:
            return replace(found, is_plain=False)
        to = targets[ANY_ORIGIN].topic if ANY_ORIGIN in targets else ""
        while found.up_to < span.end.entry_id:
            result = self._ask(letters, found.up_to, table, len(named), to)
            found.up_to = result.up_to
            found.is_plain = result.plain
            found.unknown = {OriginKey(one.topic, one.partition, one.subscription) for one in result.unknown}
            for (_, target), sent, kept in zip(named, result.sent, result.kept, strict=True):
                found.sent[target.topic] += sent
                found.kept[target.problem] += kept
            if to:
                found.sent[to] += result.sent_to
            if found.unknown or not found.is_plain:
                break
        found.sent, found.kept = +found.sent, +found.kept
        return found

    def _ask(self, letters: LetterRange, after: int, table: msgspec.Raw, targets: int, to: str) -> _Result:
        span = letters.span
        body: dict[str, object] = {
            "ledgerId": span.end.ledger_id,
            "after": after,
            "upTo": span.end.entry_id,
            "letters": REDRIVEN_PER_REQUEST.limit,
            "maxGenerations": self.generations_max,
            "publishedUntil": self.published_until_ms,
            "targets": table,
            "to": to,
        }
        content = self.admin.redrive(span.topic, msgspec.json.encode(body))
        try:
            result = _result.decode(content)
        except msgspec.DecodeError as error:
            raise ServerFailure(f"redriving {span.topic}: the response has another form: {error}") from None
        if len(result.sent) != targets or len(result.kept) != targets:
            raise ServerFailure(f"redriving {span.topic}: the response has other targets than the request")
        if result.up_to <= after and result.plain and not result.unknown:
            raise ServerFailure(f"redriving {span.topic}: no progress after entry {after}")
        return result


def _named(origin: OriginKey, target: RedriveTarget) -> dict[str, object]:
    one: dict[str, object] = dict(zip(_ORIGIN, origin, strict=True))
    return one if target.problem else one | {"topic": target.topic, "only": target.only}

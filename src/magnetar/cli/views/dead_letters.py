"""Dead letters of a topic, as `deadletters` shows them.

Requested by REST. If the broker does not have the paths, as Apache Pulsar, the topic is read by the binary protocol
instead, with the same result. Nothing is consumed either way.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import typer

from magnetar.cli.client import client_of
from magnetar.cli.path import topic_path
from magnetar.cli.rest import Query, Refused, Rest
from magnetar.cli.views.dead_letter_topics import Acknowledged, dead_letter_topics_of
from magnetar.cli.views.messages import described, shown_time
from magnetar.cli.views.payloads import DeadLetterPayloads
from magnetar.deadletter.properties import UNKNOWN, read_history, read_info
from magnetar.deadletter.tally import ReasonCounts, Tally
from magnetar.deadletter.topics import DEAD_LETTER_SUFFIX
from magnetar.names import TopicName

if TYPE_CHECKING:
    from magnetar.client import Message, MessageId, Reader

T = TypeVar("T")

READ_MAX = 100_000
"""The maximum number of messages counted by reading; the broker has its own limits."""

PREVIEW_MAX = 4096
"""The size up to which a list has payloads."""

HTTP_NOT_FOUND, HTTP_REFUSED = 404, 412
_NO_SUCH_PATH = (HTTP_NOT_FOUND, 405, 501)
_PATH = "deadLetters"
NAMED_MAX = 20


class NoSuchTopic(Refused):
    """The dead letter topic does not exist; perhaps there are no dead letters yet."""


class DeadLetters:
    """The dead letters of one topic: those that wait or, with `handled`, all."""

    def __init__(self, rest: Rest, topic: TopicName, service_url: str | None, *, handled: bool = False) -> None:
        self._rest = rest
        self._topic = topic
        self._service_url = service_url
        self._handled = handled
        self._payloads = DeadLetterPayloads(rest, topic)

    def page(self, limit: int, after: str | None) -> dict[str, Any]:
        query = {"limit": limit, "after": after, "payloads": "true", **self._query}
        page = self._requested((), query, lambda: self._read_page(limit, after))
        return {**page, "deadLetters": [self._payloads.decoded(one) for one in page["deadLetters"]]}

    def stats(self, after: str | None) -> dict[str, Any]:
        return self._requested(("stats",), {"after": after, **self._query}, lambda: self._read_stats(after))

    @property
    def _query(self) -> dict[str, str]:
        return {"handled": "true"} if self._handled else {}

    def one(self, message_id: str) -> dict[str, Any]:
        return self._payloads.decoded(self._requested((message_id,), None, lambda: self._read_one(message_id)))

    # -- by REST

    def _requested(self, words: tuple[str, ...], query: Query | None, read: Callable[[], T]) -> T:
        from magnetar.client.errors import NotFound

        path = topic_path(self._topic, _PATH, *words)
        try:
            reply: T = self._rest.get(*path, query=query)
            return reply
        except Refused as error:
            if error.status not in _NO_SUCH_PATH:
                raise
            refused = error
        if self._is_served():
            reply = self._rest.get(*path, query=query)  # the first dead letter may have created the topic meanwhile
            return reply
        try:
            return read()
        except NotFound:
            raise NoSuchTopic(refused.status, refused.reason) from None  # with the broker's own text

    def _is_served(self) -> bool:
        """Whether the broker has the path of dead letters."""
        try:
            self._rest.get(*topic_path(self._topic, _PATH), query={"limit": 1})
        except Refused as error:
            if error.status not in _NO_SUCH_PATH:
                raise
            return False
        return True

    # -- by reading

    def _read_page(self, limit: int, after: str | None) -> dict[str, Any]:
        letters: list[dict[str, Any]] = []
        for message, is_handled in self._letters(after):
            if len(letters) == limit:
                return {"deadLetters": letters, "next": letters[-1]["id"]}
            letters.append(self._previewed(message) | ({"handled": True} if is_handled else {}))
        return {"deadLetters": letters, "next": None}

    def _read_stats(self, after: str | None) -> dict[str, Any]:
        tally, last = Tally(), None
        for message, _ in self._letters(after):
            if tally.all.total == READ_MAX:
                break
            tally.add(read_info(message.properties, self._topic), message.publish_time_ms)
            last = str(message.id)
        else:
            last = None
        return _stats(tally, last)

    def _letters(self, after: str | None) -> Iterator[tuple[Message, bool]]:
        """Dead letters, and whether they are handled; those only if they are wanted."""
        self._check()
        acknowledged: dict[int, Acknowledged] = {}
        for message in self._read(after):
            partition = message.id.partition
            if partition not in acknowledged:
                name = self._topic.with_partition(partition) if partition >= 0 else self._topic
                acknowledged[partition] = Acknowledged.of(self._rest, name)
            is_handled = message.id.position in acknowledged[partition]
            if self._handled or not is_handled:
                yield message, is_handled

    def _check(self) -> None:
        """Raises Refused unless this is a dead letter topic: by its name or, for any other name, its first message."""
        if self._topic.base.local.endswith(DEAD_LETTER_SUFFIX):
            return
        first = next(self._read(None), None)
        if first is None or read_info(first.properties, self._topic).reason == UNKNOWN:
            found = dead_letter_topics_of(self._rest, self._topic)
            names = f"its dead letter topics are {', '.join(found[:NAMED_MAX])}" if found else "it has none"
            raise Refused(HTTP_REFUSED, f"{self._topic.full} is not a dead letter topic: {names}")

    def _read_one(self, text: str) -> dict[str, Any]:
        wanted = _parsed(text)
        self._check()
        for message in self._read(text, inclusive=True):
            if message.id.position == wanted.position and wanted.batch_index in (-1, message.id.batch_index):
                return self._shown(message)
            break
        raise Refused(HTTP_NOT_FOUND, f"Message id not found: {text}")

    def _read(self, after: str | None, *, inclusive: bool = False) -> Iterator[Message]:
        """All stored messages, one partition after the other."""
        from magnetar.client import EARLIEST

        start = None if after is None else _parsed(after)
        count = self._partitions()
        names = [self._topic.with_partition(index) for index in range(count)] or [self._topic]
        if start is not None and count:
            if not 0 <= start.partition < count:
                raise typer.BadParameter(f"{after} is not in one of the {count} partitions of {self._topic}")
            names = names[start.partition :]
        with client_of(self._rest, self._service_url) as client:
            for name in names:
                with client.reader(name.full, start or EARLIEST, start_inclusive=inclusive) as reader:
                    while reader.has_next():
                        yield _next(reader)
                start = None

    def _partitions(self) -> int:
        try:
            count: int = self._rest.get(*topic_path(self._topic, "partitions"))["partitions"]
        except Refused as error:
            if error.status != HTTP_NOT_FOUND:
                raise
            raise NoSuchTopic(error.status, error.reason) from None
        return count

    def _listed(self, message: Message) -> dict[str, Any]:
        info = msgspec.to_builtins(read_info(message.properties, self._topic))
        listed = {"id": str(message.id), "time": _time(message.publish_time_ms), **info}
        if message.key is not None:
            listed["key"] = message.key
        return {**listed, "size": len(message.value)}

    def _previewed(self, message: Message) -> dict[str, Any]:
        listed = self._listed(message)
        binary_key = {"keyIsBase64": True} if message.key_is_base64 else {}
        return listed | binary_key | _raw(message) if listed["size"] <= PREVIEW_MAX else listed

    def _shown(self, message: Message) -> dict[str, Any]:
        fields = described(message)
        known = {"keyIsBase64": "keyIsBase64", "eventTime": "eventTime", "producerName": "producer"}
        return {
            **self._listed(message),
            "failures": [
                {**msgspec.to_builtins(failure), "first": _time(failure.first), "last": _time(failure.last)}
                for failure in read_history(message.properties)
            ],
            "properties": message.properties,
            **{name: fields[field] for name, field in known.items() if field in fields},
            "sequenceId": message.sequence_id,
            **_raw(message),
        }


def _raw(message: Message) -> dict[str, Any]:
    """The payload and the version of its schema, as the broker would send them."""
    encoding, payload = _payload(described(message))
    version = message.schema_version
    known = {} if version is None else {"schemaVersionBase64": base64.b64encode(version).decode()}
    return {**known, "payloadEncoding": encoding, "payload": payload}


def _next(reader: Reader) -> Message:
    """A message that cannot be decrypted is shown without its value."""
    from magnetar.client import Message, MessageId
    from magnetar.client.errors import UnreadableMessage

    try:
        return reader.read()
    except UnreadableMessage as error:
        return Message(topic=error.topic, id=MessageId.parse(str(error.message_id)), value=b"")


def _parsed(text: str) -> MessageId:
    from magnetar.client import MessageId
    from magnetar.client.errors import InvalidArgument

    try:
        return MessageId.parse(text)
    except InvalidArgument as error:
        raise typer.BadParameter(str(error)) from error


def no_page() -> dict[str, Any]:
    return {"deadLetters": [], "next": None}


def no_stats() -> dict[str, Any]:
    return _stats(Tally(), None)


def _stats(tally: Tally, last: str | None) -> dict[str, Any]:
    """`last` is the last message counted if counting stopped early."""
    origins = [
        {"topic": topic, "subscription": subscription, **_tallied(one)}
        for (topic, subscription), one in tally.by_origin.items()
    ]
    return {
        **_tallied(tally.all),
        "origins": origins,
        "originsLeftOut": tally.left_out,
        "aborted": last is not None,
        "next": last,
    }


def _tallied(counts: ReasonCounts) -> dict[str, Any]:
    return {
        "deadLetters": counts.total,
        "reasons": counts.reasons,
        "first": _time(counts.first_ms),
        "last": _time(counts.last_ms),
    }


def _time(time_ms: int | None) -> str | None:
    return shown_time(time_ms) if time_ms else None


def _payload(fields: dict[str, object]) -> tuple[str | None, object]:
    if "valueBase64" in fields:
        return "base64", fields["valueBase64"]
    text = fields["value"]
    if not isinstance(text, str):
        return None, None
    if text.lstrip()[:1] in ("{", "["):
        try:
            return "json", json.loads(text)
        except (ValueError, RecursionError):
            pass
    return "text", text

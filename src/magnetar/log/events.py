"""Events of the log: each has a name, a level, a component and a sentence with named fields.

The set is closed: docs/log.md is generated from it. The core reports an event to its host, the server writes it with
`emit`; a sentence is put together only when a handler wants it. Knows no format and no stream.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import Literal

from magnetar.bounds import LOG_LINES, LOG_VALUE

Component = Literal["server", "session", "admin", "catalog", "subscription", "storage", "replication", "log"]

VALUE_MAX = LOG_VALUE.limit
"""Characters of a value; the rest is cut, and its length noted."""

# Control characters, line and paragraph separators, marks that reverse the direction of text, lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Event:
    """`text` is a sentence with the names of its fields in braces, `per_minute` the most lines that are written."""

    name: str
    level: int
    component: Component
    text: str
    meaning: str
    per_minute: int = LOG_LINES.limit

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field for _, field, _, _ in Formatter().parse(self.text) if field)


class Occurrence:
    """An event with its values: the message of a log record."""

    __slots__ = ("event", "values")

    def __init__(self, event: Event, values: Mapping[str, object]) -> None:
        self.event = event
        self.values = values

    def __str__(self) -> str:
        shown = {name: bounded(str(value)) for name, value in self.values.items()}
        return self.event.text.format_map(shown).rstrip(" :")  # the last field is often empty


def emit(event: Event, **values: object) -> None:
    """Writes one line."""
    emit_at(event.level, event, **values)


def emit_at(level: int, event: Event, **values: object) -> None:
    """The same, for an event that is more or less important than usual."""
    logger = _LOGGERS[event.component]
    if logger.isEnabledFor(level):
        logger.log(level, Occurrence(event, values))


def emit_traceback(event: Event, error: BaseException, **values: object) -> None:
    """Writes one line with the traceback of `error`; the event has a field of that name."""
    shown = {**values, "error": f"{type(error).__name__}: {error}"}
    _LOGGERS[event.component].log(event.level, Occurrence(event, shown), exc_info=error)


def bounded(text: str, size_max: int = VALUE_MAX) -> str:
    """The text on one line, without characters that a terminal obeys, and cut at `size_max`."""
    cut = len(text) - size_max
    if cut > 0:
        text = text[:size_max]
    safe = _UNSAFE.sub(_escaped, text) if _UNSAFE.search(text) else text
    return f"{safe}… ({cut} more characters)" if cut > 0 else safe


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    short = {9: "\\t", 10: "\\n", 13: "\\r"}.get(code)
    return short or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


# -- the broker's life

STARTED = Event(
    "started",
    logging.INFO,
    "server",
    "Magnetar {version} of cluster {cluster} serves {service_url} and {http_url}, data in {data}",
    "The broker is ready: both ports are open.",
)
RECOVERED = Event(
    "recovered",
    logging.INFO,
    "storage",
    "recovered {namespaces} namespaces and {topics} topics in {milliseconds} ms",
    "The data folder was opened and its catalog read. Topics themselves are opened when they are used.",
)
DESCRIPTORS = Event(
    "descriptors",
    logging.INFO,
    "server",
    "{limit} file descriptors: room for {connections} connections of clients and {http} of HTTP",
    "The limit of the process, raised as far as it may. More connections are refused: storage keeps its share.",
)
OPEN_TO_OTHERS = Event(
    "open_to_others",
    logging.WARNING,
    "storage",
    "{warning}",
    "Other users of the machine had access to the data folder. Its mode was changed, unless its file system cannot.",
)
STOPPED = Event("stopped", logging.INFO, "server", "stopped: {reason}", "The broker ended, and why.")
STORAGE_FAILED = Event(
    "storage_failed",
    logging.ERROR,
    "storage",
    "storage failed, the broker stops: {reason}",
    "A write or a sync failed. Nothing is acknowledged after it.",
)
HTTP_FAILED = Event(
    "http_failed",
    logging.ERROR,
    "server",
    "the HTTP server ended, the broker stops: {reason}",
    "The HTTP port cannot be served any more. A supervisor is to start the broker again.",
)
CERTIFICATES_READ = Event(
    "certificates_read",
    logging.INFO,
    "server",
    "certificates were read again: new connections use {path}",
    "A file of certificates or keys was replaced.",
)
CERTIFICATES_REFUSED = Event(
    "certificates_refused",
    logging.ERROR,
    "server",
    "certificates that were replaced cannot be used, the old ones stay in force: {reason}",
    "The files are tried again at the next check, every `tlsCertRefreshCheckDurationSec`.",
)
CERTIFICATE_EXPIRES = Event(
    "certificate_expires",
    logging.WARNING,
    "server",
    "{path} expires in {days} days and cannot be made again without {key}: put it back",
    "The key of the authority of `--secure` is kept elsewhere. Written at the start and once a day; a start after the"
    " last day is refused.",
)
ACCESS_FILE_READ = Event(
    "access_file_read",
    logging.INFO,
    "server",
    "{setting} was read again: logins are checked by {path}",
    "The file of `basicAuthConf` or `openIDKeySetFile` was replaced or written.",
)
ACCESS_FILE_REFUSED = Event(
    "access_file_refused",
    logging.ERROR,
    "server",
    "a file of users or keys that was replaced cannot be used, the old one stays in force: {reason}",
    "Logins are checked by what the file of `basicAuthConf` or `openIDKeySetFile` had before: a user who was taken out"
    " of it still gets in. The file is read at the next login after it has changed again.",
)
SLOW_COMMIT = Event(
    "slow_commit",
    logging.WARNING,
    "storage",
    "a commit of {groups} groups took {milliseconds} ms",
    "Writing and syncing took `slowCommitMillis` or longer; receipts waited for it.",
)
LOSS_ACCEPTED = Event(
    "loss_accepted",
    logging.ERROR,
    "storage",
    "{count} acknowledged changes or more are lost, as accepted by --accept-loss; the damaged log is in {kept}",
    "The log was damaged. Message ids of each topic continue in a new ledger, so that no id is given twice.",
)
COMPACTION_OFF = Event(
    "compaction_off",
    logging.ERROR,
    "storage",
    "disk space of deleted messages does not come back until this is repaired: {reason}",
    "A compaction met a block that cannot be read. Nothing is compacted as long as that file is there; all else works.",
)
MARK_UNREADABLE = Event(
    "mark_unreadable",
    logging.ERROR,
    "storage",
    "{path} is damaged: whether this start has found everything that was acknowledged is not known",
    "Both records of what was on disk are unreadable. They are written anew.",
)
DISK_LOW = Event(
    "disk_low",
    logging.WARNING,
    "storage",
    "{left}, less than {limit} MB",
    "The disk of the data folder is filling up (`diskUsageWarnThreshold`).",
)
DISK_HELD = Event(
    "disk_held",
    logging.ERROR,
    "storage",
    "{left}, less than {limit} MB: producers are held until it has {release} MB",
    "The disk is nearly full (`diskUsageThreshold`): producers wait; consumers, acks and deletions go on.",
)
DISK_RELEASED = Event(
    "disk_released",
    logging.INFO,
    "storage",
    "producers are released: {left}",
    "The disk has room again (`diskUsageLwmThreshold`).",
)
BALLAST_USED = Event(
    "ballast_used",
    logging.ERROR,
    "storage",
    "the disk is full: {path} was deleted, so that the broker can start and something can be deleted",
    "A start on a full disk gave up its ballast. It is made again when there is room.",
)
BALLAST_RESTORED = Event(
    "ballast_restored",
    logging.INFO,
    "storage",
    "{path} takes {size} MB, to be given up by a start on a full disk",
    "The ballast was made, a minute after a start with room on the disk.",
)
COMMIT_WAITING = Event(
    "commit_waiting",
    logging.ERROR,
    "storage",
    "the disk has not written a group of changes for {seconds} s",
    "The disk does not answer: nothing is acknowledged meanwhile, and the broker ends if it goes on.",
)
STOP_ABANDONED = Event(
    "stop_abandoned",
    logging.ERROR,
    "server",
    "the broker did not stop within {seconds} s and ends now: everything that it acknowledged is on disk",
    "Something hangs, most likely the disk. The exit code is 1.",
)

FAULT = Event(
    "fault",
    logging.ERROR,
    "server",
    "unexpected error in a {kind} ({where}), please report it: {error}",
    "A bug of the broker, or a record that it cannot read; what it concerned was given up, everything else goes on.",
)

CLOCK_JUMPED = Event(
    "clock_jumped",
    logging.WARNING,
    "server",
    "the clock of the machine was set {direction} by {seconds} s",
    "The clock was set by more than a minute. Timers and maintenance go on; after a jump forward no message is older by"
    " it for ten minutes, so that nothing expires by mistake.",
)
DAMAGED = Event(
    "damaged",
    logging.ERROR,
    "storage",
    "{kind} {name} is damaged: {reason}",
    "A record or a block of messages cannot be read. Only what it belongs to is refused, until it is deleted or"
    " skipped.",
)
DAMAGE_SKIPPED = Event(
    "damage_skipped",
    logging.WARNING,
    "storage",
    "{name} goes on without what cannot be read: {what}",
    "An administrator gave up what was damaged, for a subscription or for the whole topic.",
)

# -- clients

CONNECT_REFUSED = Event(
    "connect_refused",
    logging.WARNING,
    "session",
    "connection of {client} ({version}) refused: {reason}",
    "A connection was refused before CONNECT succeeded; the reason is the one that the client got.",
)
CONNECTION_FAILED = Event(
    "connection_failed",
    logging.WARNING,
    "session",
    "connection of {client} ({version}) closed: {reason}",
    "A connected client violated the protocol; the reason is the one that it got.",
)
AUTHENTICATION_FAILED = Event(
    "authentication_failed",
    logging.WARNING,
    "session",
    "authentication of {client} ({version}) failed: {reason}",
    "A client, or the sender of an HTTP request, did not prove who it is. What it showed is not logged.",
)
SUBSCRIBE_REFUSED = Event(
    "subscribe_refused",
    logging.WARNING,
    "session",
    "subscription {subscription} of {topic} refused for {client} ({version}): {error}: {reason}",
    "A SUBSCRIBE failed. Several clients show their user only the error code; the reason is here.",
)
PRODUCER_REFUSED = Event(
    "producer_refused",
    logging.WARNING,
    "session",
    "producer {producer} of {topic} refused for {client} ({version}): {error}: {reason}",
    "A PRODUCER command failed.",
)
LOOKUP_REFUSED = Event(
    "lookup_refused",
    logging.WARNING,
    "session",
    "lookup of {topic} refused for {client} ({version}): {error}: {reason}",
    "A lookup or a request for the number of partitions failed.",
)
REQUEST_REFUSED = Event(
    "request_refused",
    logging.WARNING,
    "session",
    "{command} refused for {client} ({version}): {error}: {reason}",
    "Any other command with a request id failed.",
)

# -- administration

WEB_REQUEST_REFUSED = Event(
    "web_request_refused",
    logging.WARNING,
    "admin",
    "{method} {path} from {client} refused: {reason}",
    "The guard of the HTTP port refused a request that a web page may have made, or a name that is not this broker's.",
)

ADMIN_CHANGE = Event(
    "admin_change",
    logging.INFO,
    "admin",
    "{method} {path} from {client}: {status} {reason}",
    "A REST call that changes something, with its result; the reason is empty when it succeeded.",
    per_minute=600,
)
TOPIC_CREATED = Event(
    "topic_created",
    logging.INFO,
    "catalog",
    "topic {topic} created ({origin})",
    "A topic or a partition was created; origin is `auto-created` or `explicit`.",
    per_minute=600,
)
TOPIC_DELETED = Event(
    "topic_deleted",
    logging.INFO,
    "catalog",
    "topic {topic} deleted",
    "A topic or a partition was deleted.",
    per_minute=600,
)

# -- failing messages

SUBSCRIPTION_PAUSED = Event(
    "subscription_paused",
    logging.WARNING,
    "subscription",
    "subscription {subscription} of {topic} paused: {reason}",
    "A circuit breaker opened because too many messages are dead, or an operator paused the subscription.",
)
SUBSCRIPTION_RESUMED = Event(
    "subscription_resumed",
    logging.INFO,
    "subscription",
    "subscription {subscription} of {topic} resumed; it was paused: {reason}",
    "A paused subscription was resumed: its circuit breaker is closed again.",
)
CRASH_ATTRIBUTED = Event(
    "crash_attributed",
    logging.WARNING,
    "subscription",
    "message {position} of {topic} crashed consumer {consumer} ({client}) of subscription {subscription}",
    "A consumer's connection broke while it held this message alone: the crash counts as a failure (DL13).",
)
DEAD_LETTER_POLICY = Event(
    "dead_letter_policy",
    logging.INFO,
    "subscription",
    "dead letter policy of subscription {subscription} of {topic}: {policy}, set by {source}",
    "A dead letter policy changed; subscription `*` is that of a topic or, with `/*`, of a namespace.",
)

# -- replication

REPLICATION_STATE = Event(
    "replication_state",
    logging.INFO,
    "replication",
    "{topic} -> {remote}: {state}: {reason}",
    "A route entered another state. Stopped and waiting states are warnings. Written by the pipelines process.",
)
PIPELINE_STATE = Event(
    "pipeline_state",
    logging.INFO,
    "replication",
    "pipeline {pipeline} ({verb}, run {run}): {state}: {reason}",
    "A declared pipeline entered another state. A failure is an error. Written by the pipelines process.",
)
CONSOLE_ENDED = Event(
    "console_ended",
    logging.WARNING,
    "server",
    "the console process {reason}",
    "The console of `magnetar standalone --console` is not running, and when it is started again.",
)
PIPELINES_STARTED = Event(
    "pipelines_started",
    logging.INFO,
    "replication",
    "pipelines process started; Spark and its JVM write to {spark_log}",
    "The broker started the pipelines process. What Spark itself prints is not in the log, but in that file.",
)
PIPELINES_ADOPTED = Event(
    "pipelines_adopted",
    logging.INFO,
    "replication",
    "the pipelines process of the broker before this one goes on; it logs where it was started",
    "The broker found a pipelines process that survived a restart, and keeps it.",
)
PIPELINES_ENDED = Event(
    "pipelines_ended",
    logging.WARNING,
    "replication",
    "the pipelines process {reason}",
    "The pipelines process is not running, and when it is started again.",
)

# -- the log itself

SUPPRESSED = Event(
    "suppressed",
    logging.WARNING,
    "log",
    "{count} more lines of kind {kind} were not written within {seconds} s",
    "A kind of line reached its limit. Kinds are the events; other lines count by the place that writes them.",
)

EVENTS: tuple[Event, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Event))
"""Every event, in the order of the reference page."""

_LOGGERS = {event.component: logging.getLogger(f"magnetar.event.{event.component}") for event in EVENTS}
logging.getLogger("magnetar.event").addHandler(logging.NullHandler())  # quiet unless the program sets up a log

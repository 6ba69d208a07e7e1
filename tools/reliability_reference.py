"""Generates the tables of docs/reliability.md: `python -m tools.reliability_reference docs/reliability.md`.

Owns the fault table and the layout of both; bounds come from `bounds` and the modules beside it. Each is
placed between `<!-- table: name -->` and `<!-- end -->`; the rest of the page is kept. A row is proven by the tests
whose names begin with `test_fault_` or `test_bound_` and the words of the row's name.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from magnetar import access_bounds, bounds, pipeline_bounds, setting_bounds
from magnetar.bounds import Bound
from magnetar.settings.settings import KINDS, Settings

_TESTS = Path(__file__).parent.parent / "tests"
_MARKER = re.compile(r"(?<=<!-- table: )([a-z ]+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)


_SECTION = re.compile(r"\s*# -- (.+)")


class Fault(NamedTuple):
    name: str
    what: str
    seen: str
    lost: str


FAULTS: tuple[Fault, ...] = (
    # -- hostile or broken clients
    Fault(
        "answers-not-read",
        "a client sends requests and does not read the answers",
        "no more is read from it until it reads; it is disconnected if it reads nothing for two keep-alive intervals",
        "nothing",
    ),
    Fault(
        "message-damaged-on-its-way",
        "a message arrives with a checksum that does not fit",
        "it is refused with ChecksumError, and the client sends it again; the connection stays",
        "nothing",
    ),
    Fault(
        "client-that-vanishes",
        "a client's process, machine or network is gone",
        "what its consumers held is delivered to others, at once or after two missed pings",
        "nothing",
    ),
    Fault(
        "consumer-that-does-not-read",
        "a consumer with permits does not read from its socket",
        "2 MB are sent ahead, the rest stays on disk; others get the messages when it leaves",
        "nothing",
    ),
    Fault(
        "reconnect-storm",
        "all clients lose their connections at once and return, while consumers come and go and a vandal is connected",
        "all are served within seconds",
        "nothing; what was not acknowledged is delivered again",
    ),
    Fault(
        "nack-of-what-is-not-held",
        "a client nacks messages of batches that it does not hold, or that do not exist",
        "they are ignored, and cost nothing",
        "nothing",
    ),
    Fault(
        "text-not-utf8",
        "a name or property in a command is not UTF-8",
        "the client is disconnected with an error that names the field; nothing of it is stored",
        "nothing",
    ),
    Fault(
        "schema-that-takes-long",
        "a schema takes long to parse, or to compare with many versions",
        "its connection waits, and keeps the order of its commands; others are served meanwhile",
        "nothing",
    ),
    Fault(
        "random-bytes",
        "random or hostile bytes in any field of any command, or in any REST request",
        "the sender is refused or disconnected with a reason; others, maintenance and the next start notice nothing",
        "nothing",
    ),
    Fault(
        "parameter-not-utf8",
        "a parameter or header of an HTTP request is not UTF-8",
        "it is refused with 400 and its name; nothing with a similar name is touched",
        "nothing",
    ),
    Fault(
        "deserted-topics",
        "clients create non-persistent topics without end and leave them",
        "a topic without clients is closed within two minutes, with its subscriptions, and gone if a client created it",
        "nothing; such topics keep no messages, and schemas stay",
    ),
    Fault(
        "key-not-utf8",
        "a message has a key or property that is not UTF-8",
        "it is delivered, redelivered, expired and dead-lettered as any other, with the same bytes",
        "nothing",
    ),
    Fault(
        "batch-of-a-million-empty-messages",
        "a few kilobytes are a batch of a million messages, or of fewer than they say",
        "it is never taken apart: a consumer gets it as it is, and as a dead letter it stays whole",
        "nothing",
    ),
    Fault(
        "many-failover-consumers",
        "one connection subscribes hundreds of times to a Failover subscription, and closes",
        "each joins and leaves without a walk over the others",
        "nothing",
    ),
    Fault(
        "many-sticky-ranges",
        "a Key_Shared consumer names tens of thousands of hash ranges",
        "they are checked by sorting; an overlap is refused",
        "nothing",
    ),
    Fault(
        "delayed-messages-each-earlier",
        "a producer sends delayed messages, each to be delivered before the one before it",
        "they are delivered in time; the topic has one timer, which is moved",
        "nothing",
    ),
    Fault(
        "client-that-leaves-while-it-is-held",
        "a client disconnects while its connection is not read: because of a rate, the disk or unread answers",
        "it is noticed at the next keep-alive check: its producers are removed, what its consumers held is redelivered",
        "nothing that was acknowledged: what it sent and was not read is sent again by the client",
    ),
    Fault(
        "producer-over-rate",
        "a producer sends faster than its publish rate",
        "its connection is not read until its rate allows more: receipts come later; other connections notice nothing",
        "nothing",
    ),
    Fault(
        "consumer-never-acks",
        "an Exclusive or Failover consumer receives millions of messages and acknowledges none",
        "it goes on; an unacknowledged entry takes a byte of memory, a large batch four",
        "nothing",
    ),
    # -- bugs of our own
    Fault(
        "planted-exception",
        "an unexpected exception anywhere in a publish, an acknowledgement, a dispatch or a dead letter move",
        "a `fault` line with a traceback; the client that met it, or that subscription's consumers, are disconnected",
        "nothing; what was not acknowledged is delivered again",
    ),
    Fault(
        "bug-in-a-handler",
        "an unexpected error while a command is handled",
        "the client gets an error for its request, is disconnected and reconnects; one `fault` line: client, command"
        " and topic; its producers and consumers are removed, other clients notice nothing",
        "nothing",
    ),
    Fault(
        "bug-in-a-publish",
        "an unexpected error while messages are published",
        "the producer is disconnected without receipts, reconnects, and sends the messages again",
        "nothing",
    ),
    Fault(
        "bug-in-a-disconnect",
        "an unexpected error while a producer or consumer of a lost connection is removed",
        "the other producers and consumers of the connection are removed; one `fault` line that names the topic",
        "nothing",
    ),
    Fault(
        "bug-in-a-callback",
        "a receipt or a message that cannot be encoded for a client",
        "that client is disconnected; what it had not acknowledged is delivered again",
        "nothing",
    ),
    Fault(
        "timer",
        "an exception in an action that was due",
        "one `fault` line with a traceback; the other actions run, and the next ones too",
        "nothing but what that action was to do",
    ),
    Fault(
        "consumer-that-leaves",
        "an exception while a consumer is added or removed",
        "one `fault` line; the subscription goes on, its other consumers may have to reconnect",
        "nothing; what was not acknowledged is delivered again",
    ),
    Fault(
        "exclusive-access",
        "an exception while a waiting producer gets exclusive access",
        "one `fault` line; that producer gets an error and tries again, the next one gets the access",
        "nothing",
    ),
    Fault(
        "maintenance-round",
        "an exception while one topic is trimmed, expired, checked or measured",
        "one `fault` line that names the topic, not one in every round; all other topics have their round",
        "nothing; that topic is tried again in every round",
    ),
    Fault(
        "task",
        "a background task that dies",
        "one `fault` line; it is started again after a pause of 1 s, doubling up to 60 s",
        "nothing",
    ),
    Fault(
        "http-server",
        "the HTTP server ends",
        "the broker ends with the line `http_failed` and exit code 1, for its supervisor to start it again",
        "nothing that was acknowledged",
    ),
    # -- storage and disk
    Fault(
        "storage-that-cannot-be-read",
        "reads fail for a while, or a record or block of one topic cannot be read any more",
        "requests that need it are refused as not ready; other topics are served as before",
        "nothing that can be read",
    ),
    Fault(
        "topic-record",
        "the record of a topic cannot be read",
        "the broker starts; that topic is refused with the reason, listed as damaged, and deleted by force",
        "that topic",
    ),
    Fault(
        "namespace-record",
        "the record of a namespace, a tenant, a cluster, a partitioned topic or a route policy cannot be read",
        "the broker starts and serves its topics, which keep every message, until it is set again",
        "its policies",
    ),
    Fault(
        "subscription-record",
        "the record or the cursor of a subscription cannot be read",
        "that subscription is refused with the reason; its topic is served and keeps every message",
        "the position: `skipDamaged` starts it over with the first message",
    ),
    Fault(
        "schema-record",
        "the record of a schema cannot be read",
        "clients with a schema are refused with the reason; messages without one flow; the schema can be deleted",
        "that schema",
    ),
    Fault(
        "unreadable-block",
        "a block of messages on the disk cannot be read",
        "what is before it is delivered; the subscription stops there with the reason, until `skipDamaged`",
        "the messages of that block",
    ),
    Fault(
        "global-record",
        "the last id, the cluster name or a dynamic setting cannot be read",
        "the start is refused with one line that names the record",
        "nothing",
    ),
    Fault(
        "read-error-in-a-handler",
        "the disk cannot read what a request needs",
        "the request fails with ServiceNotReady and the reason of the disk; its connection stays",
        "nothing",
    ),
    Fault(
        "data-open-to-others",
        "a data folder that other users of the machine can read or write",
        "a warning, and mode 0700; refused if it belongs to another user and everybody can write to it",
        "nothing",
    ),
    Fault(
        "data-of-an-unknown-format",
        "a data folder of a newer version, or of one that is too old",
        "a refused start that names both formats; the folder is not changed",
        "nothing",
    ),
    Fault(
        "data-of-an-older-format",
        "a data folder of the format before this one",
        "it is opened as it is, and marked with the new format",
        "nothing",
    ),
    Fault(
        "data-in-use",
        "a second broker, or a check, on the data folder of a running broker",
        "a refused start: `data folder … is in use by another process`",
        "nothing",
    ),
    Fault(
        "repaired-record",
        "a record that cannot be read, while the broker is stopped",
        "`magnetar doctor data DIR` names it; `--fix` writes it anew on the safe side, and exports it as it was",
        "what only the record said: policies, properties; no message, no position that can be found",
    ),
    Fault(
        "repaired-position",
        "a position that is lost or out of bounds, while the broker is stopped",
        "`magnetar doctor data DIR --fix` sets it; messages are delivered again rather than never",
        "nothing",
    ),
    Fault(
        "repaired-run",
        "messages whose sizes or checksums are wrong, while the broker is stopped",
        "`magnetar doctor data DIR --fix` exports them; their ids stay empty, and every subscription passes them",
        "those messages",
    ),
    Fault(
        "repaired-block",
        "a block of a data file that cannot be read, while the broker is stopped",
        "`magnetar doctor data DIR --fix` copies everything else into a new folder and keeps the old one",
        "what was in the block",
    ),
    Fault(
        "data-lost",
        "a disk that is lost with its data folder",
        "`magnetar restore` makes the folder from a backup, which a running broker made under load",
        "what was published after the backup",
    ),
    Fault(
        "backup-damaged",
        "a backup with a flipped bit or a missing file, or one that was interrupted",
        "refused by `magnetar restore`, which names the file; no folder is left behind",
        "nothing: the backup is not used",
    ),
    Fault(
        "store-exception",
        "an exception in the broker while changes are prepared for the disk",
        "the broker ends with exit code 1 and a traceback; what was durable before is acknowledged",
        "nothing that was acknowledged",
    ),
    Fault(
        "storage-panic",
        "a panic inside RocksDB's library",
        "the broker ends with exit code 1 and the reason",
        "nothing that was acknowledged",
    ),
    Fault(
        "failing-fsync",
        "a write or an fsync fails",
        "no receipt for it; the broker ends with exit code 1 and the reason",
        "nothing that was acknowledged",
    ),
    Fault(
        "hanging-disk",
        "the disk does not answer",
        "no receipts; after 30 s health says no and the log has a line, after 120 s the broker ends; a stop takes 10 s",
        "nothing that was acknowledged",
    ),
    Fault(
        "unsynced-acks",
        "a power cut after plain acks, while nothing is published",
        "messages acknowledged in the last second may be delivered again",
        "nothing",
    ),
    Fault(
        "flipped-log-byte",
        "a byte of the log of messages is damaged on disk",
        "a refused start that says how much is missing and changes nothing; `--accept-loss` starts without it, keeps"
        " the damaged log, and continues message ids in a new ledger",
        "what the damaged log had after that byte; never in silence, unless it was younger than a second at the crash",
    ),
    Fault(
        "lost-tail",
        "a power cut loses writes that were not synced",
        "a start as usual",
        "nothing that was acknowledged",
    ),
    Fault(
        "torn-mark",
        "the record of what is on disk is damaged",
        "a start with the record before it; if both are damaged, `mark_unreadable` and a start without the check",
        "nothing",
    ),
    Fault(
        "sigkill",
        "the process is killed at any moment",
        "a start as usual",
        "nothing that was acknowledged",
    ),
    Fault(
        "damaged-catalog",
        "a block with the names of topics and namespaces cannot be read",
        "a refused start that names the block and the command that repairs it",
        "what the block had; `magnetar doctor data --fix` keeps everything else",
    ),
    Fault(
        "damaged-block",
        "a block of stored messages is damaged, and a compaction reads it",
        "the broker starts again within the process, `compaction_off` in the log, a warning in the health; that block"
        " cannot be read, disk space does not come back until it is repaired, all else works",
        "the messages in that block",
    ),
    Fault(
        "full-disk",
        "the disk fills up",
        "a warning, then producers are held until there is room; consumers, acks, dead letters and deletions go on",
        "nothing",
    ),
    Fault(
        "start-on-full-disk",
        "a start on a disk without any space left",
        "the line `ballast_used`: a file kept for this is deleted, the broker starts and holds producers",
        "nothing",
    ),
    Fault(
        "read-only-disk",
        "the disk of the data folder is read-only",
        "a refused start that says so",
        "nothing",
    ),
    Fault(
        "failing-disk",
        "the disk fails, is gone, over its quota, or may not be used",
        "exit code 1 with the folder, the kind of problem and the system's name for it",
        "nothing that was acknowledged",
    ),
    Fault(
        "failing-close",
        "the last flush of a broker that stops fails",
        "the reason in the log, and exit code 1",
        "nothing that was acknowledged",
    ),
    # -- machine: clock, processes, descriptors
    Fault(
        "sockets-take-all-descriptors",
        "more connections than the process has file descriptors, or more than allowed",
        "new ones get the reason and are closed; clients that are connected, and storage, notice nothing",
        "nothing",
    ),
    Fault(
        "blocked-loop",
        "something blocks the broker's event loop",
        "requests wait; from 10 s on health says no, with the length; a metric",
        "nothing",
    ),
    Fault(
        "stopped-timers",
        "timers do not run any more",
        "after 60 s both probes answer 503, so that a supervisor starts the broker again",
        "nothing; delayed messages and expiry wait",
    ),
    Fault(
        "clock-set-forward",
        "the clock of the machine is set forward by more than a minute",
        "a `clock_jumped` line; delayed messages that are due are delivered; time to live, retention, quotas"
        " by age and the patience with idle producers follow the clock after ten minutes",
        "nothing if the clock is set right within ten minutes; then what is too old by the clock",
    ),
    Fault(
        "clock-set-back",
        "the clock of the machine is set back by more than a minute",
        "a `clock_jumped` line; rounds, rate limits and back-offs take as long as before; messages received before it"
        " expire later by the jump at most; delayed messages wait for their time of the clock",
        "nothing",
    ),
    Fault(
        "pipelines-process",
        "the pipelines process ends or is killed",
        "replication is `stopped` with the reason, and goes on when the broker has started it again",
        "nothing",
    ),
)


Row = TypeVar("Row", Fault, Bound)


def proofs_of(kind: str, name: str) -> list[str]:
    """Test ids that prove a row: `kind` is "bound" or "fault"."""
    prefix = f"test_{kind}_{name.replace('-', '_')}"
    return [f"{path}::{test}" for path, test in _tests() if test == prefix or test.startswith(f"{prefix}_")]


@cache
def _tests() -> tuple[tuple[str, str], ...]:
    found = []
    for path in sorted(_TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [
            (path.relative_to(_TESTS.parent).as_posix(), node.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith(("test_bound_", "test_fault_"))
        ]
    return tuple(found)


@cache
def _sections(source: str) -> dict[str, str]:
    """The section of each row of a table in Python: the comment `# -- section` before it."""
    text = Path(source).read_text(encoding="utf-8")
    starts = {number: found[1] for number, line in enumerate(text.splitlines(), 1) if (found := _SECTION.match(line))}
    sections: dict[str, str] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            before = [number for number in starts if number < node.lineno]
            sections[str(node.args[0].value)] = starts[max(before)] if before else ""
    return sections


def _grouped(rows: Iterable[Row], source: str, head: str) -> Iterator[tuple[str, list[Row]]]:
    """The heading of each section with the head of its table, and its rows."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_sections(source)[row.name], []).append(row)
    for section, members in groups.items():
        line = "|---" * (head.count("|") - 1) + "|"
        yield f"### {section[0].upper()}{section[1:]}\n\n{head}\n{line}", members


def _faults() -> Iterator[str]:
    for heading, faults in _grouped(FAULTS, __file__, "| fault | what the user sees | what is lost | test |"):
        yield from ("", heading)
        for fault in faults:
            yield f"| {fault.what} | {fault.seen} | {fault.lost} | {_shown(proofs_of('fault', fault.name))} |"
    yield ""


def _bounds() -> Iterator[str]:
    for module in (bounds, access_bounds, pipeline_bounds, setting_bounds):
        source = str(module.__file__)
        rows = [bound for bound in setting_bounds.ALL_BOUNDS if bound.name in _sections(source)]
        for heading, members in _grouped(rows, source, "| bounded | limit | beyond it | test |"):
            yield from ("", heading)
            for bound in members:
                yield f"| {bound.what} | {_limit(bound)} | {bound.beyond} | {_shown(proofs_of('bound', bound.name))} |"
    yield ""


def _limit(bound: Bound) -> str:
    if not bound.setting:
        return f"{bound.limit:,} {bound.unit}".rstrip()
    default = KINDS[bound.setting].show(getattr(Settings(), bound.setting))
    return f"`{bound.setting}` ({default if default != '0' else '0: none'})"


def _shown(tests: list[str]) -> str:
    return "<br>".join(f"`{test.removeprefix('tests/')}`" for test in tests)


TABLES: dict[str, Callable[[], Iterator[str]]] = {"faults": _faults, "bounds": _bounds}


def render(page: str) -> str:
    """The page with both tables generated."""
    names = [name for name, _ in _MARKER.findall(page)]
    if sorted(names) != sorted(TABLES):
        raise ValueError(f"the page has tables {', '.join(sorted(names))}; it must have {', '.join(sorted(TABLES))}")
    return _MARKER.sub(lambda found: found[1] + found[2] + "\n".join((*TABLES[found[1]](), "")), page)


def main(path: Path) -> None:
    path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

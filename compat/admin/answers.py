"""Comparison of two answers: run-specific values are removed, then the answers are compared part by part.

A part is `code`, `error`, `header NAME` or `out`; for JSON output, one of its fields: `out.subscriptions.s.type`. Does
not know how answers are obtained.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sides import Answer

# Fields that differ between runs on the same broker.
_VARIES = re.compile(
    r"(msg|message|bytes|chunkedMessage|messageAck)(Rate|Throughput)\w*|averageMsgSize|\w*Timestamp\w*|last\w*Time"
    r"|connectedSince|cursorLedger\w*|creationDate|modificationDate|createdTimestamp|createTime|address|clientVersion|ownerBroker|\w*[lL]edgerId|ledger"
    r"|startTime|\w*Lag\w*Seconds|oldestBacklogMessageAgeSeconds|backlogQuotaLimit\w*Check\w*"
)
_TEXT = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b1[4-9]\d{11}\b"), "<time>"),
    (re.compile(r"\b(127\.0\.0\.1|localhost)(:\d+)?"), "<address>"),
    (re.compile(r"(?<![\w.:-])\d+(?=:-?\d+(:-?\d+)*(?![\w.:]))"), "<ledger>"),
    (re.compile(r"\b(4\.\d+\.\d+|0\.\d+\.\d+)(\.dev\d+)?(\+\w+)?\b"), "<version>"),
)


Known = dict[str, str]  # the values of placeholders


def differences(theirs: Answer, ours: Answer, known: tuple[Known, Known]) -> dict[str, tuple[str, str]]:
    """Part -> Apache Pulsar's value and ours; `known` are the placeholder values of both sides."""
    if theirs.code != ours.code:
        return {"code": (_summary(theirs, known[0]), _summary(ours, known[1]))}
    if theirs.code >= 400 and _reason(theirs) is None:
        return {}  # both reject, and Apache Pulsar's text comes from its web server or JSON parser
    left, right = dict(parts(theirs, known[0])), dict(parts(ours, known[1]))
    missing = "nothing"
    return {
        part: (left.get(part, missing), right.get(part, missing))
        for part in sorted({*left, *right})
        if not _same(part, left.get(part, missing), right.get(part, missing))
    }


def _same(part: str, theirs: str, ours: str) -> bool:
    """A reason of ours may continue after Apache Pulsar's text."""
    if part in ("error", "out.reason"):
        return ours.strip('"').lower().startswith(theirs.strip('"').rstrip(".").lower())
    return theirs == ours


def parts(answer: Answer, known: Known) -> Iterator[tuple[str, str]]:
    yield "code", str(answer.code)
    yield from ((f"header {name}", normal(value, known)) for name, value in answer.headers)
    if answer.error.strip():
        yield "error", _error(answer, known)
    try:
        value = json.loads(answer.out)
    except ValueError:
        yield "out", _text(answer.out, known)
    else:
        yield from _fields("out", value, known)


def _summary(answer: Answer, known: Known) -> str:
    said = _error(answer, known) if answer.error.strip() else _reason(answer) or answer.out.strip()
    return f"{answer.code} {normal(said, known)}".strip()


def _error(answer: Answer, known: Known) -> str:
    """pulsar-admin prints the reason twice; the broker's is enough."""
    return normal(answer.error.rpartition("Reason: ")[2].strip(), known)


def _reason(answer: Answer) -> str | None:
    try:
        return str(json.loads(answer.out)["reason"])
    except (ValueError, KeyError, TypeError):
        return None


def normal(text: str, known: Known) -> str:
    if "ledger" in known:
        text = re.sub(rf"\b{known['ledger']}\b(?=[:,])", "<ledger>", text)
    for pattern, word in _TEXT:
        text = pattern.sub(word, text)
    return text


def _text(text: str, known: Known) -> str:
    """Lists may have any order, in brackets or one item per line."""
    text = re.sub(r"\[(\w+(?:, \w+)+)\]", lambda found: str(sorted(found[1].split(", "))), normal(text.strip(), known))
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(lines if any(line.startswith(("{", "+--")) for line in lines) else sorted(lines))


def _fields(path: str, value: Any, known: Known) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, member in value.items():
            shown = normal(str(name), known)
            if _VARIES.fullmatch(str(name)) and not isinstance(member, (dict, list)):
                yield f"{path}.{shown}", "present"
            else:
                yield from _fields(f"{path}.{shown}", member, known)
    elif isinstance(value, list) and value and all(isinstance(member, dict) for member in value):
        yield f"{path}.length", str(len(value))
        for number, member in enumerate(value):
            yield from _fields(f"{path}.{number}", member, known)
    elif isinstance(value, list):
        yield path, json.dumps(sorted(normal(json.dumps(member), known) for member in value))
    else:
        yield path, normal(json.dumps(value + 0.0 if type(value) is int else value), known)

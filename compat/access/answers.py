"""What Apache Pulsar answered, in a file, so that our broker can be compared with it where there is no Java.

A line of answers.txt is a question; before it, a sign for each caller in the order of the list at the head of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from cast import CALLERS, Caller
from questions import COMMANDS, REQUESTS, Command, Request

FILE = Path(__file__).resolve().parent / "answers.txt"
QUESTIONS: tuple[Request | Command, ...] = (*REQUESTS, *COMMANDS)
_SIGNS = {"allowed": "+", "refused": "-", "no connection": "x"}
_WORDS = {sign: word for word, sign in _SIGNS.items()}

Answers = Mapping[str, Mapping[str, str]]
"""By the name of a caller, then by that of a question."""


def asked(ask: Callable[[Caller, Request | Command], str], callers: Iterable[Caller] = CALLERS) -> Answers:
    return {caller.name: {question.name: ask(caller, question) for question in QUESTIONS} for caller in callers}


def read() -> Answers:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    callers = [line.removeprefix("# caller: ") for line in lines if line.startswith("# caller: ")]
    answers: dict[str, dict[str, str]] = {caller: {} for caller in callers}
    for line in lines:
        if line and not line.startswith("#"):
            signs, _, question = line.partition("  ")
            for caller, sign in zip(callers, signs, strict=True):
                answers[caller][question] = _WORDS[sign]
    return answers


def write(answers: Answers, version: str) -> None:
    head = [
        f"# Answers of Apache Pulsar {version}, by compat/access/record; + allowed, - refused, x no connection.",
        *(f"# caller: {caller}" for caller in answers),
    ]
    rows = [
        "".join(_SIGNS[of_caller[question.name]] for of_caller in answers.values()) + f"  {question.name}"
        for question in QUESTIONS
    ]
    FILE.write_text("\n".join((*head, "", *rows, "")), encoding="utf-8")

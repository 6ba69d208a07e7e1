"""Causes of dead letters: exception, error text, stack trace and fingerprint in the properties of any writer.

Applications and frameworks have no common names for them, so well-known ones are tried in turn.

    DEATH_…                  a Magnetar broker and its pipelines
    exception-thrown-cause   Spring for Apache Pulsar
    x-exception-…            Spring Cloud Stream and Spring Integration
    __connect.errors.…       Kafka Connect, where its messages were bridged
    EXCEPTION_…, exception…  by hand: with reconsumeLater and its properties, or in a producer of dead letters
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from magnetar.deadletter.fingerprint import exception_in, fingerprint
from magnetar.deadletter.properties import (
    DEATH_DESCRIPTION,
    DEATH_ERROR,
    DEATH_EXCEPTION,
    DEATH_FINGERPRINT,
    DEATH_STACK_TRACE,
    ERROR_MAX,
    read_reason,
)
from magnetar.deadletter.stamp import EXCEPTION_MAX, STACK_TRACE_MAX

_CLASSES = (
    DEATH_EXCEPTION,
    "x-exception-fqcn",
    "__connect.errors.exception.class.name",
    "EXCEPTION_CLASS",
    "EXCEPTION_TYPE",
    "exception-class",
    "exceptionClass",
    "exception",
    "EXCEPTION",
)
_TEXTS = (
    DEATH_ERROR,
    "exception-thrown-cause",
    "x-exception-message",
    "__connect.errors.exception.message",
    "EXCEPTION_MESSAGE",
    "exception-message",
    "exceptionMessage",
    "ERROR_MESSAGE",
    "error-message",
    "errorMessage",
    "error",
)
_STACKS = (
    DEATH_STACK_TRACE,
    "x-exception-stacktrace",
    "__connect.errors.exception.stacktrace",
    "EXCEPTION_STACKTRACE",
    "EXCEPTION_STACK_TRACE",
    "exception-stacktrace",
    "stackTrace",
)
_FINGERPRINTS_KEPT = 4096
_FINGERPRINT_MAX = 64

Properties = Mapping[str, str]


def _first(properties: Properties, names: tuple[str, ...]) -> str:
    return next((text for name in names if (text := properties.get(name))), "")


def stack_trace_of(properties: Properties) -> str | None:
    return _first(properties, _STACKS)[-STACK_TRACE_MAX:] or None


def error_of(properties: Properties) -> str | None:
    return _first(properties, _TEXTS)[:ERROR_MAX] or None


def exception_of(properties: Properties) -> str | None:
    """The class; one that is not named is the first word of the error text, or of the stack trace."""
    named = _first(properties, _CLASSES)
    if named:
        return (exception_in(named) or named)[:EXCEPTION_MAX]
    text = _first(properties, _TEXTS) or _first(properties, _STACKS)
    return exception_in(text)[:EXCEPTION_MAX] or None if text else None


def fingerprint_of(properties: Properties) -> str:
    given = properties.get(DEATH_FINGERPRINT)
    if given:
        return given[:_FINGERPRINT_MAX]
    text = _first(properties, _TEXTS)
    if text:
        return _computed(exception_of(properties) or "", text)
    reason = exception_of(properties) or read_reason(properties)
    return _computed(reason, properties.get(DEATH_DESCRIPTION, ""))


@lru_cache(maxsize=_FINGERPRINTS_KEPT)
def _computed(exception: str, text: str) -> str:
    return fingerprint(exception, text)

"""The spec of a declared process: a function or SQL over the messages of a subscription, with retries and dead letters.

Owns what can be checked without Spark. What it does is in `pipelines.processing`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from magnetar.bounds import BACKOFF_STEPS
from magnetar.declared.function_name import check_function
from magnetar.declared.topic_set import parse_topic
from magnetar.errors import InvalidSetting

Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e6)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]


class ProcessSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Either `function` or `sql`. `retry` are delays such as `10s`; without `into` there is no output."""

    topic: str
    subscription: str
    function: str = ""  # module:name
    sql: str = ""
    into: str | None = None
    kind: Literal["row", "async", "arrow", "pandas"] | None = None  # what the function takes; default: by the function
    retry: list[str] = []
    retry_topic: str | None = None
    dead_letter_topic: str | None = None
    no_retry: list[str] = []  # classes of exceptions
    dead_letter_topics: dict[str, str] = {}  # by class of exceptions
    concurrency: Count | None = None  # of async functions
    rows_max: Count | None = None  # of one batch
    seconds_max: Seconds | None = None  # for one row, or one call with a batch


def check(spec: ProcessSpec, namespace: str) -> None:
    """Raises `InvalidSetting` or `InvalidName`."""
    for text in _topics(spec):
        parse_topic(text, namespace)
    if not spec.subscription:
        raise InvalidSetting("subscription is empty")
    if bool(spec.function) == bool(spec.sql.strip()):
        raise InvalidSetting("either function or sql is needed, and not both")
    if spec.function:
        check_function(spec.function)
    if len(spec.retry) > BACKOFF_STEPS.limit:
        raise InvalidSetting(f"retry has {len(spec.retry)} delays, the limit is {BACKOFF_STEPS.limit}")


def tenants(spec: ProcessSpec, namespace: str) -> set[str]:
    """The tenants whose topics are read or written."""
    return {parse_topic(text, namespace).tenant for text in _topics(spec)}


def _topics(spec: ProcessSpec) -> list[str]:
    named = (spec.topic, spec.into, spec.retry_topic, spec.dead_letter_topic, *spec.dead_letter_topics.values())
    return [text for text in named if text is not None]


def runs_code(spec: ProcessSpec) -> bool:
    """A function and free SQL may reach everything that the process can."""
    return True

"""Topics in Spark without a JAR: `format("pulsar")`, and a session tuned for it.

    spark = magnetar.spark.session()
    spark.read.format("pulsar").option("topic", "orders").load()

Imports are lazy: a worker that only reads does not load the code that starts a session.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magnetar.spark.dead_letters.letters import deadletters
    from magnetar.spark.routing.pipeline import pipeline
    from magnetar.spark.routing.split import split
    from magnetar.spark.runtime.start import register, session
    from magnetar.spark.sink.update import update_to
    from magnetar.spark.source.lag import lag

__all__ = ["deadletters", "lag", "pipeline", "register", "session", "split", "update_to"]

_MODULES = {
    "deadletters": "dead_letters.letters",
    "lag": "source.lag",
    "pipeline": "routing.pipeline",
    "register": "runtime.start",
    "session": "runtime.start",
    "split": "routing.split",
    "update_to": "sink.update",
}

if find_spec("pyspark") is None:
    raise ImportError('magnetar.spark needs pyspark, which is not installed: pip install "magnetar[spark]"')


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

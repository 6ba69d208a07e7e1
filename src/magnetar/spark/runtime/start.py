"""Starting a SparkSession for topics: which master, which settings, which Java; the package goes along to a cluster.

Knows nothing of what a source does with a topic.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from magnetar.spark.runtime import gateway, java, shipping
from magnetar.spark.runtime import local_filesystem as local_files
from magnetar.spark.runtime.settings import REQUIRED, TUNED

MASTER_VARIABLE = "MAGNETAR_SPARK_MASTER"
_GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"
_MASTER_DEFAULT = "local[*,3]"  # all cores; a task is tried three times, where plain local[*] gives up at once

Value = str | int | float | bool


def session(
    master: str | None = None, app_name: str = "magnetar", *, tuned: bool = True, **conf: Value
) -> SparkSession:
    """A session that knows `format("pulsar")`. One that runs is given back, with the settings it can still take.

    `conf` are settings of Spark, which win over ours: `session(**{"spark.driver.memory": "2g"})`. Without `tuned` the
    session has Spark's own settings but for a few that are needed.
    """
    asked = {name: _text(value) for name, value in conf.items()}
    settings = {setting.name: setting.value for setting in (*REQUIRED, *(TUNED if tuned else ()))} | asked
    running = SparkSession.getActiveSession()
    if running is not None:
        _adjust(running, master, settings)
        return running
    return _start(master or _given_master() or _MASTER_DEFAULT, app_name, settings, tuned)


def register(spark: SparkSession) -> None:
    """Makes `format("pulsar")` known to a session that was made in another way."""
    from magnetar.spark.source.source import PulsarSource

    spark.dataSource.register(PulsarSource)


def _given_master() -> str | None:
    """By the environment, or by spark-submit, which started this program and has a JVM for it."""
    if MASTER_VARIABLE in os.environ:
        return os.environ[MASTER_VARIABLE]
    if _GATEWAY_VARIABLE not in os.environ:
        return None
    SparkContext._ensure_initialized()  # only then has a configuration what spark-submit was told
    return SparkConf().get("spark.master")


def _start(master: str, app_name: str, settings: dict[str, str], tuned: bool) -> SparkSession:
    is_local = master == "local" or master.startswith("local[")
    shipped = None if is_local else shipping.build()
    if shipped is not None:
        settings = shipped.settings(settings)
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _jvm(settings, is_local):
        SparkContext._ensure_initialized()
        if tuned:
            local_files.install(SparkContext._jvm)
        spark = builder.getOrCreate()
    if shipped is not None:
        shipped.announce(spark)
    if shipped is not None or find_spec("pyspark_pulsar") is None:
        register(spark)  # else Spark finds it, when it is asked for; but it would not find the Python of executors
    return spark


def _jvm(settings: Mapping[str, str], is_local: bool) -> AbstractContextManager[None]:
    """The JVM for the session, with the environment that the Python workers which it starts will have."""
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        # Workers on this machine run on this very Python, those of a cluster on what their machines have. And nobody
        # else has to reach this session.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        variables = {"SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")}
    else:
        # The driver plans in the executors' Python, which may have none of our packages here either.
        variables = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = java.find()
    if gateway.is_needed(found):
        return gateway.launched(found, settings, variables)
    os.environ.setdefault("JAVA_HOME", str(found.home))
    return nullcontext()


def _adjust(spark: SparkSession, master: str | None, settings: Mapping[str, str]) -> None:
    """Gives a running session what can still be changed, and says what cannot."""
    context = spark.sparkContext
    late = {} if master in (None, context.master) else {"spark.master": (master, context.master)}
    for name, value in settings.items():
        has = context.getConf().get(name) or "unset"
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
        elif has != value:
            late[name] = (value, has)
    if late:
        differing = ", ".join(f"{name} is {has} and not {value}" for name, (value, has) in late.items())
        warnings.warn(f"a Spark session was already running; in it {differing}", stacklevel=3)


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

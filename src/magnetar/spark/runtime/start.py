"""Start of Spark: master, settings, Java, and shipping of the package to a cluster.

Knows nothing of topics.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path

import py4j.protocol  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from magnetar.spark.errors import InvalidOption
from magnetar.spark.runtime import class_archive, gateway, java, local_filesystem, shipping
from magnetar.spark.runtime.settings import REQUIRED, SMALL_JVM, TUNED

MASTER_VARIABLE = "MAGNETAR_SPARK_MASTER"
_GATEWAY_VARIABLE = "PYSPARK_GATEWAY_PORT"
_MASTER_DEFAULT = "local[*,3]"  # all cores; a failed task is retried, unlike with local[*]

Value = str | int | float | bool


def session(
    master: str | None = None, app_name: str = "magnetar", *, tuned: bool = True, ui: bool = False, **conf: Value
) -> SparkSession:
    """A session with `format("pulsar")`: the active one, with the settings that can still change, or a new one.

    `conf` are Spark settings, which override ours: `session(**{"spark.driver.memory": "2g"})`. With `tuned=False` the
    session has Spark's defaults, except for the few required settings. `ui` starts Spark's web UI, whose address is
    `spark.sparkContext.uiWebUrl`. A new session is stopped when the program ends.
    """
    given = {name: _text(value) for name, value in conf.items()}
    if ui:
        given.setdefault("spark.ui.enabled", "true")
    if is_remote():
        return _connected(master, app_name, given)
    settings = {setting.name: setting.value for setting in (*REQUIRED, *(TUNED if tuned else ()))} | given
    running = SparkSession.getActiveSession()
    if running is not None:
        _adjust(running, master, settings)
        return running
    return _start(master or _given_master() or _MASTER_DEFAULT, app_name, settings, tuned)


def context(
    master: str | None = None, app_name: str = "magnetar", *, writes_archive: Path | None = None, **conf: Value
) -> SparkContext:
    """A context for small jobs in Python. It is up in half the time of a session, and takes half the memory: Spark SQL
    is loaded by the first query, if there is one, and the JVM has a small heap that grows and a quick compiler. It uses
    the class archive, or writes one at its end."""
    master = master or _given_master() or _MASTER_DEFAULT
    settings = {setting.name: setting.value for setting in (*REQUIRED, *TUNED)}
    settings |= {name: _text(value) for name, value in conf.items()}
    shipped = None if _is_local(master) else shipping.build()
    if shipped is not None:
        settings = shipped.settings(settings)
    _convert_no_numpy()

    def flags(found: java.Java) -> Sequence[str]:
        archive = class_archive.flags_to_write(writes_archive) if writes_archive else class_archive.flags(found)
        return (*SMALL_JVM, *archive)

    try:
        with _jvm(settings, _is_local(master), flags):
            SparkContext._ensure_initialized()
            configuration = SparkConf().setMaster(master).setAppName(app_name).setAll(list(settings.items()))
            started = SparkContext(conf=configuration)
    except Exception:
        with suppress(java.JavaNotFound):
            class_archive.discard(java.find())  # whatever the cause was: the next start is a plain one
        raise
    if shipped is not None:
        shipped.add_to_python_path(started)
    return started


def session_on(running: SparkContext) -> SparkSession:
    """A session with `format("pulsar")` on a running `context`, with views and settings of its own."""
    local_filesystem.install(SparkContext._jvm)
    spark = SparkSession.builder.getOrCreate().newSession()  # on the only context of this process
    if not _is_local(running.master or "") or find_spec("pyspark_pulsar") is None:
        _register(spark)  # as in `_start`
    return spark


def register(spark: SparkSession) -> None:
    """Registers `format("pulsar")` with a session that was created elsewhere.

    Not needed where Spark discovers the source by itself; a registered class would then only hide the discovered one,
    which also works where the workers run another Python.
    """
    if find_spec("pyspark_pulsar") is None:
        _register(spark)


def _register(spark: SparkSession) -> None:
    from magnetar.spark.source.source import PulsarSource

    spark.dataSource.register(PulsarSource)


def _connected(master: str | None, app_name: str, given: Mapping[str, str]) -> SparkSession:
    """The session of Spark Connect: its server has the settings, Java and the workers."""
    if master is not None:
        raise InvalidOption(f"master {master} has no effect on Spark Connect, whose server has one already")
    builder = SparkSession.builder.appName(app_name)
    for name, value in given.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _given_master() -> str | None:
    """The master set by the environment, or by spark-submit, which runs this program with its own JVM."""
    if MASTER_VARIABLE in os.environ:
        return os.environ[MASTER_VARIABLE]
    if _GATEWAY_VARIABLE not in os.environ:
        return None
    SparkContext._ensure_initialized()  # loads the configuration of spark-submit
    return SparkConf().get("spark.master")


def _start(master: str, app_name: str, settings: dict[str, str], tuned: bool) -> SparkSession:
    is_local = _is_local(master)
    shipped = None if is_local else shipping.build()
    if shipped is not None:
        settings = shipped.settings(settings)
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _jvm(settings, is_local):
        SparkContext._ensure_initialized()
        if tuned:
            local_filesystem.install(SparkContext._jvm)
        spark = builder.getOrCreate()
    atexit.register(_stop, spark)  # before the JVM ends, whose threads would print tracebacks
    if shipped is not None:
        shipped.add_to_python_path(spark.sparkContext)
    if shipped is not None or find_spec("pyspark_pulsar") is None:
        _register(spark)  # otherwise Spark discovers it, but with the wrong Python on a cluster
    return spark


def _convert_no_numpy() -> None:
    """pyspark looks for NumPy at the first call into the JVM, and loads pandas, Arrow and its test utilities for it."""
    py4j.protocol.INPUT_CONVERTER[:] = [
        converter for converter in py4j.protocol.INPUT_CONVERTER if not type(converter).__name__.startswith("Numpy")
    ]


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _jvm(
    settings: Mapping[str, str], is_local: bool, flags: Callable[[java.Java], Sequence[str]] = lambda _: ()
) -> AbstractContextManager[None]:
    """The JVM of the session, with the environment that its Python workers inherit."""
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        # Local workers use this Python, those of a cluster the one on their machines. A local session needs no other
        # address than the loopback.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        variables = {"SPARK_LOCAL_IP": os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")}
    else:
        # The driver plans with the executors' Python, which may lack our packages on this machine too.
        variables = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = java.find()
    if gateway.is_needed(found):
        return gateway.launched(found, settings, variables, flags(found))
    os.environ.setdefault("JAVA_HOME", str(found.home))
    return nullcontext()


def _stop(spark: SparkSession) -> None:
    with suppress(Exception):  # the JVM may be gone already
        spark.stop()


def _adjust(spark: SparkSession, master: str | None, settings: Mapping[str, str]) -> None:
    """Applies settings to a running session, and warns about those that cannot change."""
    context = spark.sparkContext
    late = {} if master in (None, context.master) else {"spark.master": (master, context.master)}
    for name, value in settings.items():
        has = context.getConf().get(name) or "unset"
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
        elif has != value:
            late[name] = (value, has)
    if late:
        differing = ", ".join(f"{name} is {has}, not {value}" for name, (value, has) in late.items())
        warnings.warn(f"a Spark session is already running, with other settings: {differing}", stacklevel=3)


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

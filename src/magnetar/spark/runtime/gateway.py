"""Gateway: starts the JVM of Spark's driver, and connects pyspark to it.

pyspark's own shell scripts require a module that small Javas, such as the wheel's, lack. We get the command line from
Spark's launcher, as those scripts do, remove the options this Java does not support, and start it directly, which is
also a little faster. Knows nothing of sessions.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from struct import Struct

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home

from magnetar.clock import SystemClock
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.runtime.java import VECTOR_MODULE, Java

_START_TIMEOUT_S = 120
_FOLDER_PREFIX = "magnetar-gateway-"
_LEFTOVER_S = 3600.0
_END_TIMEOUT_S = 10
_CONNECTION = Struct(">ii")  # written by the JVM: its port, the size of the secret, the secret

# Since Java 24, Netty does not use sun.misc.Unsafe by default, but Arrow's buffers in the JVM need it.
_UNSAFE_OFF_BY_DEFAULT = 24
_NETTY_MAY_USE_UNSAFE = "-Dio.netty.noUnsafe=false"

_COLLECTOR = re.compile(r"-XX:\+Use\w*GC")
_FLAG_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")


class GatewayFailed(SparkSourceError):
    """The JVM of the driver did not start."""


_launching: list[subprocess.Popen[bytes]] = []
_running: list[subprocess.Popen[bytes]] = []  # keeps their stdin open: the JVM ends when it is closed


def is_needed(java: Java, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether we start the JVM: not if pyspark has one, or if settings in spark-env.sh need a shell."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in environ:
        return False
    configuration = Path(environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"))
    return not java.has_vector_module or not (configuration / "spark-env.sh").is_file()


@contextmanager
def launched(
    java: Java, settings: Mapping[str, str], variables: Mapping[str, str], flags: Sequence[str] = ()
) -> Iterator[None]:
    """Starts a JVM; inside the block, pyspark uses it instead of starting its own."""
    process, port, secret = launch(java, settings, variables, flags)
    _running.append(process)
    os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret)
    try:
        yield
    finally:
        # Later child processes must not inherit the secret.
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def _remove_leftovers() -> None:
    """Folders of processes that were killed while their JVM started. Those of other users cannot be removed."""
    oldest_s = SystemClock().now_ms() / 1000 - _LEFTOVER_S
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        with suppress(OSError):
            if folder.stat().st_mtime < oldest_s:
                shutil.rmtree(folder, ignore_errors=True)


def launch(
    java: Java, settings: Mapping[str, str], variables: Mapping[str, str], flags: Sequence[str] = ()
) -> tuple[subprocess.Popen[bytes], int, str]:
    """Starts a JVM that ends with this process; returns it with its port and secret."""
    submitted = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    submitted += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    _remove_leftovers()
    with tempfile.TemporaryDirectory(prefix=_FOLDER_PREFIX) as folder:
        connection_file = Path(folder, "connection")
        process = subprocess.Popen(
            with_flags(command(java, "org.apache.spark.deploy.SparkSubmit", submitted), flags),
            stdin=subprocess.PIPE,
            env={
                **environment(java),
                **variables,
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_file),
            },
            process_group=0,  # Ctrl-C goes to Python only, which stops the session properly
        )
        _end_with_us()
        _launching.append(process)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not connection_file.is_file():
            if process.poll() is not None:
                raise GatewayFailed(f"the JVM of Spark exited with {process.returncode} ({java}); see its log")
            if time.monotonic() > deadline:
                process.kill()
                raise GatewayFailed(f"the JVM of Spark did not start in {_START_TIMEOUT_S} s ({java})")
            time.sleep(0.01)
        port, size = _CONNECTION.unpack_from(written := connection_file.read_bytes())
        _launching.remove(process)
        return process, port, written[_CONNECTION.size : _CONNECTION.size + size].decode()


@cache
def _end_with_us() -> None:
    atexit.register(_end)


def _end() -> None:
    """Ends the JVM with this process, and waits while it cleans up. One that cannot write its port, because its folder
    was removed, would never end."""
    for process in _launching:
        process.kill()
    with suppress(GatewayFailed):
        end(_END_TIMEOUT_S)


def end(timeout_s: float) -> None:
    """Ends the JVMs of this process; raises `GatewayFailed` if one does not end well in time."""
    for process in _running:
        if process.stdin is not None:
            process.stdin.close()
    for process in _running:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout_s)
    for code in [process.returncode for process in _running if process.returncode != 0]:
        what = f"did not end in {timeout_s:.0f} s" if code is None else f"exited with {code}"
        raise GatewayFailed(f"the JVM of Spark {what}")


def kill() -> None:
    for process in (*_launching, *_running):
        process.kill()


def command(java: Java, main_class: str, arguments: Sequence[str]) -> list[str]:
    """The command line that Spark's launcher returns for a main class, adapted to this Java."""
    launcher = _launcher_jar(Path(_find_spark_home(), "jars"))
    run = [str(java.executable), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", str(launcher)]
    run += ["org.apache.spark.launcher.Main", main_class, *arguments]
    output = subprocess.run(run, capture_output=True, text=True, env=environment(java))
    # An empty first line, then the arguments, each terminated by NUL.
    line = output.stdout.lstrip("\0\n").removesuffix("\0").split("\0")
    if output.returncode != 0 or len(line) < 2:
        raise GatewayFailed(f"Spark's launcher failed ({java}): {(output.stderr or output.stdout).strip()}")
    if not java.has_vector_module:
        line = [part for part in line if part != f"--add-modules={VECTOR_MODULE}"]
    if java.version[0] >= _UNSAFE_OFF_BY_DEFAULT:
        line.insert(1, _NETTY_MAY_USE_UNSAFE)
    return line


def with_flags(line: list[str], flags: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """A command line with more flags of the JVM. Those of the user win: the JVM takes the last value. But it
    refuses two garbage collectors."""
    users = " ".join([*line, *(environ.get(name, "") for name in _FLAG_VARIABLES)])
    has_collector = _COLLECTOR.search(users) is not None
    return [line[0], *(flag for flag in flags if not (has_collector and _COLLECTOR.fullmatch(flag))), *line[1:]]


def environment(java: Java) -> dict[str, str]:
    """Environment variables of a Spark process for this Java."""
    home = _find_spark_home()
    scala = _launcher_jar(Path(home, "jars")).name.split("_")[1].split("-")[0]
    return {**os.environ, "JAVA_HOME": str(java.home), "SPARK_HOME": home, "SPARK_SCALA_VERSION": scala}


def _launcher_jar(jars: Path) -> Path:
    found = sorted(jars.glob("spark-launcher_*.jar"))
    if not found:
        raise GatewayFailed(f"no spark-launcher in {jars}: is pyspark installed with its jars?")
    return found[0]

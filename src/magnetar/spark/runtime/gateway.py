"""Starting the JVM that Spark's driver runs in, and telling pyspark where it is.

pyspark would start it by shell scripts that ask for a module which small Javas, such as the wheel's, do not have, and
ends there. We ask Spark's own launcher for the command line, as those scripts do, take out what this Java cannot do,
and start it ourselves; that is also a little quicker. Knows nothing of sessions.
"""

from __future__ import annotations

import atexit
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from struct import Struct

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home

from magnetar.spark.errors import SparkSourceError
from magnetar.spark.runtime.java import VECTOR_MODULE, Java

_START_TIMEOUT_S = 120
_END_TIMEOUT_S = 10
_CONNECTION = Struct(">ii")  # what the JVM writes: its port, the size of the secret, the secret

# Since 24, Netty does without sun.misc.Unsafe unless told otherwise, and Arrow's buffers in the JVM need it.
_UNSAFE_OFF_BY_DEFAULT = 24
_NETTY_MAY_USE_UNSAFE = "-Dio.netty.noUnsafe=false"


class GatewayFailed(SparkSourceError):
    """The JVM of the driver did not start."""


_running: list[subprocess.Popen[bytes]] = []  # the JVM ends when its stdin does, so nobody may drop the pipe


def is_needed(java: Java, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether we start the JVM. Not if pyspark has one, nor where settings in spark-env.sh need a shell."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in environ:
        return False
    configuration = Path(environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"))
    return not java.has_vector_module or not (configuration / "spark-env.sh").is_file()


@contextmanager
def launched(java: Java, settings: Mapping[str, str], variables: Mapping[str, str]) -> Iterator[None]:
    """Starts a JVM; inside the block pyspark finds it, and not its own way to start one."""
    process, port, secret = launch(java, settings, variables)
    if not _running:
        atexit.register(_end)
    _running.append(process)
    os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret)
    try:
        yield
    finally:
        # Processes that we start later shall not have the secret.
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def launch(
    java: Java, settings: Mapping[str, str], variables: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], int, str]:
    """Starts a JVM that ends when this process does; it listens on the port for those who know the secret."""
    submitted = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    submitted += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    with tempfile.TemporaryDirectory(prefix="magnetar-gateway-") as folder:
        told = Path(folder, "connection")
        process = subprocess.Popen(
            command(java, "org.apache.spark.deploy.SparkSubmit", submitted),
            stdin=subprocess.PIPE,
            env={
                **environment(java),
                **variables,
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
            },
            process_group=0,  # Ctrl-C is for Python, which then stops the session in order
        )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not told.is_file():
            if process.poll() is not None:
                raise GatewayFailed(f"the JVM of Spark ended with {process.returncode} ({java}); its log says why")
            if time.monotonic() > deadline:
                process.kill()
                raise GatewayFailed(f"the JVM of Spark did not start in {_START_TIMEOUT_S} s ({java})")
            time.sleep(0.01)
        port, size = _CONNECTION.unpack_from(answer := told.read_bytes())
        return process, port, answer[_CONNECTION.size : _CONNECTION.size + size].decode()


def _end() -> None:
    """Ends the JVM with this process, and lets it clean up behind itself."""
    for process in _running:
        if process.stdin is not None:
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_TIMEOUT_S)


def command(java: Java, main_class: str, arguments: Sequence[str]) -> list[str]:
    """The command line of Spark's launcher for a class of Spark, less what this Java lacks, plus what it needs."""
    launcher = _launcher_jar(Path(_find_spark_home(), "jars"))
    asked = [str(java.executable), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", str(launcher)]
    asked += ["org.apache.spark.launcher.Main", main_class, *arguments]
    answer = subprocess.run(asked, capture_output=True, text=True, env=environment(java))
    # An empty first line, then the arguments, each with a NUL at its end.
    found = answer.stdout.lstrip("\0\n").removesuffix("\0").split("\0")
    if answer.returncode != 0 or len(found) < 2:
        raise GatewayFailed(f"Spark's launcher failed ({java}): {(answer.stderr or answer.stdout).strip()}")
    if not java.has_vector_module:
        found = [part for part in found if part != f"--add-modules={VECTOR_MODULE}"]
    if java.version[0] >= _UNSAFE_OFF_BY_DEFAULT:
        found.insert(1, _NETTY_MAY_USE_UNSAFE)
    return found


def environment(java: Java) -> dict[str, str]:
    """What a process of Spark needs to know of this Java and of this Spark."""
    home = _find_spark_home()
    scala = _launcher_jar(Path(home, "jars")).name.split("_")[1].split("-")[0]
    return {**os.environ, "JAVA_HOME": str(java.home), "SPARK_HOME": home, "SPARK_SCALA_VERSION": scala}


def _launcher_jar(jars: Path) -> Path:
    found = sorted(jars.glob("spark-launcher_*.jar"))
    if not found:
        raise GatewayFailed(f"there is no spark-launcher in {jars}: is pyspark installed with its jars?")
    return found[0]

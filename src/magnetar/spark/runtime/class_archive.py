"""Class archive: the classes of Spark as the JVM keeps them in memory, in a file that a later JVM maps (class data
sharing). A JVM starts in half the time with it.

An archive is valid for one Java and one class path, which its name has a hash of; the JVM checks that too, and starts
without one that does not fit. But it crashes with a damaged one, so the name also has a checksum of the contents. Owns
the folder of archives. `archiving` creates them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

from magnetar.clock import SystemClock
from magnetar.spark.runtime.java import Java
from magnetar.spark.runtime.private_folder import private_folder

KEPT = 2  # of about 70 MB each
_SUFFIX = ".jsa"
_UNFINISHED = "unfinished-"
_LEFTOVER_S = 3600.0
_READ_SIZE = 1 << 20
_QUIET = ("-Xshare:auto", "-Xlog:cds*=off", "-Xlog:class+path=off")
_CLASS_PATH_VARIABLES = ("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "PYSPARK_SUBMIT_ARGS")


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """An archive, which may not exist yet."""

    folder: Path
    key: str

    def find(self) -> Path | None:
        """The file, if it exists; damaged ones are removed."""
        for path in self.folder.glob(f"{self.key}-*{_SUFFIX}"):
            with suppress(OSError):
                if path.name == self._name(path):
                    return path
            _remove(path)
        return None

    def _name(self, path: Path) -> str:
        """The one that a file with these contents has."""
        checksum = 0
        with path.open("rb") as file:
            while part := file.read(_READ_SIZE):
                checksum = zlib.crc32(part, checksum)
        return f"{self.key}-{checksum:08x}{_SUFFIX}"

    @contextmanager
    def written(self) -> Iterator[Path]:
        """A path to write to; the file there becomes the archive at the end of the block, unless that fails."""
        _remove_leftovers(self.folder)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=_UNFINISHED) as folder:
            unfinished = Path(folder, "archive")
            yield unfinished
            finished = unfinished.replace(self.folder / self._name(unfinished))
        _remove_old(finished)


def flags(java: Java) -> tuple[str, ...]:
    """Those of a JVM that uses the archive, if there is one."""
    archive = of(java)
    path = None if archive is None else archive.find()
    return () if path is None else (f"-XX:SharedArchiveFile={path}", *_QUIET)


def discard(java: Java) -> None:
    archive = of(java)
    path = None if archive is None else archive.find()
    if path is not None:
        _remove(path)


def flags_to_write(path: Path) -> tuple[str, ...]:
    """Those of a JVM that writes an archive when it ends, which takes it some seconds."""
    return (f"-XX:ArchiveClassesAtExit={path}", *_QUIET)


def of(java: Java) -> ClassArchive | None:
    """The archive of this Java and Spark; None where there can be none."""
    folder = private_folder("class-archives") if _can_share(java) else None
    return None if folder is None else ClassArchive(folder, _key(java))


def _can_share(java: Java) -> bool:
    """Archives build on the one of Java's own classes, which small Javas lack."""
    return any((java.home / "lib" / "server").glob("classes*.jsa"))


def _key(java: Java) -> str:
    home = Path(_find_spark_home())
    digest = hashlib.sha256(f"{java}\0{pyspark.__version__}\0{home}\0".encode())
    for variable in _CLASS_PATH_VARIABLES:
        digest.update(f"{os.environ.get(variable, '')}\0".encode())
    for file in (java.home / "lib" / "modules", *sorted((home / "jars").iterdir())):
        if file.exists():
            found = file.stat()
            digest.update(f"{file.name}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:20]


def _remove_old(newest: Path) -> None:
    """Archives of other Javas and Sparks. A JVM that uses one keeps it mapped."""
    others = (path for path in newest.parent.glob(f"*{_SUFFIX}") if path != newest)
    for path in sorted(others, key=_written_s, reverse=True)[KEPT - 1 :]:
        _remove(path)


def _remove_leftovers(folder: Path) -> None:
    """Folders of processes that were killed while they wrote."""
    oldest_s = SystemClock().now_ms() / 1000 - _LEFTOVER_S
    for unfinished in folder.glob(f"{_UNFINISHED}*"):
        if _written_s(unfinished) < oldest_s:
            shutil.rmtree(unfinished, ignore_errors=True)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _written_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0

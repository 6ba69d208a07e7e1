"""The folder of an archive, on any file system that Spark's Hadoop client reaches: a disk, HDFS, an object store.

Names are relative to the folder, with `/`. Owns atomic writes and the errors. Knows nothing of archives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from magnetar.pipelines.run import RunFailed

_T = TypeVar("_T")

_NOT_FOUND = "java.io.FileNotFoundException"


class FileInfo(NamedTuple):
    name: str
    bytes: int


class Folder:
    def __init__(self, spark: SparkSession, path: str) -> None:
        gateway: Any = getattr(spark, "_jvm", None)
        if gateway is None:
            raise RunFailed("archives need a classic Spark session: Spark Connect has no access to file systems")
        self.path = path
        self._path_of = gateway.org.apache.hadoop.fs.Path
        self._read_all = gateway.org.apache.commons.io.IOUtils.toByteArray
        if not path.strip():
            raise RunFailed("the path of the archive is empty")
        configuration = spark._jsc.hadoopConfiguration()
        root = self._run("opened", lambda: self._path_of(path))
        self._system = self._run("opened", lambda: root.getFileSystem(configuration))
        self._root = self._system.makeQualified(root)
        self.uri = str(self._root.toString())

    def full(self, name: str) -> str:
        """The name with the folder, for Spark."""
        return f"{self.uri.rstrip('/')}/{name}"

    def exists(self, name: str = "") -> bool:
        return bool(self._run("read", lambda: self._system.exists(self._at(name))))

    def files(self, name: str) -> list[FileInfo]:
        """The files directly in a folder, in the order of their names; [] if it does not exist."""
        return [
            FileInfo(str(each.getPath().getName()), int(each.getLen())) for each in self._list(name) if each.isFile()
        ]

    def folders(self, name: str) -> list[str]:
        return [str(each.getPath().getName()) for each in self._list(name) if each.isDirectory()]

    def _list(self, name: str) -> list[Any]:
        def listed() -> list[Any]:
            return list(self._system.listStatus(self._at(name)))

        try:
            found = self._run("read", listed)
        except _Missing:
            return []
        return sorted(found, key=lambda each: str(each.getPath().getName()))

    def tree(self, name: str) -> Iterator[FileInfo]:
        """All files below a folder, with their names from here on."""
        for file in self.files(name):
            yield FileInfo(f"{name}/{file.name}", file.bytes)
        for folder in self.folders(name):
            yield from self.tree(f"{name}/{folder}")

    def read(self, name: str) -> bytes:
        def content() -> bytes:
            stream = self._system.open(self._at(name))
            try:
                return bytes(self._read_all(stream))
            finally:
                stream.close()

        return self._run("read", content)

    def write(self, name: str, data: bytes) -> None:
        """A new file that readers see whole or not at all; an existing one is an error."""
        if self.exists(name):
            raise RunFailed(f"{self.full(name)} exists already: another run has written it")
        written = f"{name}.writing"
        self._run("written", lambda: self._fill(written, data))
        self.move(written, name)

    def _fill(self, name: str, data: bytes) -> None:
        stream = self._system.create(self._at(name), True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()

    def move(self, name: str, to: str) -> None:
        """Renames a file. The target does not exist yet; its folder is created."""
        parent = to.rpartition("/")[0]
        self._run("written", lambda: self._system.mkdirs(self._at(parent)))
        if not self._run("written", lambda: self._system.rename(self._at(name), self._at(to))):
            raise RunFailed(f"{self.full(name)} cannot be renamed to {self.full(to)}")

    def delete(self, name: str) -> None:
        """A file, or a folder with everything in it; nothing if it does not exist."""
        self._run("written", lambda: self._system.delete(self._at(name), True))

    def _at(self, name: str) -> Any:
        return self._path_of(self._root, name) if name else self._root

    def _run(self, what: str, operation: Callable[[], _T]) -> _T:
        try:
            return operation()
        except Py4JJavaError as error:
            java = error.java_exception
            kind = str(java.getClass().getName())
            text = str(java.getMessage() or kind).strip().splitlines()[0]
            if kind == _NOT_FOUND:
                raise _Missing(f"{self.path} cannot be {what}: {text}") from None
            raise RunFailed(f"{self.path} cannot be {what}: {text}") from None


class _Missing(RunFailed):
    """A file or folder that does not exist."""

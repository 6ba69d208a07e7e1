"""A folder in any file system that Spark can write to: small files, renames and removals through Hadoop.

Knows nothing of what is in the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession


class CheckpointFiles:
    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        root = self._jvm.org.apache.hadoop.fs.Path(path)
        context: Any = spark.sparkContext
        self._files = root.getFileSystem(context._jsc.hadoopConfiguration())
        self.path = str(self._files.makeQualified(root).toString())

    def path_of(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _file(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.path_of(name))

    def has(self, name: str) -> bool:
        return bool(self._files.exists(self._file(name)))

    def delete(self, name: str) -> None:
        """Deletes a file, or a folder with everything in it; nothing happens if there is none."""
        self._files.delete(self._file(name), True)

    def names(self, name: str = "") -> list[str]:
        """The files and folders in a folder below this one; [] if there is none."""
        folder = self._file(name) if name else self._jvm.org.apache.hadoop.fs.Path(self.path)
        if not self._files.exists(folder):
            return []
        return sorted(str(status.getPath().getName()) for status in self._files.listStatus(folder))

    def files_below(self, name: str) -> Iterator[str]:
        """Names of all files below a folder, relative to it."""
        folder = self._file(name)
        start = len(str(self._files.makeQualified(folder).toUri().getPath())) + 1
        found = self._files.listFiles(folder, True)
        while found.hasNext():
            yield str(found.next().getPath().toUri().getPath())[start:]

    def write(self, name: str, text: str) -> None:
        """Writes a small file, which exists with all of its text or not at all."""
        unfinished = f"{name}.part"
        output = self._files.create(self._file(unfinished), True)
        try:
            output.write(bytearray(text.encode()))
        finally:
            output.close()
        self.move(unfinished, name)

    def read(self, name: str) -> str:
        """The text of a small file."""
        stream = self._files.open(self._file(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def move(self, name: str, target: str) -> None:
        """Renames a file. One of that name, a copy that was not finished, is replaced."""
        file = self._file(target)
        self._files.mkdirs(file.getParent())
        self._files.delete(file, False)
        if not self._files.rename(self._file(name), file):
            raise OSError(f"{self.path_of(name)} cannot be renamed to {file.toString()}")

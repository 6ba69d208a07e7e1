"""Hadoop's local file system without a `chmod` process per file.

Without its native library, which pyspark lacks, Hadoop runs `chmod` for each file that it creates, and Spark creates
two per micro-batch. The file system below sets permissions inside the JVM. The compiler that Spark uses for queries
compiles it, so no jar is needed; it is installed in Hadoop's cache of file systems before Spark requests one.
"""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

_logger = logging.getLogger(__name__)

_CLASS = "magnetar.LocalFiles"
_SOURCE = """
package magnetar;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Raw());
    }

    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
                return;
            }
            String letters = permission.getUserAction().SYMBOL + permission.getGroupAction().SYMBOL
                + permission.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(letters));
        }
    }
}
"""


def install(jvm: Any) -> bool:
    """Replaces the local file system of a JVM; returns False if that fails and Hadoop's stays."""
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(_SOURCE)
        local = jvm.java.net.URI("file:///")
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        jvm.org.apache.hadoop.fs.FileSystem.get(local, configuration).close()  # not in use yet
        configuration.setClassLoader(compiler.getClassLoader())
        configuration.set("fs.file.impl", _CLASS)
        jvm.org.apache.hadoop.fs.FileSystem.get(local, configuration)
    except (Py4JError, TypeError) as error:  # TypeError for a missing class, which py4j takes for a package
        _logger.warning("Spark's local file system stays slow: %s", error)
        return False
    return True

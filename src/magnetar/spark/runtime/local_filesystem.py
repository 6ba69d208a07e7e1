"""Hadoop's local file system without a process for each file.

Where its native library is missing, and pyspark has none, Hadoop starts `chmod` for each file that it creates, and
Spark creates two for each micro-batch. The file system below does the same inside the JVM. It is compiled by the
compiler that Spark carries for its queries, so that there is no jar; Hadoop keeps one file system for each scheme, and
this is put in that place before Spark asks for it.
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
    """Puts ours in the place of the local file system of a JVM. If that cannot be, Hadoop's stays: False."""
    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(_SOURCE)
        local = jvm.java.net.URI("file:///")
        configuration = jvm.org.apache.hadoop.conf.Configuration()
        jvm.org.apache.hadoop.fs.FileSystem.get(local, configuration).close()  # nobody has opened anything with it yet
        configuration.setClassLoader(compiler.getClassLoader())
        configuration.set("fs.file.impl", _CLASS)
        jvm.org.apache.hadoop.fs.FileSystem.get(local, configuration)
    except (Py4JError, TypeError) as error:  # a TypeError where a class is missing: py4j takes it for a package
        _logger.warning("the local files of Spark stay slow: %s", error)
        return False
    return True

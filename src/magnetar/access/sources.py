"""The content of a key or a list of users, in Pulsar's forms: `file:///path`, `data:;base64,…`, a path, or base64.

Owns the forms, and the bytes of a file that may change. Knows no keys; no content is ever in an error.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from urllib.parse import unquote_to_bytes

from magnetar.access_bounds import ACCESS_FILE
from magnetar.errors import InvalidSetting
from magnetar.settings.source_path import path_of

_DATA = re.compile(r"data:(?P<type>[^;,]*)(?P<base64>;base64)?,(?P<data>.*)", re.DOTALL)
_Stamp = tuple[int, ...]


def read_source(text: str, setting: str) -> bytes:
    """The bytes that a setting names; raises `InvalidSetting`."""
    path = path_of(text, setting)
    if path is not None:
        return read_file(path, setting)
    if text.startswith("data:"):
        found = _DATA.fullmatch(text.strip())
        if found is None:
            raise InvalidSetting(f"{setting} begins with data: but is not of the form data:;base64,…")
        return _decoded(found["data"], setting) if found["base64"] else unquote_to_bytes(found["data"])
    return _decoded(text, setting)


def read_file(path: str, setting: str) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(ACCESS_FILE.limit + 1)
    except (OSError, ValueError) as error:
        raise InvalidSetting(f"{setting}: {path} cannot be read: {getattr(error, 'strerror', error)}") from None
    if len(content) > ACCESS_FILE.limit:
        raise InvalidSetting(f"{setting}: {path} exceeds {ACCESS_FILE.limit} bytes")
    return content


def _decoded(text: str, setting: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSetting(f"{setting} is neither a file that exists, nor file:, data: or base64") from None


class ChangingFile:
    """A file that is read again when it was replaced or written. What cannot be read or used leaves the old in force:
    a file that is being written is empty for a moment.
    """

    def __init__(self, path: str, setting: str) -> None:
        self.path = path
        self._setting = setting
        self._stamp: _Stamp | None = None

    def read(self) -> bytes:
        """At the start; raises `InvalidSetting`."""
        self._stamp = self._found()
        return read_file(self.path, self._setting)

    def changed(self) -> bytes | None:
        """The new content, once; None if it is the same as before, or cannot be read."""
        stamp = self._found()
        if stamp is None or stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            return read_file(self.path, self._setting)
        except InvalidSetting:
            return None

    def _found(self) -> _Stamp | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

"""The content of a key or a list of users, in Pulsar's forms: `file:///path`, `data:;base64,…`, a path, or base64.

Owns the forms, and the bytes of a file that may change. Knows no keys; no content is ever in an error.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes

from magnetar.access_bounds import ACCESS_FILE
from magnetar.errors import InvalidSetting
from magnetar.log.events import ACCESS_FILE_READ, ACCESS_FILE_REFUSED, emit
from magnetar.security.private_files import check_file
from magnetar.settings.source_path import path_of

_DATA = re.compile(r"data:(?P<type>[^;,]*)(?P<base64>;base64)?,(?P<data>.*)", re.DOTALL)
_Stamp = tuple[int, ...]

T = TypeVar("T")


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


class ChangingFile(Generic[T]):
    """What a file has, which is read again when it was replaced or written. What cannot be read or used leaves the old
    in force, and is reported once: a file that is being written is empty for a moment.
    """

    def __init__(self, path: str, setting: str, parse: Callable[[bytes], T], *, is_secret: bool = False) -> None:
        """`is_secret`: others may not read it. That is checked when it was replaced; at the start, all such files are.

        Raises `InvalidSetting`, as `parse` may.
        """
        self._path = path
        self._setting = setting
        self._parse = parse
        self._is_secret = is_secret
        self._stamp = self._found()
        self._content = self._read()

    def current(self) -> T:
        stamp = self._found()
        if stamp != self._stamp:
            self._stamp = stamp
            self._read_again()
        return self._content

    def _read_again(self) -> None:
        try:
            if self._is_secret:
                check_file(Path(self._path), self._setting)
            self._content = self._read()
        except InvalidSetting as error:
            emit(ACCESS_FILE_REFUSED, reason=error)
        else:
            emit(ACCESS_FILE_READ, setting=self._setting, path=self._path)

    def _read(self) -> T:
        return self._parse(read_file(self._path, self._setting))

    def _found(self) -> _Stamp | None:
        """Changes with its content and its mode; None if it is missing."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

"""Folders below which a file must be, if its path was given by someone who may not name any file.

Follows symbolic links. Opens no file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePath

from magnetar.client.errors import InvalidArgument


def below(file: str | os.PathLike[str], folders: Sequence[str] | None, what: str) -> str:
    """The path without links, which is below one of `folders`; or one of them, as it is. None permits every file.

    Raises `InvalidArgument`; `what` names the source of the path.
    """
    if folders is None:
        return os.fspath(file)
    path = PurePath(file)
    if os.fspath(file) in folders:
        return os.fspath(file)
    if not path.is_absolute() or ".." in path.parts or "\0" in os.fspath(file):
        raise InvalidArgument(f"{what} {os.fspath(file)!r} is not an absolute path without `..`")
    found = Path(os.path.realpath(path))
    if not any(found.is_relative_to(os.path.realpath(folder)) for folder in folders):
        raise InvalidArgument(f"{what} {os.fspath(file)!r} is not below a folder that brokerClientTokenFolders names")
    return str(found)


def folders_of(text: str) -> tuple[str, ...]:
    """From the text of the setting."""
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)

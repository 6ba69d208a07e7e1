"""Regular files: opening one that is none may never end, as for a pipe, and an event loop would wait for it.

Owns the check before a file is opened whose path may come from a cluster's record. Follows links, opens no file.
"""

from __future__ import annotations

import os
import stat

from magnetar.client.errors import InvalidArgument

PEM_SIZE_MAX = 4 << 20
"""Bytes of a file of certificates or keys. Those with all public authorities have a few hundred thousand."""


def check_regular(file: str | os.PathLike[str], what: str, size_max: int) -> os.stat_result:
    """What the system knows of a file with 1 to `size_max` bytes. Raises `InvalidArgument` for every other file.

    `what` names the source of the path. Files of the kernel have no bytes, whatever can be read from them.
    """
    named = f"{what} {os.fspath(file)!r}"
    try:
        found = os.stat(file)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{named} cannot be read: {getattr(error, 'strerror', error)}") from None
    if not stat.S_ISREG(found.st_mode):
        raise InvalidArgument(f"{named} cannot be read: it is not a regular file")
    if found.st_size == 0:
        raise InvalidArgument(f"{named} cannot be used: it is empty")
    if found.st_size > size_max:
        raise InvalidArgument(f"{named} cannot be used: it has {found.st_size} bytes, more than {size_max}")
    return found

"""The C allocator of the broker's process: the memory of large buffers is kept for the next ones.

A batch of messages is a buffer of 100 KB or more, and is copied several times between the socket and the disk. Left
alone, glibc takes memory of that size from the kernel for each copy and returns it at once, and the kernel clears every
page again. Owns two thresholds of glibc; another allocator, and one that the operator has tuned, stays as it is.
"""

from __future__ import annotations

import os

MAPPED_MIN = 4 << 20
"""Bytes of a buffer that is still taken from the kernel by itself."""

KEPT_MAX = 64 << 20
"""Bytes of free memory that are kept."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_buffers() -> None:
    """Of the whole process, so only a process that is a broker calls it."""
    if any(variable in os.environ for variable in _VARIABLES):
        return
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return
    mallopt(_M_MMAP_THRESHOLD, MAPPED_MIN)
    mallopt(_M_TRIM_THRESHOLD, KEPT_MAX)

"""The disk watch: holds producers before the disk is full, and releases them when space is back.

Owns the limits and the ballast of a running broker. A full disk ends the broker, since nothing can be made durable any
more; so producers are held before that, like by a backlog quota, while consumers, acks, dead letters and deletions go
on: they are what frees space.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from magnetar.broker.broker import Broker
from magnetar.log.events import BALLAST_RESTORED, DISK_HELD, DISK_LOW, DISK_RELEASED
from magnetar.settings.settings import Settings
from magnetar.storage.api import Storage
from magnetar.storage.ballast import Ballast

_MB = 1 << 20
_SMALL_PART = 10  # of the whole disk: no fixed size may be more than this part of it

BALLAST_AFTER_S = 60.0
"""Uptime after which a ballast is made: a broker that lives for seconds needs none."""

DiskState = Literal["none", "ok", "low", "held"]


class DiskSpace(NamedTuple):
    free: int
    total: int


class DiskLimits(NamedTuple):
    """Free bytes below which producers are held and the log has a warning, and from which they are released."""

    hold: int
    warn: int
    release: int

    @classmethod
    def of(cls, settings: Settings, total: int) -> DiskLimits:
        """A share of the disk, unless that is more than enough or less than what storage needs to work at all."""
        least = min(settings.minUsableDiskSizeInMB * _MB, total // _SMALL_PART)
        enough = settings.enoughUsableDiskSizeInMB * _MB

        def free(threshold: float, times: int) -> int:
            return max(times * least, min(round((1 - threshold) * total), times * enough))

        hold = free(settings.diskUsageThreshold, 1)
        warn = free(settings.diskUsageWarnThreshold, 2)
        return cls(hold, max(hold, warn), max(hold, free(settings.diskUsageLwmThreshold, 2)))


def space_of(folder: str) -> DiskSpace:
    disk = os.statvfs(folder)
    return DiskSpace(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)


class DiskWatch:
    """`state` is "none" for a storage without a disk; `held` and `low` are reasons, empty while there is none."""

    def __init__(self, broker: Broker, storage: Storage, event: Callable[..., None]) -> None:
        self._broker = broker
        self._event: Callable[..., None] = event
        self._started_s = time.monotonic()
        self._folder = storage.folder
        self.probe: Callable[[str], DiskSpace] = space_of
        self.ballast: Ballast | None = None
        self.state: DiskState = "none"
        self.space: DiskSpace | None = None
        self.held = ""
        self.low = ""

    async def run(self) -> None:
        while self._folder is not None:
            interval_ms = self._broker.settings.diskCheckInterval
            await asyncio.sleep(interval_ms / 1000 or 60)
            if interval_ms or self.state == "held":
                await self.check()

    async def check(self) -> None:
        if self._folder is None or not self._broker.settings.diskCheckInterval:
            self._judge(None)
            return
        try:
            space = await asyncio.to_thread(self.probe, str(self._folder))  # may wait for a network
        except OSError:
            return  # what the disk cannot do, a commit will show
        self._judge(space)
        if self.state == "ok" and self.ballast is not None and time.monotonic() - self._started_s >= BALLAST_AFTER_S:
            await self._restore(self.ballast, space)

    def _judge(self, space: DiskSpace | None) -> None:
        self.space = space
        if space is None:
            self._release("it is not checked any more")
            self.state, self.low = "none", ""
            return
        limits = DiskLimits.of(self._broker.settings, space.total)
        left = f"the disk of {self._folder} has {space.free // _MB} of {space.total // _MB} MB left"
        if space.free < limits.hold or (self.held and space.free < limits.release):
            self._hold(left, limits)
            return
        self._release(left)
        if space.free >= limits.warn:
            self.state, self.low = "ok", ""
            return
        self.low = f"{left}, less than {limits.warn // _MB} MB"
        if self.state != "low":
            self._event(DISK_LOW, left=left, limit=limits.warn // _MB)
        self.state = "low"

    def _hold(self, left: str, limits: DiskLimits) -> None:
        if not self.held:
            self._event(DISK_HELD, left=left, limit=limits.hold // _MB, release=limits.release // _MB)
        self.held = f"{left}: producers are held until it has {limits.release // _MB} MB"
        self.state, self.low = "held", ""
        self._broker.hold_producers(self.held)

    def _release(self, left: str) -> None:
        if self.held:
            self.held = ""
            self._broker.release_producers()
            self._event(DISK_RELEASED, left=left)

    async def _restore(self, ballast: Ballast, space: DiskSpace) -> None:
        limits = DiskLimits.of(self._broker.settings, space.total)
        if not ballast.size or ballast.exists or space.free - ballast.size <= limits.release:
            return
        if await asyncio.to_thread(ballast.make):
            self._event(BALLAST_RESTORED, path=ballast.path, size=ballast.size // _MB)

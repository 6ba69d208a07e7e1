"""Follows the broker's declaration, so that topics in remote clusters are made soon after those here.

A task in the server's loop that finds what was created, grown or began to be replicated, and hands it to a
`topic_making` for each cluster. It never holds anything up: changes are looked through together, in turns. Where
createTopicToRemoteClusterForReplication is false there is nothing for it to do, and it asks no cluster anything.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from magnetar.errors import InvalidName
from magnetar.names import TopicName
from magnetar.replication.model import Declaration, DeclaredRoute
from magnetar.replication.topic_template import remote_topic

if TYPE_CHECKING:
    from magnetar.server.topic_making import TopicMaking

log = logging.getLogger(__name__)

_GATHERING_S = 0.02  # after a change, for more changes to come: what is created in bulk is looked through once
_ROWS_PER_TURN = 500

Key = tuple[str, str]
"""A topic, as a whole, and a remote cluster."""


class Errand(msgspec.Struct, frozen=True):
    """A topic that is to be seen to in a remote cluster."""

    topic: str
    target: str  # its name there
    partitions: int
    grown_from: int


class RemoteTopics:
    """`changed` says that the declaration is another one; the rest goes on in the loop, until `close`."""

    def __init__(self, declaration: Callable[[], Declaration], *, pause_last_s: float) -> None:
        self._declaration = declaration
        self._pause_last_s = pause_last_s
        self._seen: dict[Key, Errand] = {}
        self._remotes: dict[str, TopicMaking] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def changed(self) -> None:
        self._news.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow())
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("unexpected error while the topics of remote clusters were followed", exc_info=error)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.gather(*(remote.close() for remote in self._remotes.values()))

    async def _follow(self) -> None:
        while True:
            await self._news.wait()
            await asyncio.sleep(_GATHERING_S)
            self._news.clear()
            declaration = self._declaration()
            if declaration.creates_topics:
                await self._look_through(declaration)

    async def _look_through(self, declaration: Declaration) -> None:
        """In turns: there may be many topics, and the broker has other things to do."""
        await self._set_remotes(declaration)
        seen: dict[Key, Errand] = {}
        for index, row in enumerate(declaration.topics):
            if index % _ROWS_PER_TURN == _ROWS_PER_TURN - 1:
                await asyncio.sleep(0)
            errand = _errand(row)
            remote = self._remotes.get(row.remote)
            if errand is None or remote is None:
                continue
            key = (row.topic, row.remote)
            seen[key] = errand
            if self._seen.get(key) != errand:
                remote.see_to(errand)
        for topic, name in self._seen.keys() - seen.keys():
            if name in self._remotes:
                self._remotes[name].forget(topic)
        self._seen = seen

    async def _set_remotes(self, declaration: Declaration) -> None:
        """One that is reached otherwise than before begins anew: what could not be made there, perhaps now can."""
        wanted = {row.remote for row in declaration.topics} & declaration.clusters.keys()
        for name, remote in list(self._remotes.items()):
            if name not in wanted or declaration.clusters[name] != remote.address:
                del self._remotes[name]
                self._seen = {key: errand for key, errand in self._seen.items() if key[1] != name}
                await remote.close()
        for name in wanted - self._remotes.keys():
            # The client takes long to import, and most brokers never need it: in a thread, while others are served.
            making = await asyncio.to_thread(importlib.import_module, "magnetar.server.topic_making")
            self._remotes[name] = making.TopicMaking(
                name, declaration.clusters[name], mismatch=declaration.mismatch, pause_last_s=self._pause_last_s
            )


def _errand(row: DeclaredRoute) -> Errand | None:
    """None of what only a pipeline can say something about: a bad name, a partition that lost its topic."""
    try:
        target = remote_topic(row.topic, row.policy.rename)
    except InvalidName:
        return None
    if TopicName.parse(target).is_partition:
        return None
    return Errand(row.topic, target, row.partitions, row.grown_from)

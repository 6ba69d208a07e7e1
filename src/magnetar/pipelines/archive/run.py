"""A declared archive: runs once, or again and again at an interval."""

from __future__ import annotations

from magnetar.declared.archive import ArchiveSpec, topic_sets
from magnetar.names import DEFAULT_NAMESPACE, DEFAULT_TENANT
from magnetar.pipelines.archive.archive import archive
from magnetar.pipelines.run import RunContext

_NAMESPACE = f"{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}"


def run(context: RunContext, spec: ArchiveSpec, namespace: str = _NAMESPACE) -> None:
    """`namespace` is that of topics without one. Returns when it is stopping, or when all is archived."""
    sets = topic_sets(spec, namespace)
    while True:
        archive(
            context,
            sets,
            spec.path,
            format=spec.format,
            subscription=spec.subscription,
            round_bytes=spec.round_bytes,
        )
        if spec.every_s is None or context.wait(spec.every_s):
            return

"""The name of the cluster that a data folder belongs to.

Copies in other clusters carry this name as their origin, so a broker that takes another name by accident would see its
own copies as foreign. Owns the record of the name and the choice between it and the name that the operator gave.
"""

from __future__ import annotations

from magnetar.broker import keys
from magnetar.broker.stored_globals import unreadable
from magnetar.errors import MagnetarError
from magnetar.storage.api import Batch, Space, Storage


class OtherCluster(MagnetarError):
    """The data belongs to a cluster with another name."""


def recorded_name(storage: Storage) -> str | None:
    """None for a new folder, and for one of before the name was recorded."""
    name = storage.get(Space.STATE, keys.OWN_CLUSTER)
    try:
        return None if name is None else name.decode()
    except UnicodeDecodeError:
        raise unreadable(keys.OWN_CLUSTER, "the name of the cluster", name or b"") from None


def choose_name(storage: Storage, given: str | None, *, rename: bool) -> str | None:
    """The name to start with, None for the default; raises `OtherCluster` for another name without `rename`."""
    recorded = recorded_name(storage)
    if recorded is None or given is None:
        return recorded or given
    if given != recorded and not rename:
        raise OtherCluster(
            f"the data belongs to cluster {recorded}, not {given}: leave the cluster name out to start as {recorded}, "
            f"or rename the cluster with --rename-cluster"
        )
    return given


def record_name(storage: Storage, batch: Batch, name: str) -> None:
    if recorded_name(storage) != name:
        batch.put(keys.OWN_CLUSTER, name.encode())

"""A data folder knows the cluster it belongs to."""

from __future__ import annotations

import pytest

from magnetar.broker.own_cluster import OtherCluster, choose_name, recorded_name
from magnetar.storage.memory import MemoryStorage

from .world import World


def test_a_new_folder_takes_the_given_name() -> None:
    storage = MemoryStorage()
    assert recorded_name(storage) is None
    assert choose_name(storage, None, rename=False) is None
    assert choose_name(storage, "east", rename=False) == "east"


def test_the_name_is_remembered() -> None:
    world = World(clusterName="east")
    assert recorded_name(world.storage) == "east"
    assert choose_name(world.storage, None, rename=False) == "east"
    assert choose_name(world.storage, "east", rename=False) == "east"


def test_another_name_needs_the_flag() -> None:
    world = World(clusterName="east")
    with pytest.raises(OtherCluster, match=r"belongs to cluster east, not west.*--rename-cluster"):
        choose_name(world.storage, "west", rename=False)
    assert choose_name(world.storage, "west", rename=True) == "west"
    World(world.storage, clusterName="west")
    assert recorded_name(world.storage) == "west"

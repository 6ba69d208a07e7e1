"""A few hundred seeds in every test run; `make simulate` goes on until one fails."""

from __future__ import annotations

import pytest

from .world import World

CHUNK = 15


@pytest.mark.parametrize("first", range(0, 240, CHUNK))
def test_seeds(first: int) -> None:
    for seed in range(first, first + CHUNK):
        World(seed).run()


def test_a_seed_tells_the_same_story_twice() -> None:
    stories = []
    for _ in range(2):
        world = World(4)
        world.run()
        stories.append((list(world.history), sorted(world.truth.entries), world.clock.now_ms()))
    assert stories[0] == stories[1]
    assert stories[0][0]

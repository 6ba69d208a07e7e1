"""A few hundred seeds per test run; `make simulate` continues until one fails."""

from __future__ import annotations

import pytest

from .world import World

CHUNK = 15


@pytest.mark.parametrize("first", range(0, 240, CHUNK))
def test_seeds(first: int) -> None:
    for seed in range(first, first + CHUNK):
        World(seed).run()


def test_a_seed_is_deterministic() -> None:
    traces = []
    for _ in range(2):
        world = World(4)
        world.run()
        traces.append((list(world.history), sorted(world.durable.entries), world.clock.now_ms()))
    assert traces[0] == traces[1]
    assert traces[0][0]

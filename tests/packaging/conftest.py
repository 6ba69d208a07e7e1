"""Wheel and sdist, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from .builds import build


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With parallel tests, one process runs those that need the packages."""
    for item in items:
        if "dist" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("packaging"))


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def sdist(dist: Path) -> Path:
    (found,) = dist.glob("*.tar.gz")
    return found

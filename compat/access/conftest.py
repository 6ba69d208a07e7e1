"""Apache Pulsar and our broker, both with tokens and authorization, for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import java
import sides


@pytest.fixture(scope="session")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sides.Side]:
    try:
        runtime = java.find_java()
    except java.JavaMissing as missing:
        pytest.skip(str(missing))
    with sides.serving(sides.apache(tmp_path_factory.mktemp("apache"), runtime)) as side:
        yield side


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sides.Side]:
    with sides.serving(sides.SecuredOurs(tmp_path_factory.mktemp("ours"))) as side:
        yield side

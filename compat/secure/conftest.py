"""One Apache Pulsar with TLS and tokens for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import apache
import java


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apache.Secured]:
    try:
        runtime = java.find_java()
    except java.JavaMissing as missing:
        pytest.skip(str(missing))
    with apache.of(tmp_path_factory.mktemp("secure"), runtime).serving() as secured:
        yield secured

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .worker import Worker


@pytest.fixture(scope="package")
def worker() -> Iterator[Worker]:
    with Worker() as running:
        yield running

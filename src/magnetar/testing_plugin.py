"""Pytest plugin: the fixture `magnetar_broker`, one broker per test, for any project that installs magnetar.

Settings come from a marker: `@pytest.mark.magnetar(brokerDeduplicationEnabled=True)`; `secure=True` among them makes a
broker with TLS, tokens and authorization.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from magnetar.testing import TestBroker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "magnetar(**settings): settings of the broker of magnetar_broker")


@pytest.fixture
def magnetar_broker(request: pytest.FixtureRequest) -> Iterator[TestBroker]:
    from magnetar.testing import broker  # imported on first use: costs nothing without the fixture

    marker = request.node.get_closest_marker("magnetar")
    with broker(**(marker.kwargs if marker else {})) as running:
        yield running

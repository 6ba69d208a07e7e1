from __future__ import annotations

import pytest

from tests.admin.driver import Admin


@pytest.fixture
def admin() -> Admin:
    return Admin()

"""Authorization on a running broker: its settings, and official clients with and without rights."""

from __future__ import annotations

import pytest

from magnetar.errors import InvalidSetting
from magnetar.settings.settings import Settings
from magnetar.storage.memory import MemoryStorage
from magnetar.testing import TestBroker


def test_authorization_without_authentication_ends_the_start() -> None:
    with pytest.raises(InvalidSetting, match="needs authenticationEnabled=true"):
        TestBroker(MemoryStorage(), Settings(authorizationEnabled=True))

"""The package `magnetar.client`: names are imported on first use."""

from __future__ import annotations

import subprocess
import sys

import magnetar.client
from magnetar.client import _MODULES


def test_every_public_name_has_a_module_and_can_be_imported() -> None:
    assert sorted(_MODULES) == sorted(magnetar.client.__all__)
    everything: dict[str, object] = {}
    exec("from magnetar.client import *", everything)
    assert everything.keys() >= set(magnetar.client.__all__)
    assert set(dir(magnetar.client)) >= set(magnetar.client.__all__)


def test_the_errors_alone_do_not_import_the_client() -> None:
    code = "import sys, magnetar.client.errors, magnetar.security.credentials; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "magnetar.client.errors" in loaded
    assert not {"asyncio", "magnetar.client.async_client", "magnetar.client.message"} & set(loaded)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(magnetar.client, "NoSuchName")

"""What the broker handed over: waiting for it, and its end."""

from __future__ import annotations

import threading

import msgspec
import pytest

from magnetar.client.errors import Timeout
from magnetar.pipelines import handed as module
from magnetar.pipelines.handed import Handed
from magnetar.replication.handover import Handover


def line(token: str, version: str, credentials: object = None) -> bytes:
    return msgspec.json.encode(Handover(token, version, msgspec.Raw(msgspec.json.encode(credentials))))


def test_those_who_need_it_wait_for_it() -> None:
    handed = Handed()
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(handed.token()))
    thread.start()
    handed.put(b'{"token": "cut of')  # by a broker that was killed
    handed.put(b"\xff")
    assert found == []
    handed.put(line("t1", "v1", {"b": 1}))
    thread.join(30)
    assert found == ["t1"]
    assert msgspec.json.decode(handed.credentials("v1")) == {"b": 1}
    assert "t1" not in repr(handed)


def test_the_next_broker_hands_over_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT_S", 0.0)
    monkeypatch.setattr(module, "_CREDENTIALS_S", 0.0)
    handed = Handed()
    handed.put(line("t1", "v1"))
    with pytest.raises(Timeout, match="did not hand over"):
        handed.credentials("v2")
    handed.forget()
    with pytest.raises(Timeout):
        handed.token()
    handed.put(line("t2", "v2"))
    assert handed.token() == "t2"
    handed.end()
    with pytest.raises(Timeout):
        handed.token()

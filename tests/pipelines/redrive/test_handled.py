"""Handled letters as the stage reports them, and the entries that are acknowledged for them."""

from __future__ import annotations

from magnetar.client import MessageId
from magnetar.pipelines.redrive.handled import handled_text, whole_entries


def test_sp3_a_batch_is_acknowledged_when_all_its_messages_were_sent() -> None:
    single = [MessageId(3, 7), MessageId(3, 5)]
    batch = [MessageId(3, 6, batch_index=index, batch_size=2) for index in (0, 1)]
    partly = [MessageId(4, 0, batch_index=2, batch_size=3)]
    text = handled_text([*single, *batch, *partly])
    assert text == "3:7,3:5,3:6.0/2,3:6.1/2,4:0.2/3"
    assert whole_entries(text) == [MessageId(3, 5), MessageId(3, 6), MessageId(3, 7)]
    assert whole_entries("") == []

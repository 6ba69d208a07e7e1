"""Positions of rows as numbers and as text."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client import MessageId
from magnetar.pipelines.moving.positions import positions_text, row_positions
from magnetar.wire.moves import positions_of

entries = st.dictionaries(
    st.integers(0, 60), st.one_of(st.just([-1]), st.lists(st.integers(0, 99), min_size=1, unique=True)), min_size=1
)


@given(st.integers(0, 1 << 40), entries, st.integers(1, 3))
def test_sp3_numbers_of_rows_are_the_positions_of_their_messages(
    ledger_id: int, found: dict[int, list[int]], times: int
) -> None:
    messages = sorted((entry, index) for entry, indexes in found.items() for index in indexes)
    ids = pa.array([MessageId(ledger_id, entry, batch_index=index).to_bytes() for entry, index in messages])
    positions = row_positions("__messageId", ids)
    assert list(zip(positions.entries.tolist(), positions.batch_indexes.tolist(), strict=True)) == messages
    assert set(positions.ledgers.tolist()) == {ledger_id}
    text = positions_text(ledger_id, np.repeat(positions.numbers, times))
    assert text == positions_of(ledger_id, messages).text

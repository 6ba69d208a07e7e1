"""Reading dead letter properties, whichever client wrote them."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from magnetar.deadletter.properties import UNKNOWN, read_info
from magnetar.names import TopicName

FULL = "persistent://public/default"


NAMES = st.sampled_from(
    ["REAL_TOPIC", "REAL_SUBSCRIPTION", "ORIGIN_MESSAGE_ID", "DEATH_REASON", "DEATH_HISTORY", "RECONSUMETIMES", "x"]
)
VALUES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["1:2:3", "(1,2,3,4)", "t", f"{FULL}/t", "[]", "[1]", json.dumps([{"topic": "t"}]), "9" * 30]),
)


@given(st.dictionaries(NAMES, VALUES))
def test_any_properties_are_read(properties: dict[str, str]) -> None:
    found = read_info(properties, TopicName.parse("t-s-DLQ"))
    assert found.reason
    if properties.get("REAL_TOPIC"):
        assert found.origin_topic == properties["REAL_TOPIC"] and found.reason != UNKNOWN

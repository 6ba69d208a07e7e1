"""The pure parts: why a subscription does not move, payloads as text, conditions of redrives."""

from __future__ import annotations

import pytest

from magnetar.console.layout.payload import described, hex_dump
from magnetar.console.options import PAYLOAD_SHOWN_MAX
from magnetar.console.rest.dead_letters import condition_of, matches
from magnetar.console.rest.delivery import reasons
from magnetar.console.rest.model import ConsumerAnswer, DeadLetterAnswer, SubscriptionAnswer
from magnetar.replication.where import check_where
from magnetar.schema.types import Schema, SchemaType


@pytest.mark.parametrize(
    ("one", "word"),
    [
        (SubscriptionAnswer(msg_backlog=5), "No consumer is connected"),
        (SubscriptionAnswer(paused_reason="by hand"), "Paused: by hand"),
        (SubscriptionAnswer(damaged="entry 3"), "Damaged: entry 3"),
        (SubscriptionAnswer(msg_backlog=5, consumers=[ConsumerAnswer(available_permits=0)]), "0 permits"),
        (SubscriptionAnswer(msg_backlog=5, msg_delayed=5, consumers=[ConsumerAnswer(available_permits=9)]), "delayed"),
        (SubscriptionAnswer(dead_letter_problem="no topic"), "cannot become a dead letter"),
        (
            SubscriptionAnswer(
                msg_backlog=5,
                unacked_messages=50,
                blocked_subscription_on_unacked_msgs=True,
                consumers=[ConsumerAnswer(available_permits=9)],
            ),
            "50 unacknowledged",
        ),
    ],
)
def test_why_a_subscription_does_not_move(one: SubscriptionAnswer, word: str) -> None:
    assert word in " ".join(reasons(one))


def test_a_subscription_that_moves_has_no_reason() -> None:
    assert list(reasons(SubscriptionAnswer(msg_backlog=5, consumers=[ConsumerAnswer(available_permits=9)]))) == []
    assert list(reasons(SubscriptionAnswer())) == []


@pytest.mark.parametrize(
    ("payload", "kind"),
    [(b"", "empty"), (b"plain", "text"), (b'{"a": 1}', "JSON"), (b'{"a": ', "text"), (b"\xff\xfe", "bytes"),
     (b"a\x00b", "bytes"), (b"[" * 20_000, "text")],
)  # fmt: skip
def test_kinds_of_payloads(payload: bytes, kind: str) -> None:
    assert described(payload)[0] == kind


def test_a_large_payload_is_cut() -> None:
    kind, text = described(("ä" * PAYLOAD_SHOWN_MAX).encode())
    assert kind == "text"
    assert len(text) <= PAYLOAD_SHOWN_MAX
    assert len(hex_dump(bytes(1 << 20))) < 20_000


def test_a_payload_is_decoded_by_its_schema() -> None:
    assert described((7).to_bytes(4, "big", signed=True), Schema(SchemaType.INT32, b"", {})) == ("INT32", "7")
    assert described(b"\xff", Schema(SchemaType.INT32, b"", {}))[0] == "bytes"  # not a value of its schema


def test_conditions_are_quoted_for_spark() -> None:
    assert condition_of("", "") == ""
    assert condition_of("Expired", "") == "reason = 'Expired'"
    evil = condition_of("x' or '1'='1", "\\' or 1=1 --")
    assert evil == "reason = 'x\\' or \\'1\\'=\\'1' and subscription = '\\\\\\' or 1=1 --'"
    check_where(evil)


def test_letters_are_filtered() -> None:
    letter = DeadLetterAnswer(id="3:0:-1", reason="Expired", origin_subscription="billing", error="No Amount")
    assert matches(letter, "", "", "amount")
    assert matches(letter, "Expired", "billing", "")
    assert not matches(letter, "Client", "", "")
    assert not matches(letter, "", "other", "")
    assert not matches(letter, "", "", "price")

"""SP2, SP3: what a subscription has not acknowledged, and acknowledging it by positions."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.access.authorization import Authorization
from magnetar.access.needs import Right
from magnetar.broker.subscription.subscription import Subscription
from magnetar.broker.topic import waiting
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.names import TopicName
from magnetar.pipeline_bounds import MOVED_MESSAGES, MOVED_RANGES, UNACKNOWLEDGED_PAGE
from magnetar.wire.moves import parse_positions
from tests.admin.driver import Admin

PATH = "/admin/v2/persistent/public/default"
UNACKNOWLEDGED = f"{PATH}/t/unacknowledged"
ACKNOWLEDGE = f"{PATH}/t/acknowledge"


def topic_of(admin: Admin, name: str = "t") -> PersistentTopic:
    topic = admin.broker.topic(TopicName.parse(name))
    assert isinstance(topic, PersistentTopic)
    return topic


def subscription(admin: Admin, name: str = "s", topic: str = "t") -> Subscription:
    found = topic_of(admin, topic).subscription(name)
    assert found is not None
    return found


def ack(admin: Admin, *entries: int, name: str = "s") -> None:
    for entry_id in entries:
        subscription(admin, name).ack(entry_id)
    admin.commit()


def shown(admin: Admin, query: str = "?subscription=s", topic: str = "t") -> tuple[str, int | None]:
    page: dict[str, Any] = admin.get(f"{PATH}/{topic}/unacknowledged{query}")
    assert page["ledgerId"] == topic_of(admin, topic).ledger_id
    assert list(page) == ["ledgerId", "positions", "next"]
    return page["positions"], page["next"]


def acknowledge(admin: Admin, positions: str, name: str = "s") -> None:
    body = {"subscription": name, "positions": f"{topic_of(admin).ledger_id}:{positions}"}
    admin.done("POST", ACKNOWLEDGE, json=body)
    admin.broker.invariants()


@pytest.fixture
def ten(admin: Admin) -> Admin:
    """Ten messages, and a subscription that has read none."""
    admin.done("PUT", f"{PATH}/t/subscription/s")
    admin.publish("t", *[b"x"] * 10)
    return admin


class TestUnacknowledged:
    def test_sp2_ranges_of_a_subscription(self, ten: Admin) -> None:
        assert shown(ten) == ("0-9", None)
        ack(ten, 0, 3, 4, 9)
        assert shown(ten) == ("1-2,5-8", None)
        ack(ten, 1, 2, 5, 6, 7, 8)
        assert shown(ten) == ("", None)

    def test_sp3_of_all_subscriptions_what_waits(self, ten: Admin) -> None:
        ten.done("PUT", f"{PATH}/t/subscription/other", content=b'"earliest"')
        ack(ten, 0, 1, 2, 5)
        ack(ten, 1, 2, 3, 5, name="other")
        for query in ("", "?subscription=*"):
            assert shown(ten, query) == ("0,3-4,6-9", None)

    def test_sp3_dead_letters_from_before_the_first_subscription_wait(self, admin: Admin) -> None:
        admin.publish("t-s-DLQ", *[b"x"] * 3)
        assert shown(admin, "", "t-s-DLQ") == ("0-2", None)
        admin.done("PUT", f"{PATH}/t-s-DLQ/subscription/late")
        admin.publish("t-s-DLQ", *[b"x"] * 2)
        assert shown(admin, "", "t-s-DLQ") == ("0-4", None)
        subscription(admin, "late", "t-s-DLQ").ack(3)
        assert shown(admin, "", "t-s-DLQ") == ("0-2,4", None)
        assert [i for i in range(5) if waiting.is_waiting(topic_of(admin, "t-s-DLQ"), i)] == [0, 1, 2, 4]
        assert shown(admin, "?subscription=late", "t-s-DLQ") == ("4", None)

    def test_sp2_a_batch_of_which_a_part_is_acknowledged(self, admin: Admin) -> None:
        admin.done("PUT", f"{PATH}/t/subscription/s")
        admin.publish("t", *[b"x"] * 4, batch=8)
        subscription(admin).ack(1, 0b11100011, 8)
        subscription(admin).cursor.count_redelivery(2)
        assert shown(admin) == ("0,1.0-1,1.5-7,2-3", None)
        admin.done("PUT", f"{PATH}/t/subscription/other", content=b'"earliest"')
        assert shown(admin, "") == ("0-3", None)
        subscription(admin, "other").ack(1, 0b10000110, 8)
        assert shown(admin, "") == ("0,1.0-2,1.5-7,2-3", None)

    def test_sp2_pages(self, ten: Admin) -> None:
        ack(ten, 1, 4, 6)
        pages, after = [], -1
        while True:
            positions, next_after = shown(ten, f"?subscription=s&limit=1&after={after}")
            pages.append(positions)
            if next_after is None:
                break
            after = next_after
        assert pages == ["0", "2-3", "5", "7-9"]
        assert shown(ten, "?subscription=s&limit=2&after=2") == ("3,5", 5)

    def test_bound_unacknowledged_page_of_ranges_and_states(self, admin: Admin) -> None:
        """Entries with a state cost a look at the disk each, so a page ends after so many of them."""
        admin.done("PUT", f"{PATH}/t/subscription/s")
        admin.publish("t", *[b"x"] * 8)
        for entry_id in range(8):
            subscription(admin).cursor.count_redelivery(entry_id)
        assert shown(admin, "?subscription=s&limit=3") == ("0-2", 2)
        assert shown(admin, "?subscription=s&limit=3&after=2") == ("3-5", 5)
        topic = topic_of(admin)
        topic.log.last = topic.log.confirmed = 2 * UNACKNOWLEDGED_PAGE.limit + 20
        for entry_id in range(9, topic.log.last, 2):
            subscription(admin).cursor.ack(entry_id)
        positions, after = shown(admin, "?subscription=s&after=8")
        assert (positions.count(",") + 1, after) == (UNACKNOWLEDGED_PAGE.limit, 2 * UNACKNOWLEDGED_PAGE.limit + 8)
        text = admin.reason(400, "GET", f"{UNACKNOWLEDGED}?limit={UNACKNOWLEDGED_PAGE.limit + 1}")
        assert str(UNACKNOWLEDGED_PAGE.limit) in text

    def test_sp2_what_is_shown_can_be_moved(self, ten: Admin) -> None:
        ack(ten, 2, 5)
        positions, _ = shown(ten)
        assert parse_positions(f"1:{positions}").text == "1:0-1,3-4,6-9"


class TestAcknowledge:
    def test_sp2_for_one_subscription(self, ten: Admin) -> None:
        ten.done("PUT", f"{PATH}/t/subscription/other", content=b'"earliest"')
        acknowledge(ten, "0-2,5,8-9")
        assert shown(ten) == ("3-4,6-7", None)
        assert shown(ten, "?subscription=other") == ("0-9", None)
        acknowledge(ten, "0-9")
        assert shown(ten.after_crash()) == ("", None)

    def test_sp3_for_all_subscriptions(self, ten: Admin) -> None:
        ten.done("PUT", f"{PATH}/t/subscription/other", content=b'"earliest"')
        ack(ten, 3, name="other")
        acknowledge(ten, "1-2", "*")
        assert [shown(ten.after_crash(), f"?subscription={name}")[0] for name in ("s", "other")] == ["0,3-9", "0,4-9"]

    def test_sp2_messages_of_batches(self, admin: Admin) -> None:
        admin.done("PUT", f"{PATH}/t/subscription/s")
        admin.publish("t", *[b"x"] * 2, batch=4)
        acknowledge(admin, "0.1-2,0.3,1.0-3")
        assert shown(admin) == ("0.0", None)
        acknowledge(admin, "0")
        assert shown(admin) == ("", None)

    def test_sp2_what_consumers_hold(self, ten: Admin) -> None:
        consumer = ten.subscribe("t", "s", permits=100)
        assert len(consumer.pending) == 10
        acknowledge(ten, "0-8")
        assert list(consumer.pending) == [9]

    def test_sp3_a_range_from_the_first_may_have_any_length(self, admin: Admin) -> None:
        admin.done("PUT", f"{PATH}/t/subscription/s")
        topic = topic_of(admin)
        topic.log.last = topic.log.confirmed = 1_000_000_000_000
        acknowledge(admin, "0-4,5-999999999999")
        assert shown(admin) == ("1000000000000", None)

    def test_bound_moved_messages_of_a_request(self, admin: Admin) -> None:
        admin.done("PUT", f"{PATH}/t/subscription/s")
        admin.done("PUT", f"{PATH}/t/subscription/other")
        topic = topic_of(admin)
        topic.log.last = topic.log.confirmed = MOVED_MESSAGES.limit + 1
        subscription(admin).advance(0)
        body = {"subscription": "*", "positions": f"{topic.ledger_id}:1-{MOVED_MESSAGES.limit + 1}"}
        assert "the limit is 100000" in admin.reason(412, "POST", ACKNOWLEDGE, json=body)
        assert shown(admin) == (f"1-{MOVED_MESSAGES.limit + 1}", None), "and nothing has changed"

    def test_bound_moved_ranges_of_a_request(self, ten: Admin) -> None:
        positions = ",".join(str(number * 2) for number in range(MOVED_RANGES.limit + 1))
        body = {"subscription": "s", "positions": f"{topic_of(ten).ledger_id}:{positions}"}
        assert "10001 ranges of positions, the limit is 10000" in ten.reason(412, "POST", ACKNOWLEDGE, json=body)

    @pytest.mark.parametrize(
        ("status", "body", "text"),
        [
            (400, None, "the request body is empty"),
            (400, {}, "positions"),
            (400, {"positions": "{}:1"}, "subscription"),
            (412, {"positions": "1", "subscription": "s"}, "do not begin with a ledger"),
            (412, {"positions": "{}:1,1", "subscription": "s"}, "position 1 does not come after 1"),
            (412, {"positions": "4711:1", "subscription": "s"}, "ledger 4711 is not one of topic"),
            (412, {"positions": "{}:10", "subscription": "s"}, "the last one is 9"),
            (404, {"positions": "{}:1", "subscription": "none"}, "subscription 'none' not found"),
            (412, {"positions": "{}:1", "subscription": "reader"}, "is not durable"),
        ],
    )
    def test_sp2_bad_requests(self, ten: Admin, status: int, body: dict[str, str] | None, text: str) -> None:
        ten.subscribe("t", "reader", durable=False)
        if body is not None:
            ledger_id = topic_of(ten).ledger_id
            body = {key: value.replace("{}", str(ledger_id)) for key, value in body.items()}
        assert text in ten.reason(status, "POST", ACKNOWLEDGE, json=body)
        assert shown(ten) == ("0-9", None)


class TestTopics:
    @pytest.mark.parametrize(("method", "path"), [("GET", "unacknowledged"), ("POST", "acknowledge")])
    def test_sp2_only_one_partition_at_a_time(self, admin: Admin, method: str, path: str) -> None:
        admin.done("PUT", f"{PATH}/p/partitions", json=3)
        body = {"json": {"subscription": "s", "positions": "1:1"}} if method == "POST" else {}
        text = admin.reason(405, method, f"{PATH}/p/{path}", **body)
        assert text.endswith("persistent://public/default/p-partition-0 to persistent://public/default/p-partition-2")
        admin.broker.topic(TopicName.parse("non-persistent://public/default/n"), create=True)
        text = admin.reason(405, method, f"/admin/v2/non-persistent/public/default/n/{path}", **body)
        assert "no positions" in text
        assert "Topic persistent://public/default/none not found" in admin.reason(
            404, method, f"{PATH}/none/{path}", **body
        )

    def test_sp3_nothing_can_acknowledge_without_a_subscription(self, admin: Admin) -> None:
        admin.publish("t", b"x")
        body = {"subscription": "*", "positions": f"{topic_of(admin).ledger_id}:0"}
        assert "has no durable subscription" in admin.reason(412, "POST", ACKNOWLEDGE, json=body)

    def test_sp3_all_subscriptions_are_only_for_those_who_may_use_each(
        self, ten: Admin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ten.done("PUT", f"{PATH}/t/subscription/private", content=b'"earliest"')

        def allows(self: Authorization, principal: object, rights: tuple[Right, ...]) -> bool:
            return all(right.subscription != "private" for right in rights)

        monkeypatch.setattr(Authorization, "allows", allows)
        body = {"subscription": "*", "positions": f"{topic_of(ten).ledger_id}:0"}
        assert "'private'" in ten.reason(403, "POST", ACKNOWLEDGE, json=body)
        assert shown(ten) == ("0-9", None)

"""SP3: redriving letters inside the broker by REST: what a request says, what is answered, and who may send it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from magnetar.access.principal import INTERNAL_ROLE
from magnetar.broker.moves.redrive import BrokerRedrive
from magnetar.broker.topic.persistent import PersistentTopic
from magnetar.broker.topic.topic import SubscribeRequest
from magnetar.names import TopicName
from magnetar.pipeline_bounds import (
    REDRIVE_TARGETS,
    REDRIVE_TIME,
    REDRIVE_WAITING,
    REDRIVEN_BYTES,
    REDRIVEN_PER_REQUEST,
    REDRIVEN_TOGETHER,
)
from magnetar.wire.metadata import payload_of
from tests.admin.driver import Admin
from tests.admin.roles import ADMIN, ROOT, ask, guarded, is_refused
from tests.admin.test_needs import permit
from tests.broker.moves.redriving import TARGET, letter

PATH = "/admin/v2/persistent/public/default/t-s-DLQ/redrive"
SOURCE = "persistent://public/default/t-s-DLQ"
TO_S = {"originTopic": TARGET, "originPartition": None, "originSubscription": "s", "topic": TARGET, "only": "s"}


def topic_of(admin: Admin, name: str) -> PersistentTopic:
    topic = admin.broker.topic(TopicName.parse(name), create=True)
    assert isinstance(topic, PersistentTopic)
    return topic


def subscribe(admin: Admin, name: str, topic: str) -> None:
    topic_of(admin, topic).create_subscription(SubscribeRequest(name, from_earliest=True))
    admin.commit()


def publish(admin: Admin, *blobs: bytes, source: str = SOURCE) -> None:
    producer = admin.publish(source)
    topic_of(admin, source).publish(producer, [(0, 0, 1, blob, False, False) for blob in blobs])
    admin.commit()


def with_letters(*blobs: bytes) -> Admin:
    admin = Admin()
    for name in ("s", "other"):
        subscribe(admin, name, TARGET)
    subscribe(admin, "handled", SOURCE)
    publish(admin, *blobs)
    return admin


def body(admin: Admin, **changes: Any) -> dict[str, Any]:
    """Of a request for all letters, to their origin for `s` only; without what is None."""
    topic = topic_of(admin, SOURCE)
    values = {
        "ledgerId": topic.ledger_id,
        "after": -1,
        "upTo": topic.log.confirmed,
        "letters": 1000,
        "maxGenerations": 3,
        "targets": [TO_S],
    }
    return {name: value for name, value in (values | changes).items() if value is not None}


def redrive(admin: Admin, **changes: Any) -> dict[str, Any]:
    response = admin("POST", PATH, json=body(admin, **changes))
    assert response.status_code == 200, response.text
    after = admin.after_crash()
    assert (left(after), topic_of(after, TARGET).log.last) == (left(admin), topic_of(admin, TARGET).log.last), "lost"
    found: dict[str, Any] = response.json()
    return found


def payloads(admin: Admin, topic: str = TARGET) -> list[bytes]:
    return [payload_of(blob) for _, _, _, blob in topic_of(admin, topic).log.read(0, 1 << 20, 1 << 40)]


def left(admin: Admin, subscription: str = "handled", topic: str = SOURCE) -> int:
    found = topic_of(admin, topic).subscription(subscription)
    assert found is not None
    return found.backlog


class TestResult:
    def test_sp3_letters_are_where_they_belong_and_durable(self) -> None:
        admin = with_letters(letter(b"0"), letter(b"1"))
        assert redrive(admin) == {"upTo": 1, "plain": True, "sent": [2], "kept": [0], "sentTo": 0, "unknown": []}
        after = admin.after_crash()
        assert (payloads(after), left(after)) == ([b"0", b"1"], 0)
        assert (left(after, "s", TARGET), left(after, "other", TARGET)) == (2, 0)

    def test_sp3_counts_are_in_the_order_of_the_targets(self) -> None:
        origins = [f"persistent://public/default/o{number}" for number in range(3)]
        blobs = [letter(topic=f"{origins[number]}-partition-1") for number in (1, 0, 1, 2, 1, 2)]
        admin = with_letters(*blobs)
        targets: list[dict[str, Any]] = [
            {"originTopic": origin, "originPartition": 1, "originSubscription": "s", "topic": TARGET}
            for origin in origins
        ]
        targets[2]["topic"] = ""
        found = redrive(admin, targets=targets)
        assert (found["sent"], found["kept"]) == ([1, 3, 0], [0, 0, 2])
        assert left(admin) == 2

    def test_sp3_unknown_origins_end_it(self) -> None:
        blobs = [letter(topic="u-partition-2"), letter(topic="", subscription=""), letter(topic="x")]
        admin = with_letters(letter(), *blobs)
        assert redrive(admin) == {
            "upTo": 0,
            "plain": True,
            "sent": [1],
            "kept": [0],
            "sentTo": 0,
            "unknown": [
                {"topic": "persistent://public/default/u", "partition": 2, "subscription": "s"},
                {"topic": "persistent://public/default/x", "partition": None, "subscription": "s"},
                {"topic": None, "partition": None, "subscription": None},
            ],
        }

    def test_sp3_letters_that_are_not_plain_end_it(self) -> None:
        admin = with_letters(letter(), letter(num_messages_in_batch=1), letter())
        found = redrive(admin)
        assert (found["upTo"], found["plain"], found["sent"]) == (0, False, [1])

    def test_sp3_others_go_to_one_topic(self) -> None:
        admin = with_letters(letter(b"0"), letter(b"1", topic="x"))
        topic_of(admin, "fix")
        found = redrive(admin, to="fix")
        assert (found["sent"], found["sentTo"], payloads(admin, "fix")) == ([1], 1, [b"1"])

    def test_sp3_short_names_are_those_of_the_default_namespace(self) -> None:
        admin = with_letters(letter(b"0"))
        assert redrive(admin, targets=[TO_S | {"topic": "t"}])["sent"] == [1]

    def test_sp3_a_part_of_the_letters(self) -> None:
        admin = with_letters(*[letter(b"%d" % number) for number in range(6)])
        assert redrive(admin, letters=2)["upTo"] == 1
        assert redrive(admin, after=1, upTo=3)["upTo"] == 3
        assert redrive(admin, after=3, publishedUntil=1)["sent"] == [0]
        assert (len(payloads(admin)), left(admin)) == (4, 2)

    def test_sp3_an_error_after_some_transactions_leaves_them_durable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        admin = with_letters(*[letter()] * (REDRIVEN_TOGETHER.limit + 1))
        turn = BrokerRedrive.turn

        def ending(run: BrokerRedrive) -> bool:
            is_more = turn(run)
            topic_of(admin, TARGET).terminate()
            return is_more

        monkeypatch.setattr(BrokerRedrive, "turn", ending)
        assert "was terminated" in admin.reason(409, "POST", PATH, json=body(admin))
        after = admin.after_crash()
        assert (len(payloads(after)), left(after)) == (REDRIVEN_TOGETHER.limit, 1)


class TestBody:
    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"ledgerId": None}, "ledgerId"),
            ({"after": None}, "after"),
            ({"upTo": None}, "upTo"),
            ({"letters": None}, "letters"),
            ({"maxGenerations": None}, "maxGenerations"),
            ({"after": -2}, "$.after"),
            ({"upTo": 1 << 63}, "$.upTo"),
            ({"letters": 0}, "$.letters"),
            ({"maxGenerations": 0}, "$.maxGenerations"),
            ({"publishedUntil": -1}, "$.publishedUntil"),
            ({"publishedUntil": "now"}, "$.publishedUntil"),
            ({"targets": {}}, "$.targets"),
            ({"targets": [TO_S | {"more": 1}]}, "more"),
            ({"targets": [{"originTopic": TARGET}]}, "originPartition"),
            ({"targets": [TO_S | {"originPartition": "one"}]}, "$.targets[0].originPartition"),
            ({"targets": [TO_S, TO_S | {"only": "other"}]}, "an origin occurs twice among the targets"),
            ({"to": {}}, "$.to"),
            ({"also": 1}, "also"),
        ],
        ids=str,
    )
    def test_sp3_what_is_wrong_is_named(self, changes: dict[str, Any], text: str) -> None:
        admin = with_letters(letter())
        assert text in admin.reason(400, "POST", PATH, json=body(admin, **changes))
        assert (payloads(admin), left(admin)) == ([], 1)

    @pytest.mark.parametrize("content", [b"", b"null", b" "])
    def test_sp3_an_empty_body(self, content: bytes) -> None:
        text = with_letters(letter()).reason(400, "POST", PATH, content=content)
        assert text == "the request body is empty: positions and targets are expected"

    @pytest.mark.parametrize(
        ("status", "changes", "text"),
        [
            (412, {"targets": [TO_S | {"topic": "a/b"}]}, "a/b"),
            (412, {"to": "bad://x"}, "bad://x"),
            (404, {"targets": [TO_S | {"topic": "none"}]}, "default/none not found"),
            (404, {"targets": [TO_S | {"only": "none"}]}, "subscription 'none' not found"),
            (412, {"targets": [TO_S | {"topic": "non-persistent://public/default/n"}]}, "is not persistent"),
            (412, {"ledgerId": 4711}, "ledger 4711 is not one of topic"),
        ],
        ids=str,
    )
    def test_sp3_what_does_not_exist_is_named(self, status: int, changes: dict[str, Any], text: str) -> None:
        admin = with_letters(letter())
        assert text in admin.reason(status, "POST", PATH, json=body(admin, **changes))
        assert (payloads(admin), left(admin)) == ([], 1)


class TestTopics:
    def test_sp3_only_one_partition_at_a_time(self) -> None:
        admin = with_letters()
        admin.done("PUT", "/admin/v2/persistent/public/default/p-DLQ/partitions", json=3)
        path = "/admin/v2/persistent/public/default/p-DLQ{}/redrive"
        text = admin.reason(405, "POST", path.format(""), json=body(admin))
        assert text == "Letters are redriven from one partition of persistent://public/default/p-DLQ at a time"
        ledger_id = topic_of(admin, "p-DLQ-partition-1").ledger_id
        subscribe(admin, "handled", "p-DLQ-partition-1")
        found = admin("POST", path.format("-partition-1"), json=body(admin, ledgerId=ledger_id))
        assert found.status_code == 200, found.text

    def test_sp3_neither_a_non_persistent_topic_nor_one_that_does_not_exist(self) -> None:
        admin = with_letters()
        admin.broker.topic(TopicName.parse("non-persistent://public/default/n"), create=True)
        path = "/admin/v2/{}/redrive"
        text = admin.reason(405, "POST", path.format("non-persistent/public/default/n"), json=body(admin))
        assert text == "A non-persistent topic has no letters"
        text = admin.reason(404, "POST", path.format("persistent/public/default/none"), json=body(admin))
        assert "Topic persistent://public/default/none not found" in text


class Waiting:
    """An alarm whose wait is one commit, or for a client that disconnects the end."""

    def __init__(self, admin: Admin, *, is_connected: bool = True) -> None:
        self.admin = admin
        self.is_connected = is_connected
        self.waited: list[int] = []
        self.rings = 0
        admin.app._alarm = lambda receive: self

    def ring(self) -> None:
        self.rings += 1

    async def wait(self, seconds: float) -> bool:
        self.waited.append(self.admin.broker.commits.waiting_bytes)
        if self.is_connected:
            self.admin.commit()
        return self.is_connected


class TestBounds:
    def test_bound_redriven_per_request_is_the_most_that_one_asks_for(self) -> None:
        admin, limit = with_letters(letter()), REDRIVEN_PER_REQUEST.limit
        assert f"<= {limit}" in admin.reason(400, "POST", PATH, json=body(admin, letters=limit + 1))
        assert redrive(admin, letters=limit)["sent"] == [1]

    def test_bound_redrive_targets_of_a_request(self) -> None:
        admin, limit = with_letters(letter()), REDRIVE_TARGETS.limit
        targets = [TO_S, *(TO_S | {"originTopic": f"o{number}"} for number in range(limit))]
        assert f"<= {limit}" in admin.reason(400, "POST", PATH, json=body(admin, targets=targets))
        assert redrive(admin, targets=targets[:limit])["sent"] == [1, *[0] * (limit - 1)]

    def test_bound_redrive_waiting_for_the_disk(self) -> None:
        size = REDRIVEN_BYTES.limit // 2
        count = 3 * REDRIVE_WAITING.limit // size
        admin = with_letters(*[letter(b"x" * size)] * count)
        waiting = Waiting(admin)
        assert redrive(admin)["sent"] == [count]
        assert len(waiting.waited) == waiting.rings == 3
        assert all(
            REDRIVE_WAITING.limit < found <= REDRIVE_WAITING.limit + 2 * REDRIVEN_BYTES.limit
            for found in waiting.waited
        )

    def test_sp3_a_client_that_disconnects_ends_it(self) -> None:
        """Otherwise letters would be copied without a bound on what waits for the disk."""
        size = REDRIVEN_BYTES.limit
        count = 3 * REDRIVE_WAITING.limit // size
        admin = with_letters(*[letter(b"x" * size)] * count)
        waiting = Waiting(admin, is_connected=False)
        found = redrive(admin)
        assert len(waiting.waited) == 1
        assert found["sent"] == [found["upTo"] + 1] and found["upTo"] < count / 2
        assert left(admin) == count - found["sent"][0]

    def test_bound_redrive_time_of_a_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        admin = with_letters(*[letter()] * (4 * REDRIVEN_TOGETHER.limit))
        turn = BrokerRedrive.turn

        def slow(run: BrokerRedrive) -> bool:
            admin.broker.clock.advance_ms(1000 * REDRIVE_TIME.limit // 2)  # type: ignore[attr-defined]
            return turn(run)

        monkeypatch.setattr(BrokerRedrive, "turn", slow)
        assert redrive(admin) == {
            "upTo": 2 * REDRIVEN_TOGETHER.limit - 1,
            "plain": True,
            "sent": [2 * REDRIVEN_TOGETHER.limit],
            "kept": [0],
            "sentTo": 0,
            "unknown": [],
        }


class TestRights:
    """Letters in namespace acme/n; `app` may consume them."""

    def prepared(self, **permissions: Any) -> Admin:
        admin = guarded()
        self.source, self.target = "persistent://acme/n/t-s-DLQ", "persistent://acme/n/t"
        subscribe(admin, "handled", self.source)
        publish(admin, letter(b"0", topic=self.target), source=self.source)
        given = {"topic_permissions": {self.source: {"app": ["consume"]}}} | permissions
        permit(admin, **given)
        return admin

    def ask(self, admin: Admin, role: str = "app", to: str = "", **target: Any) -> Any:
        topic = topic_of(admin, self.source)
        origin = {"originTopic": self.target, "originPartition": None, "originSubscription": "s"}
        content = {"ledgerId": topic.ledger_id, "after": -1, "upTo": 0, "letters": 1, "maxGenerations": 3, "to": to}
        sent = json.dumps(content | {"targets": [origin | target] if target else []}).encode()
        return ask(admin, role, "POST", "/admin/v2/persistent/acme/n/t-s-DLQ/redrive", sent)

    def test_sp3_consume_is_not_enough_to_send(self) -> None:
        admin = self.prepared()
        before = len(payloads(admin, self.target))
        for targets in ({"topic": self.target}, {"to": self.target}, {"topic": self.target, "only": "s"}):
            response = self.ask(admin, **targets)
            assert is_refused(response) and b"persistent://acme/n/t: needs produce" in response.body, targets
        assert (len(payloads(admin, self.target)), left(admin, topic=self.source)) == (before, 1)
        assert self.ask(admin, topic="").status == 200, "letters that stay need no right"

    def test_sp3_produce_on_each_target_and_consume_on_the_topic(self) -> None:
        admin = self.prepared()
        rights = {self.source: {"app": ["consume"]}, self.target: {"app": ["produce"]}}
        permit(admin, topic_permissions=rights)
        assert is_refused(self.ask(admin, topic=self.target, to="persistent://acme/n/many"))
        permit(admin, topic_permissions={self.target: {"app": ["produce"]}, self.source: {"app": ["produce"]}})
        assert is_refused(self.ask(admin, topic=self.target)), "without consume"
        permit(admin, topic_permissions=rights)
        response = self.ask(admin, topic=self.target)
        assert response.status == 200 and json.loads(response.body)["sent"] == [1]

    @pytest.mark.parametrize("role", [ROOT, ADMIN])
    def test_sp3_administrators_may(self, role: str) -> None:
        admin = self.prepared()
        assert self.ask(admin, role, topic=self.target).status == 200

    def test_sp3_another_tenant_needs_its_own_right(self) -> None:
        admin = self.prepared()
        response = self.ask(admin, ADMIN, topic="persistent://public/n/t")
        assert is_refused(response) and b"persistent://public/n/t: needs produce" in response.body

    def test_sp3_every_subscription_of_the_topic_is_for_this_role(self) -> None:
        admin = self.prepared(permissions={"app": ["produce", "consume"]}, subscription_permissions={"x": ["other"]})
        subscribe(admin, "x", self.source)
        response = self.ask(admin, topic=self.target)
        assert response.status == 403 and b"subscription 'x' of persistent://acme/n/t-s-DLQ" in response.body
        assert left(admin, topic=self.source) == 1
        permit(admin, subscription_permissions={"x": ["app"]})
        assert self.ask(admin, topic=self.target).status == 200

    def test_sp3_the_pipelines_process_sends_what_an_author_may_send(self) -> None:
        admin = self.prepared()
        assert is_refused(self.ask(admin, INTERNAL_ROLE, topic=self.target))
        spec = json.dumps({"verb": "redrive", "spec": {"sources": ["t-s-DLQ"]}}).encode()
        path = "/admin/v2/pipelines/acme/n/fix"
        assert ask(admin, ADMIN, "PUT", path, spec).status == 200
        assert is_refused(self.ask(admin, INTERNAL_ROLE, topic="persistent://public/n/t")), "another tenant"
        assert left(admin, topic=self.source) == 1
        assert self.ask(admin, INTERNAL_ROLE, topic=self.target).status == 200
        assert left(admin, topic=self.source) == 0
        publish(admin, letter(topic=self.target), source=self.source)
        assert ask(admin, ADMIN, "POST", f"{path}/cancel").status == 204
        assert is_refused(self.ask(admin, INTERNAL_ROLE, topic=self.target)), "the run is over"

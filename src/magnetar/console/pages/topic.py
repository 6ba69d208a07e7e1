"""One topic: its numbers, subscriptions and why they do not move, producers, partitions, policies and schema."""

from __future__ import annotations

from magnetar.console.layout.elements import TableColumn, badge, box, empty, fields, href, link_cell, table, text, tiles
from magnetar.console.layout.payload import preformatted
from magnetar.console.layout.units import NONE, count, counted, moment_of_ms, rate, size, throughput
from magnetar.console.layout.view import ConsoleView
from magnetar.console.pages.messages import show_messages
from magnetar.console.rest.delivery import reasons
from magnetar.console.rest.model import PartitionedStatsAnswer, SubscriptionAnswer, TopicSchema, TopicStatsAnswer
from magnetar.console.rest.topic import parsed, policies_of, schema_of, segments_of, stats_of
from magnetar.names import TopicName

_SHOWN_MAX = 50
_PARTITIONS_MAX = 200


def title(view: ConsoleView) -> str:
    path = view.path
    return f"{path['tenant']}/{path['namespace']}/{path['topic']}"


def show(view: ConsoleView) -> None:
    path = view.path
    topic = parsed(path["domain"], path["tenant"], path["namespace"], path["topic"])
    if topic is None:
        empty("There is no topic of this name", "A name has the form tenant/namespace/topic.")
        return
    view.part(lambda: stats_of(view.api, topic), lambda found: _stats(view, topic, found))
    if topic.is_persistent:
        text("h2", "Messages", id="messages")
        show_messages(view, topic)
    text("h2", "Policies in force")
    view.part(lambda: policies_of(view.api, topic), _policies)
    text("h2", "Schema")
    view.part(lambda: schema_of(view.api, topic), lambda found: _schema(view, found))


def address_of(topic: TopicName) -> str:
    return href("topics", *segments_of(topic))


def _stats(view: ConsoleView, topic: TopicName, found: TopicStatsAnswer) -> None:
    if found.damaged:
        text("p", f"Damaged: {found.damaged}", "note")
    if not topic.is_persistent:
        text("p", "Not persistent: messages are delivered to connected consumers and never stored.", "hint")
    tiles(
        (
            ("Messages in", rate(found.msg_rate_in), ""),
            ("Messages out", rate(found.msg_rate_out), ""),
            ("Bytes in", throughput(found.msg_throughput_in), ""),
            ("Bytes out", throughput(found.msg_throughput_out), ""),
            ("Stored", size(found.storage_size), ""),
            ("Received", counted(found.msg_in_counter, "message"), ""),
        )
    )
    text("h2", f"Subscriptions ({len(found.subscriptions):,})")
    if not found.subscriptions:
        name = f"{topic.tenant}/{topic.namespace}/{topic.local}"
        hint = "Messages are kept for a subscription. Consume to create one:"
        empty("There are no subscriptions", hint, f"magnetar messages consume {name} --subscription NAME")
    for name, one in sorted(found.subscriptions.items(), key=lambda pair: -pair[1].msg_backlog)[:_SHOWN_MAX]:
        _subscription(view, name, one)
    _left_out(len(found.subscriptions), "subscription", _SHOWN_MAX)
    _producers(view, found)
    if isinstance(found, PartitionedStatsAnswer):
        _partitions(topic, found)


def _subscription(view: ConsoleView, name: str, one: SubscriptionAnswer) -> None:
    with box("section", "card", aria_label=f"Subscription {name}"):
        with box("h3"):
            text("span", name)
            badge(one.type if one.type not in ("", "None") else "no consumer yet")
        for reason in reasons(one):
            text("p", reason, "note")
        fields(
            (
                ("Backlog", counted(one.msg_backlog, "message")),
                ("Unacknowledged", counted(one.unacked_messages, "message")),
                *((("Delayed", counted(one.msg_delayed, "message")),) if one.msg_delayed else ()),
                *((("Durable", "no"),) if not one.is_durable else ()),
                *((f"Dead letters, {reason}", counted(n, "message")) for reason, n in one.dead_lettered.items()),
                ("Delivered", rate(one.msg_rate_out)),
            )
        )
        if one.consumers:
            _consumers(view, name, one)


def _consumers(view: ConsoleView, name: str, one: SubscriptionAnswer) -> None:
    columns = (
        TableColumn("Consumer"),
        TableColumn("Address"),
        TableColumn("Connected since"),
        *(TableColumn(heading, is_number=True) for heading in ("Out", "Unacknowledged", "Permits")),
    )
    rows = [
        (
            _consumer_name(consumer.consumer_name, one.active_consumer_name),
            consumer.address,
            view.moment(consumer.connected_since),
            rate(consumer.msg_rate_out),
            counted(consumer.unacked_messages, "message"),
            count(consumer.available_permits),
        )
        for consumer in one.consumers[:_SHOWN_MAX]
    ]
    table(f"Consumers of {name}", columns, rows)
    _left_out(len(one.consumers), "consumer", _SHOWN_MAX)


def _consumer_name(name: str, active: str) -> str:
    return f"{name} (active)" if name and name == active else name or NONE


def _producers(view: ConsoleView, found: TopicStatsAnswer) -> None:
    text("h2", f"Producers ({len(found.publishers):,})")
    if not found.publishers:
        text("p", "No producer is connected.", "hint")
        return
    columns = (
        TableColumn("Producer"),
        TableColumn("Address"),
        TableColumn("Connected since"),
        TableColumn("Client"),
        TableColumn("In", True),
    )
    rows = [
        (one.producer_name, one.address, view.moment(one.connected_since), one.client_version, rate(one.msg_rate_in))
        for one in found.publishers[:_SHOWN_MAX]
    ]
    table("Producers", columns, rows)
    _left_out(len(found.publishers), "producer", _SHOWN_MAX)


def _partitions(topic: TopicName, found: PartitionedStatsAnswer) -> None:
    text("h2", f"Partitions ({found.metadata.partitions:,})")
    columns = (
        TableColumn("Partition"),
        *(TableColumn(name, is_number=True) for name in ("In", "Out", "Stored", "Backlog")),
    )
    rows = []
    for index in range(min(found.metadata.partitions, _PARTITIONS_MAX)):
        name = topic.with_partition(index)
        one = found.partitions.get(name.full, TopicStatsAnswer())
        backlog = sum(subscription.msg_backlog for subscription in one.subscriptions.values())
        cells = (rate(one.msg_rate_in), rate(one.msg_rate_out), size(one.storage_size), counted(backlog, "message"))
        rows.append((link_cell(f"partition {index}", address_of(name)), *cells))
    table("Partitions", columns, rows)
    _left_out(found.metadata.partitions, "partition", _PARTITIONS_MAX)


def _left_out(number: int, noun: str, limit: int) -> None:
    if number > limit:
        text("p", f"{counted(number - limit, f'further {noun}')} not shown.", "hint")


def _policies(found: list[tuple[str, str]]) -> None:
    if not found:
        text(
            "p",
            "None that this role may see: messages are deleted when every subscription has acknowledged them.",
            "hint",
        )
        return
    fields(found)


def _schema(view: ConsoleView, found: TopicSchema | None) -> None:
    if found is None:
        text("p", "None: messages are bytes. The first producer with a schema registers one.", "hint")
        return
    created = moment_of_ms(found.timestamp, view.session.zone)
    fields((("Type", found.type), ("Version", count(found.version)), ("Registered", created)))
    if found.data:
        preformatted(found.data, "Definition of the schema")

"""The shop of the tour: orders that are published, and the program that bills them. Some orders are broken.

Every tenth order has its amount as text, which billing cannot read; one order ends the process that reads it. Owns what
an order and an invoice are. As a program, `python -m magnetar.cli.tour.shop URL`, it bills orders until it is stopped.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator

from magnetar.client import EARLIEST, Client
from magnetar.client.errors import ClientError, Timeout

ORDERS, BILLING, INVOICES = "orders", "billing", "invoices"
POISONED = 123
"""The order that no process survives."""

_BROKEN_EVERY = 10
_PER_SECOND = 60
_WAIT_S = 1.0
_QUEUE = 20


def is_broken(number: int) -> bool:
    return number % _BROKEN_EVERY == 3 and number != POISONED


def orders(count: int) -> Iterator[dict[str, object]]:
    for number in range(count):
        amount = float(number) + 0.5
        order: dict[str, object] = {"id": number, "customer": f"c{number % 7}", "amount": amount}
        if is_broken(number):
            order["amount"] = f"{amount} EUR"
        if number == POISONED:
            order["kind"] = "poison"
        yield order


def publish(url: str, count: int) -> None:
    """At a steady rate, so that there is something to watch."""
    with Client(url) as client, client.producer(ORDERS, batch_messages_max=1) as producer:
        for order in orders(count):
            producer.send_async(json.dumps(order).encode(), key=str(order["customer"]))
            time.sleep(1 / _PER_SECOND)


def invoiced(url: str) -> list[int]:
    """The ids of orders in all invoices so far."""
    with Client(url) as client, client.reader(INVOICES, EARLIEST, create_topic=True) as reader:
        found: list[int] = []
        while reader.has_next():
            found.append(json.loads(reader.read(timeout_s=_WAIT_S).value)["order"])
        return found


def bill(url: str) -> None:
    """Sends an invoice for each order; what cannot be billed is returned to the broker."""
    with (
        Client(url) as client,
        client.producer(INVOICES) as invoices,
        client.consumer(
            ORDERS, BILLING, subscription_type="Shared", initial_position=EARLIEST, queue_size=_QUEUE
        ) as consumer,
    ):
        while True:
            try:
                message = consumer.receive(timeout_s=_WAIT_S)
            except Timeout:
                continue
            order = json.loads(message.value or b"{}")
            if order.get("kind") == "poison":
                os._exit(1)  # as a process does that runs out of memory
            try:
                cents = round(order["amount"] * 100)
            except TypeError:
                consumer.negative_acknowledge(message)
                continue
            invoices.send(json.dumps({"order": order["id"], "cents": cents}).encode())
            consumer.acknowledge(message)


def main() -> None:
    try:
        bill(sys.argv[1])
    except ClientError as error:
        sys.exit(f"billing ends: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()

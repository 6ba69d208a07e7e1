"""Orders are checked, enriched and archived; a bad one becomes a dead letter with its payload, exactly once.

python examples/orders_pipeline.py customers.json --url http://127.0.0.1:8080 --checkpoint checkpoints/orders
"""

from __future__ import annotations

import argparse

import magnetar.spark

RULES = {
    "AmountNotPositive": "amount is null or amount <= 0",
    "UnknownCustomer": "name is null",
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("customers", help="JSON lines with customer, name and country")
    arguments.add_argument("--url", default="http://127.0.0.1:8080", help="HTTP or service URL of the broker")
    arguments.add_argument("--checkpoint", default="checkpoints/orders")
    arguments.add_argument("--archive", default="archive/orders")
    given = arguments.parse_args()

    spark = magnetar.spark.session(app_name="orders")
    orders = spark.readStream.format("pulsar").options(
        **{"service.url": given.url, "topic": "orders", "startingOffsets": "earliest"},
        predefinedSubscription="etl",
        onUnreadable="row",
        columns="*,__payload,__messageIdText",
    )
    customers = spark.read.json(given.customers)
    good, bad = magnetar.spark.split(orders.load().join(customers, "customer", "left"), RULES)
    pipeline = magnetar.spark.pipeline(spark, checkpoint=given.checkpoint)
    pipeline.to("orders-enriched", good, schema="json").dead_letters("orders-etl-DLQ", bad)
    pipeline.archive(given.archive, partition_by="day").run_available_now()


if __name__ == "__main__":
    main()

"""Orders are checked and enriched; a bad one becomes a dead letter with its payload and the reason, exactly once.

python examples/orders_pipeline.py customers.json --url http://127.0.0.1:8080 --checkpoint checkpoints/orders
"""

from __future__ import annotations

import argparse

import magnetar.spark

ROUTED = """
    with checked as (
        select /*+ broadcast(customers) */ *,
               case when __error is not null then 'Unreadable'
                    when amount is null or amount <= 0 then 'AmountNotPositive'
                    when name is null then 'UnknownCustomer' end as reason
        from orders left join customers using (customer))
    select __messageId, __topic as __sourceTopic, __key, __eventTime,
           if(reason is null, 'orders-enriched', 'orders-etl-DLQ') as __topic,
           if(reason is null, cast(to_json(struct(id, customer, amount, name, country)) as binary), __payload) as value,
           if(reason is null, __messageProperties, map_concat(__messageProperties, map(
               'REAL_TOPIC', __topic, 'REAL_SUBSCRIPTION', 'etl', 'ORIGIN_MESSAGE_ID', __messageIdText,
               'DEATH_REASON', reason, 'DEATH_DESCRIPTION', coalesce(__error, 'rejected by a rule')
           ))) as __messageProperties
    from checked
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("customers", help="JSON lines with customer, name and country")
    arguments.add_argument("--url", default="http://127.0.0.1:8080", help="HTTP or service URL of the broker")
    arguments.add_argument("--checkpoint", default="checkpoints/orders")
    given = arguments.parse_args()

    spark = magnetar.spark.session(app_name="orders")
    broker = {"service.url": given.url}
    orders = spark.readStream.format("pulsar").options(**broker, topic="orders", startingOffsets="earliest")
    orders = orders.options(onUnreadable="row", columns="*,__payload,__messageIdText")
    orders.load().createOrReplaceTempView("orders")
    spark.read.json(given.customers).createOrReplaceTempView("customers")
    routed = spark.sql(ROUTED).writeStream.format("pulsar").trigger(availableNow=True)
    routed.options(**broker, exactlyOnce="required", checkpointLocation=given.checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()

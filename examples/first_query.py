"""Writes a thousand orders to a topic and queries them with SQL.

python examples/first_query.py --url pulsar://127.0.0.1:6650
"""

from __future__ import annotations

import argparse

import magnetar.spark


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--url", default="pulsar://127.0.0.1:6650", help="service URL of the broker")
    arguments.add_argument("--master", help="Spark master (default: this machine)")
    arguments.add_argument("--topic", default="first-query", help="topic to which the rows are appended")
    given = arguments.parse_args()

    spark = magnetar.spark.session(given.master, "first query")
    options = {"service.url": given.url, "topic": given.topic}

    orders = spark.range(1000).selectExpr(
        "concat('order ', id) as value",
        "concat('customer-', id % 7) as __key",
        "map('state', if(id % 3 = 0, 'paid', 'open')) as __messageProperties",
    )
    orders.write.format("pulsar").mode("append").options(**options).save()

    spark.read.format("pulsar").options(**options).load().createOrReplaceTempView("orders")
    spark.sql("""
        select cast(__key as string) as customer,
               count(*) as orders,
               count_if(__messageProperties['state'] = 'paid') as paid,
               max(__publishTime) as latest
        from orders
        group by customer
        order by customer
    """).show(truncate=False)


if __name__ == "__main__":
    main()

"""The job of `dead_letter_sql.py`, in its own process: publishes dead letters, then queries them.

Prints a line of JSON: seconds of both queries, and the letters that the first one counted.
"""

from __future__ import annotations

import sys
import time

from pyspark.sql import Row, SparkSession
from spark_job import report

import magnetar.spark
from magnetar.client import Client
from magnetar.deadletter.fingerprint import fingerprint
from magnetar.deadletter.properties import FailureRecord
from magnetar.deadletter.stamp import Raised, stamped

_WARM_LETTERS = 10_000
_TASKS = "8"
_KINDS = 200  # different properties
_PAYLOAD = b'{"id": %d, "customer": "c%d", "amount": 12.5}'

REASONS = "select reason, count(*) as letters from letters group by reason"
CAUSES = """
    select topic, subscription, reason, exception, fingerprint, date_trunc('hour', published) as hour, count(*) as n
    from letters group by all order by n desc
"""


def main() -> None:
    url, admin_url, warm, topic, letters = sys.argv[2:]
    publish(url, warm, _WARM_LETTERS)
    publish(url, topic, int(letters))
    with magnetar.spark.session() as spark:
        addresses = {"service.url": url, "admin.url": admin_url}
        asked(spark, warm, CAUSES, addresses)
        reasons_s, rows = asked(spark, topic, REASONS, addresses)
        causes_s, _ = asked(spark, topic, CAUSES, addresses)
        report(reasons_s=reasons_s, causes_s=causes_s, letters=sum(row.letters for row in rows))


def asked(spark: SparkSession, topic: str, query: str, addresses: dict[str, str]) -> tuple[float, list[Row]]:
    """Seconds and rows, with the discovery of what waits and the columns that the query names."""
    names = ("topic", "subscription", "reason", "exception", "fingerprint", "published")
    columns = [name for name in names if name in query]
    began = time.perf_counter()
    letters = magnetar.spark.deadletters(spark, topic, columns=columns, minPartitions=_TASKS, **addresses)
    letters.createOrReplaceTempView("letters")
    rows = spark.sql(query).collect()
    return time.perf_counter() - began, rows


def publish(url: str, topic: str, letters: int) -> None:
    kinds = [properties(number) for number in range(_KINDS)]
    with Client(url) as client, client.producer(topic, batching=False) as producer:
        for number in range(letters):
            sent = producer.send_async(
                _PAYLOAD % (number, number % 1000), key=f"c{number % 1000}", properties=kinds[number % _KINDS]
            )
        sent.result()


def properties(number: int) -> dict[str, str]:
    """Of a message that failed in a pipeline, with a stack trace, or at its consumers."""
    is_raised = number % 2 == 0
    text = f"no price for item {number}"
    trace = "Traceback (most recent call last):\n" + '  File "billing.py", line 12, in charge\n' * 8
    found = Raised("billing.NoPrice", text, trace, fingerprint("billing.NoPrice", text, ["billing:charge"]))
    failure = FailureRecord(
        topic=f"persistent://public/default/orders-{number % 5}",
        subscription="billing",
        reason="ProcessingFailed" if is_raised else "MaxRedeliveries",
        count=4,
        first=1_700_000_000_000,
        last=1_700_000_060_000,
        consumer="worker-1",
        error="" if is_raised else f"ValueError: amount {number} is negative",
    )
    return stamped({}, failure, f"12:{number}:-1", "failed 4 times", found if is_raised else None)


if __name__ == "__main__":
    main()

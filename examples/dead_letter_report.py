"""Dead letters of a namespace by topic, subscription and reason.

python examples/dead_letter_report.py --url pulsar://127.0.0.1:6650 --since 2026-11-15T22:00:00Z
"""

from __future__ import annotations

import argparse

import magnetar.spark

REPORT = """
    select __messageProperties['REAL_TOPIC'] as topic,
           __messageProperties['REAL_SUBSCRIPTION'] as subscription,
           coalesce(__messageProperties['DEATH_REASON'], 'Client') as reason,
           count(*) as dead_letters,
           min(__publishTime) as first,
           max(__publishTime) as last,
           max_by(__messageProperties['DEATH_DESCRIPTION'], __publishTime) as latest
    from dead_letters
    group by all
    order by dead_letters desc, topic, subscription
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--url", default="pulsar://127.0.0.1:6650", help="service URL of the broker")
    arguments.add_argument("--master", help="Spark master (default: this machine)")
    arguments.add_argument("--namespace", default="public/default")
    arguments.add_argument("--since", default="earliest", help="ignore dead letters before this time (ISO 8601)")
    given = arguments.parse_args()

    spark = magnetar.spark.session(given.master, "dead letters")
    dead_letters = spark.read.format("pulsar").options(
        **{
            "service.url": given.url,
            "topicsPattern": f"{given.namespace}/.*-DLQ",
            "startingOffsets": given.since,
            "columns": "__publishTime,__messageProperties",
            "decode": "raw",
        }
    )
    dead_letters.load().createOrReplaceTempView("dead_letters")
    spark.sql(REPORT).show(1000, truncate=False)


if __name__ == "__main__":
    main()

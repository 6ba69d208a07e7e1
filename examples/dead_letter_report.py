"""Dead letters of a namespace by topic, subscription and reason.

python examples/dead_letter_report.py --url http://127.0.0.1:8080 --since 2026-11-15T22:00:00Z
"""

from __future__ import annotations

import argparse

import magnetar.spark

COLUMNS = ["topic", "subscription", "reason", "description", "error", "published"]
REPORT = """
    select topic, subscription, reason, count(*) as dead_letters,
           min(published) as first, max(published) as last,
           max_by(coalesce(description, error), published) as latest
    from dead_letters
    group by topic, subscription, reason
    order by dead_letters desc, topic, subscription
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--url", default="http://127.0.0.1:8080", help="HTTP or binary address of the broker")
    arguments.add_argument("--master", help="Spark master (default: this machine)")
    arguments.add_argument("--namespace", default="public/default")
    arguments.add_argument("--since", default="earliest", help="ignore dead letters before this time (ISO 8601)")
    given = arguments.parse_args()

    spark = magnetar.spark.session(given.master, "dead letters")
    dead_letters = magnetar.spark.deadletters(
        spark,
        given.namespace,
        handled=not given.url.startswith("http"),  # what waits is known by HTTP
        columns=COLUMNS,
        service_url=given.url,
        startingOffsets=given.since,
    )
    dead_letters.createOrReplaceTempView("dead_letters")
    spark.sql(REPORT).show(1000, truncate=False)


if __name__ == "__main__":
    main()

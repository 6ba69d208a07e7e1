"""Copies a topic, or the messages of it that satisfy an SQL expression, to another topic exactly once.

python examples/stream_copy.py orders paid-orders --where "__messageProperties['state'] = 'paid'" --checkpoint copy

The target must have deduplication enabled. The program runs until interrupted, and resumes when restarted with the same
checkpoint; with --once it copies the existing messages and exits.
"""

from __future__ import annotations

import argparse

import magnetar.spark


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("source", help="source topic")
    arguments.add_argument("target", help="target topic")
    arguments.add_argument("--url", default="pulsar://127.0.0.1:6650", help="service URL of the broker")
    arguments.add_argument("--admin-url", default="http://127.0.0.1:8080", help="HTTP URL of the broker")
    arguments.add_argument("--master", help="Spark master (default: this machine)")
    arguments.add_argument("--checkpoint", required=True, help="checkpoint folder: the progress of the copy")
    arguments.add_argument("--where", default="true", help="SQL condition on the messages (default: all)")
    arguments.add_argument("--once", action="store_true", help="exit after copying the existing messages")
    given = arguments.parse_args()

    spark = magnetar.spark.session(given.master, "stream copy")
    source = {"service.url": given.url, "topic": given.source, "startingOffsets": "earliest", "decode": "raw"}
    target = {"service.url": given.url, "admin.url": given.admin_url, "topic": given.target, "exactlyOnce": "required"}

    rows = spark.readStream.format("pulsar").options(**source).load().where(given.where)
    writer = rows.writeStream.format("pulsar").options(**target, checkpointLocation=given.checkpoint)
    query = (writer.trigger(availableNow=True) if given.once else writer).start()
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    copied = sum(progress["numInputRows"] for progress in query.recentProgress)
    print(f"read {copied} messages of {given.source}")


if __name__ == "__main__":
    main()

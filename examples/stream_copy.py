"""Copies a topic to another one, or the messages of it that an expression of SQL is true for, exactly once.

python examples/stream_copy.py orders paid-orders --where "__messageProperties['state'] = 'paid'" --checkpoint copy

The target has to deduplicate. The program runs until it is interrupted, and goes on where it was when it is started
again with the same checkpoint; with --once it copies what is there and ends.
"""

from __future__ import annotations

import argparse

import magnetar.spark


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("source", help="the topic to read")
    arguments.add_argument("target", help="the topic to write to")
    arguments.add_argument("--url", default="pulsar://127.0.0.1:6650", help="the broker")
    arguments.add_argument("--master", help="where Spark runs (default: this machine)")
    arguments.add_argument("--checkpoint", required=True, help="a folder that says how far the copy is")
    arguments.add_argument("--where", default="true", help="which messages (default: all)")
    arguments.add_argument("--once", action="store_true", help="end when everything that is there now is copied")
    given = arguments.parse_args()

    spark = magnetar.spark.session(given.master, "stream copy")
    source = {"service.url": given.url, "topic": given.source, "startingOffsets": "earliest", "decode": "raw"}
    target = {"service.url": given.url, "topic": given.target, "exactlyOnce": "required"}

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

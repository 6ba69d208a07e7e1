"""Bounds: the limit of every queue, cache, name and request of the broker, with what happens beyond it.

The set is closed: the table of docs/reliability.md is generated from it, and each row has a test, whose name begins
with `test_bound_` and the words of the row's name. Code that enforces a limit reads it here, or from its setting.
"""

from __future__ import annotations

from typing import NamedTuple


class Bound(NamedTuple):
    """`limit` is the number itself; where a setting decides, it is 0 and `setting` has its name."""

    name: str
    what: str
    limit: int
    unit: str
    beyond: str
    setting: str = ""


def _by_setting(name: str, what: str, setting: str, beyond: str) -> Bound:
    return Bound(name, what, 0, "", beyond, setting)


# -- connections and frames

# -- names, numbers and maps in commands

NAME_SIZE = Bound(
    "name-size",
    "a name in a command: of a producer, consumer, subscription, listener, client version …",
    1024,
    "bytes",
    "the request is refused",
)
TEXT_SIZE = Bound(
    "text-size", "a pattern of topics, or authentication data as text, in a command", 64 << 10, "bytes", "refused"
)
MAP_SIZE = Bound(
    "map-size",
    "metadata of a producer or consumer, properties of a subscription, schema or lookup: keys and values together",
    64 << 10,
    "bytes",
    "the request is refused",
)
NUMBER = Bound(
    "number",
    "an id, epoch or sequence id: a signed number of 64 bits for clients in Java",
    (1 << 63) - 1,
    "",
    "the request or message is refused; -1 stands for the earliest message where the protocol has it",
)
IDS_PER_COMMAND = Bound(
    "ids-per-command",
    "message ids in one acknowledgement or negative acknowledgement",
    100_000,
    "",
    "the connection is closed with the reason",
)
PAIRS_PER_COMMAND = Bound(
    "pairs-per-command", "pairs in a map of a command", 10_000, "", "the connection is closed with the reason"
)
COMMAND_SIZE = Bound(
    "command-size",
    "a command without the message that follows it",
    2 << 20,
    "bytes",
    "the connection is closed with the reason; nothing is parsed",
)

# -- batches and what is made of them

MESSAGES_READ = Bound(
    "messages-read",
    "messages of a batch that is opened",
    100_000,
    "messages",
    "the entry is unreadable: it is delivered, dead-lettered and shown as a whole",
)
MESSAGES_SPLIT = Bound(
    "messages-split",
    "messages of a failed batch that are delivered and dead-lettered one by one",
    10_000,
    "messages",
    "the batch stays whole",
)
BYTES_SPLIT = Bound(
    "bytes-split",
    "bytes of a batch that is taken apart, uncompressed, and of what is made of it",
    32 << 20,
    "bytes",
    "the batch stays whole",
)
MESSAGES_PER_BATCH = Bound(
    "messages-per-batch",
    "messages in a batch; command and metadata must agree on them",
    100_000,
    "",
    "the batch is refused with SEND_ERROR",
)

# -- topics, subscriptions and their state

PRODUCERS_WAITING = Bound(
    "producers-waiting",
    "producers that wait for exclusive access to a topic",
    1000,
    "producers",
    "another is refused with ProducerBusy",
)
SUBSCRIBE_RATE_BUCKETS = Bound(
    "subscribe-rate-buckets",
    "Consumers whose rate of subscribing is remembered, per topic with a subscribe rate",
    10_000,
    "consumers",
    "the one that subscribed longest ago is forgotten, and begins with a full rate",
)

# -- storage and disk

UNSYNCED_WAIT = Bound(
    "unsynced-acks", "Time until plain acks are synced, if nothing else is", 1000, "ms", "they are synced by themselves"
)
SEQUENCE_MARK = Bound(
    "sequence-mark",
    "Age of the record of what is on disk",
    1000,
    "ms",
    "it is written again; older losses are found",
)
COMMIT_WAIT_WARNED = Bound(
    "late-commit", "Time that the disk takes for a group of changes", 30, "s", "a line in the log; health says no"
)
COMMIT_WAIT = Bound("hanging-commit", "Time that the disk takes at most", 120, "s", "the broker ends with the reason")
LAST_COMMIT_WAIT = Bound(
    "last-commit",
    "Time for the last changes of a broker that stops",
    4,
    "s",
    "it ends without them; none is acknowledged",
)
STOP_WAIT = Bound("stop", "Time that a stop takes, whatever hangs", 10, "s", "the process ends with exit code 1")

# -- administration

BACKUPS = Bound("backups", "checkpoints for a backup", 1, "", "refused with 409 until it is removed")
SUBSCRIPTION_DISPATCH_RATES = Bound(
    "subscription-dispatch-rates",
    "Subscriptions of a topic with a dispatch rate of their own",
    1000,
    "subscriptions",
    "another one is refused",
)

BOUNDS: tuple[Bound, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Bound))
"""Every bound, in the order of the reference page."""

"""Bounds: the limit of every queue, cache, name and request of the broker, with what happens beyond it.

The set is closed: the table of docs/reliability.md is generated from it, and each row has a test, whose name begins
with `test_bound_` and the words of the row's name. Code that enforces a limit reads it here, or from its setting;
most of those that a setting decides are in `setting_bounds`, those of logins and permissions in `access_bounds`.
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

CLOSED_PRODUCERS = Bound(
    "closed-producers",
    "closed producers of a connection whose last messages are dropped",
    1000,
    "producers",
    "the oldest is forgotten: a message of it closes the connection",
)
TURN = Bound(
    "commands-per-turn",
    "acknowledgements and permits of one connection in one turn of the event loop; other commands count tenfold, and"
    " SEND not at all",
    1000,
    "",
    "the rest waits for the next turn, after the other connections",
)
DESCRIPTORS_KEPT = Bound(
    "descriptors-kept",
    "file descriptors that no connection gets: 512 for RocksDB, the others for logs, pipes and connections that are"
    " being refused",
    768,
    "",
    "connections are refused; a quarter of the rest is for HTTP",
)
ACCEPTED_PER_TURN = Bound(
    "accepted-per-turn", "new connections in one turn of the event loop", 64, "", "the next turn takes them"
)
HANDSHAKE_WAIT = Bound(
    "handshake",
    "time until a client has sent CONNECT, and for the handshake of TLS",
    10,
    "s",
    "it gets the reason, unless it is the one of TLS, and is disconnected",
)
HANDLES_PER_CONNECTION = Bound(
    "handles-per-connection", "producers of a connection, and consumers", 10_000, "each", "refused"
)
HANDLE_BYTES = Bound(
    "handle-bytes",
    "names and metadata of all producers and consumers of a connection",
    16 << 20,
    "bytes",
    "another one is refused",
)
FIRST_FRAME = Bound(
    "first-frames",
    "a frame before the client is connected",
    64 << 10,
    "bytes",
    "the connection is closed with the reason",
)
OUTBOX = Bound(
    "outbox", "the outbox of a connection", 2 << 20, "bytes", "its consumers wait, and its requests, until it is read"
)
CLOSING = Bound(
    "closing",
    "time until a closed connection ends, for answers that its client has yet to read",
    10,
    "s",
    "it is cut off",
)
ANSWERS = Bound(
    "answers-not-read",
    "answers that a client does not read, beside the outbox of its socket",
    2 << 20,
    "bytes",
    "nothing more is read from it until it reads; without any progress for two keep-alive intervals it is disconnected",
)

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
    "metadata of a producer or consumer; properties of a subscription, topic, namespace, schema or lookup: keys and"
    " values together",
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
TOPIC_NAME = Bound("topic-name", "the full name of a topic", 1024, "bytes", "refused")
SUBSCRIPTION_NAME = Bound("subscription-name", "the name of a subscription", 1024, "bytes", "refused")
PARSED_NAMES = Bound(
    "parsed-names", "parsed topic names in memory", 4096, "names", "the least recently used is parsed again"
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
UNCOMPRESSED_SIZE = Bound(
    "uncompressed-size",
    "bytes of a compressed entry that is opened as a whole",
    256 << 20,
    "bytes",
    "the entry stays closed: shown as unreadable",
)

# -- topics, subscriptions and their state

TOPICS_OF_NAMESPACE = _by_setting(
    "topics-of-namespace", "topics of a namespace, with partitions", "maxTopicsPerNamespace", "another is refused"
)
SUBSCRIPTIONS_OF_TOPIC = _by_setting(
    "subscriptions-of-topic", "subscriptions of a topic", "maxSubscriptionsPerTopic", "another is refused"
)
CONSUMERS_OF_SUBSCRIPTION = _by_setting(
    "consumers-of-subscription",
    "connected consumers of a subscription",
    "maxConsumersPerSubscription",
    "another is refused with ConsumerBusy",
)
PRODUCERS_REMEMBERED = _by_setting(
    "producers-remembered",
    "producers whose highest sequence id a topic remembers, for deduplication and from each kind of replication",
    "brokerDeduplicationMaxNumberOfProducers",
    "the longest idle one is forgotten",
)
INBOUND_SOURCES = Bound(
    "inbound-sources",
    "clusters whose replicated messages a topic counts separately",
    64,
    "clusters",
    "others are counted together",
)
LETTERS_OF_MESSAGE = Bound(
    "letters-of-message",
    "dead letters and retries of a message that is not acknowledged, which a client published and must not repeat",
    64,
    "hashes",
    "the oldest is forgotten: repeated, it is stored again",
)
LETTERS_OF_BATCH = Bound(
    "letters-of-batch",
    "the same of all messages of a batch",
    1000,
    "hashes",
    "the oldest is forgotten: repeated, it is stored again",
)
INDEX_COUNTS = Bound(
    "index-counts",
    "failure counts of single messages of batches that a subscription keeps in memory",
    100_000,
    "counts",
    "they are read from disk when needed; a subscription that is not durable forgets them",
)
ERRORS_OF_ENTRY = Bound(
    "errors-of-entry", "error texts of applications for the messages of one batch", 100, "texts", "refused with 412"
)
SUSPECTS_OF_CRASH = Bound(
    "suspects-of-crash",
    "unacknowledged entries of a consumer that crashed which become suspects, the first ones first",
    10_000,
    "entries",
    "the others are only delivered again",
)
PRODUCERS_WAITING = Bound(
    "producers-waiting",
    "producers that wait for exclusive access to a topic",
    1000,
    "producers",
    "another is refused with ProducerBusy",
)
FRAMES_OVER_RATE = Bound(
    "frames-over-rate",
    "frames that a connection with a publish rate may send above it at once",
    8,
    "frames",
    "the others wait, and it is not read",
)
LATE_SUBSCRIBES = Bound(
    "late-subscribes",
    "consumers of a connection that wait for their subscribe rate",
    1000,
    "consumers",
    "another is refused with ServiceNotReady",
)
SUBSCRIBE_RATE_BUCKETS = Bound(
    "subscribe-rate-buckets",
    "consumers whose rate of subscribing is remembered, per topic with a subscribe rate",
    10_000,
    "consumers",
    "the one that subscribed longest ago is forgotten, and begins with a full rate",
)
PARTITIONS = Bound(
    "partitions-at-most", "partitions of a topic, where the setting is 0", 4096, "partitions", "refused with 406"
)
ENTRY_STATES = Bound(
    "entry-states",
    "redelivery counts of a subscription in memory",
    50_000,
    "entries",
    "the others are read from the disk",
)
ERROR_TEXTS = Bound(
    "error-texts",
    "error texts that applications reported, of a subscription",
    1000,
    "texts",
    "refused with 412 until messages are acknowledged",
)
DEATHS_KEPT = Bound("death-history", "deaths in the history of a dead letter", 20, "deaths", "the oldest is dropped")
BACKOFF_STEPS = Bound("backoff-steps", "delays of a redelivery back-off", 100, "delays", "refused with 400")
SCHEMA_SIZE = Bound("schema-size", "the definition of a schema", 1 << 20, "bytes", "refused with IncompatibleSchema")
SCHEMA_NAMES = Bound("schema-names", "names in an Avro definition", 2000, "names", "refused with IncompatibleSchema")
SCHEMAS_PARSED = Bound(
    "schemas-parsed", "parsed definitions of schemas in memory", 16, "definitions", "the oldest is parsed again"
)
SCHEMA_VERDICTS = Bound(
    "schema-verdicts", "outcomes of comparisons of schemas in memory", 1000, "outcomes", "the oldest is found again"
)
SCHEMA_COMPARISONS = Bound(
    "schema-comparisons",
    "comparisons of parts of two schemas",
    20_000,
    "comparisons",
    "refused with IncompatibleSchema",
)
SCHEMA_IN_TURN = Bound(
    "schema-in-turn",
    "schemas that a command compares while others wait",
    4 << 10,
    "bytes",
    "compared in a thread, only the connection waits",
)
SCHEMA_THREADS = Bound("schema-threads", "schemas that are compared in threads", 1, "at a time", "the others wait")
SCHEMAS_WAITING = Bound(
    "schemas-waiting",
    "schemas of one role, or of one address without roles, that wait to be compared; clients have their turns",
    100,
    "schemas",
    "refused with ServiceNotReady, or 503",
)
SCHEMA_EXAMINATIONS = Bound(
    "schema-examinations",
    "comparisons of one schema with versions that change meanwhile",
    3,
    "times",
    "refused with ServiceNotReady",
)
SCHEMA_WAIT = Bound(
    "schema-wait", "the wait of an HTTP request for the comparison of its schema", 60, "s", "refused with 503"
)
SCHEMA_HISTORY = Bound(
    "schema-history", "bytes of all versions of a schema", 16 << 20, "bytes", "another version is refused"
)
SCHEMA_CACHE = Bound(
    "schema-cache", "bytes of schemas in memory", 64 << 20, "bytes", "the least recently used is read from the disk"
)
DECODED_VALUES = Bound("decoded-values", "values of an Avro payload that is shown", 100_000, "values", "shown as bytes")
ERROR_TEXT_SIZE = Bound("error-text-size", "an error text that an application reports", 4096, "characters", "cut")

# -- storage and disk

DAMAGE_LISTED = Bound(
    "damage-listed",
    "topics, subscriptions, schemas and other things that are listed as damaged",
    10_000,
    "",
    "only the number of further reports is known; what is not listed is refused all the same when it is used",
)
DAMAGE_SKIPPED = Bound(
    "damage-skipped",
    "unreadable entries that one call skips",
    10_000,
    "",
    "the answer says `isLeft`, and another call goes on",
)
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
RUN_ENTRIES = Bound("run-entries", "entries that are stored as one record", 64, "entries", "the next record")
GROUP_SIZE = Bound(
    "group-size", "bytes of a group of changes", 1 << 20, "bytes", "the next transaction is in the next group"
)
RUN_BYTES = Bound(
    "run-bytes",
    "bytes of entries that are stored as one record, unless it is a single one",
    64 << 10,
    "bytes",
    "the next record",
)
GROUPS_PER_SYNC = Bound("groups-per-sync", "groups of changes that share one fsync", 8, "groups", "the next fsync")

# -- administration

FINDINGS_SHOWN = Bound(
    "findings-shown", "findings that `magnetar doctor data` shows", 1000, "", "counted; all are repaired with --fix"
)
HTTP_HEAD_WAIT = Bound("http-head", "time until the head of a request is complete", 10, "s", "408, and closed")
HTTP_BODY_WAIT = Bound("http-body", "time from the head to the end of the body", 30, "s", "408, and closed")

BACKUPS = Bound("backups", "checkpoints for a backup", 1, "", "refused with 409 until it is removed")
SUBSCRIPTION_DISPATCH_RATES = Bound(
    "subscription-dispatch-rates",
    "subscriptions of a topic with a dispatch rate of their own",
    1000,
    "subscriptions",
    "another one is refused",
)
REQUEST_BODY = Bound("request-body", "the body of an HTTP request", 1 << 20, "bytes", "refused with 413")
CURSOR_TOPICS = Bound(
    "cursor-topics", "topics in one request for positions of replication", 1000, "topics", "refused with 400"
)
LONG_POLLS = Bound(
    "long-polls",
    "requests that wait for a change of the declaration of replication, or of pipelines",
    16,
    "requests",
    "another is refused with 429",
)
LONG_POLL = Bound(
    "long-poll",
    "time that a request for the declaration of replication or of pipelines waits",
    60_000,
    "ms",
    "a longer one is refused with 400",
)
ORIGINS = Bound(
    "origins",
    "distinct origins that statistics of dead letters name",
    1000,
    "origins",
    "the others are counted together",
)
LOG_VALUE = Bound(
    "log-value", "a value in a line of the log", 500, "characters", "cut, with the number of those left out"
)
LOG_KINDS = Bound(
    "log-kinds", "kinds of lines that are limited by themselves", 1000, "kinds", "the others are limited together"
)
LOG_LINES = Bound(
    "log-lines",
    "lines of one kind, unless [log.md](log.md) says otherwise",
    60,
    "lines a minute",
    "counted, not written",
)
REPORTS_BODY = Bound(
    "reports-body", "the body of a report of the pipelines process", 32 << 20, "bytes", "refused with 413"
)
DEAD_LETTER_PAGE = Bound(
    "dead-letter-page",
    "dead letters, or dead letter topics, in one response",
    1000,
    "",
    "more are refused with 400; the response says how to go on",
)
PAUSE_REASON = Bound("pause-reason", "the reason of a paused subscription", 1000, "characters", "refused with 400")
CLUSTER_URL = Bound("cluster-url", "an address of a cluster", 1024, "bytes", "refused with 400")
CONDITION_SIZE = Bound("condition-size", "the condition of a route policy", 10_000, "characters", "refused with 412")
CONDITION_DEPTH = Bound(
    "condition-depth",
    "nesting of the condition of a route policy: brackets and CASE, and operators within operators",
    30,
    "levels",
    "refused with 412",
)
CONDITION_NUMBER = Bound(
    "condition-number",
    "the number in a condition that says how large a value is, as in repeat(x, 10)",
    1000,
    "",
    "refused with 412",
)
MASKS = Bound("masks", "masks of a route policy", 100, "masks", "refused with 412")
TEMPLATE_SIZE = Bound("template-size", "the topic template of a route policy", 1024, "characters", "refused with 412")
LOG_TEXT = Bound(
    "log-text", "a line of the log that is no event", 4000, "characters", "cut, with the number of those left out"
)
LOG_TRACEBACK = Bound("log-traceback", "a traceback in a JSON log", 20_000, "characters", "its end is kept")

BOUNDS: tuple[Bound, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Bound))
"""Every bound of this module, in the order of the reference page."""

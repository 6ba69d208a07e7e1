"""Options of the sink: the table, and the parsed options. The reference page is generated from `SINK_OPTIONS`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from magnetar import errors as server_errors
from magnetar.client.options import COMPRESSIONS
from magnetar.client.produce.routing import HASHING_DEFAULT, HashingScheme
from magnetar.names import TopicName
from magnetar.settings.kinds import Choice, Flag, Text, Whole
from magnetar.spark.client_options import CLIENT_OPTIONS, SparkClientOptions
from magnetar.spark.codec.frame_schema import NAME_DEFAULT
from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import GivenOptions, Option, Use
from magnetar.spark.sink.entry_builder import BatchOptions
from magnetar.spark.source.options import SOURCE_OPTIONS

PRODUCER_PREFIX = "pulsar.producer."

ExactlyOnce = Literal["auto", "required", "off"]
CompressionType = Literal["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"]

_SIZE_MAX = 1 << 30
_MS_MAX = 24 * 3600 * 1000

# Spark passes these on to a sink.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})

SINK_OPTIONS: tuple[Option, ...] = (
    Option(
        "topic",
        Use.WRITE,
        Text(
            r"\S+",
            "the name of a topic",
            "The target topic of all rows. Without it, the column `__topic` has the topic of each row.",
        ),
    ),
    Option(
        "exactlyOnce",
        Use.WRITE,
        Choice(
            ExactlyOnce,
            "`auto`: rows with a source position (`__messageId`, and `__sourceTopic` or the source's `__topic`) are "
            "written exactly once by the topic's deduplication, others at least once; it is an error if `admin.url` "
            "reports that the topic does not deduplicate. `required`: rows without a position, and a topic that is "
            "found not to deduplicate, are errors too. `off`: at least once.",
        ),
        "auto",
    ),
    Option(
        "sortByPosition",
        Use.WRITE,
        Flag(
            "Collect the rows of a task in memory and sort them by source position: for exactly-once writes of rows "
            "that a shuffle has reordered."
        ),
        False,
    ),
    Option(
        "schema",
        Use.WRITE,
        Text(
            r"(?s)json|avro|((json|avro):)?\{.*\}",
            '`json`, `avro`, a definition `avro:{"type": "record", …}` or `json:{…}`, or JSON as in the admin API: '
            '{"type": "AVRO", "schema": "...", "properties": {}}',
            "The schema that encodes typed columns: derived from the columns, nullable where they are, or given. "
            "Default: the schema of the topic.",
        ),
    ),
    Option(
        "schema.name",
        Use.WRITE,
        Text(r"[A-Za-z_]\w*", "letters, digits and _", "Name of the record of a derived schema."),
        NAME_DEFAULT,
    ),
    Option(
        "schema.namespace",
        Use.WRITE,
        Text(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "names with dots", "Namespace of the record of a derived schema."),
    ),
    Option(
        PRODUCER_PREFIX + "producerName",
        Use.WRITE,
        Text(
            r"\S(.*\S)?",
            "a text",
            "Prefix of producer names, instead of the query id. Rows up to the last position written under that name "
            "are then skipped, and a shuffle is an error.",
        ),
    ),
    Option(PRODUCER_PREFIX + "compressionType", Use.WRITE, Choice(CompressionType, "Compression of entries."), "NONE"),
    Option(
        PRODUCER_PREFIX + "batchingEnabled",
        Use.WRITE,
        Flag("Put several messages into one entry. Delayed messages are never batched."),
        True,
    ),
    Option(
        PRODUCER_PREFIX + "batchingMaxMessages",
        Use.WRITE,
        Whole(1, 65_536, "Maximum number of messages in a batch."),
        1000,
    ),
    Option(
        PRODUCER_PREFIX + "batchingMaxBytes",
        Use.WRITE,
        Whole(1, _SIZE_MAX, "Maximum size of a batch before compression. A larger message gets its own entry."),
        128 * 1024,
    ),
    Option(
        PRODUCER_PREFIX + "hashingScheme",
        Use.WRITE,
        Choice(
            HashingScheme,
            "Hash of the key that selects the partition. `JavaStringHash` is the default of Java's and Go's clients, "
            "`BoostHash` that of the official C++, Python and Node clients.",
        ),
        HASHING_DEFAULT,
    ),
    Option(
        PRODUCER_PREFIX + "sendTimeoutMs",
        Use.WRITE,
        Whole(1, _MS_MAX, "How long pending messages may wait without any being stored before the write fails."),
        120_000,
    ),
)


@dataclass(frozen=True)
class SinkOptions:
    client: SparkClientOptions
    topic: str | None
    exactly_once: ExactlyOnce
    sort_by_position: bool
    schema: str | None
    schema_name: str
    schema_namespace: str | None
    producer_name: str | None
    batches: BatchOptions
    hashing_scheme: HashingScheme
    send_timeout_s: float

    @staticmethod
    def of(options: Mapping[str, str]) -> SinkOptions:
        """Raises `InvalidOption`, which names the option."""
        own = {key: text for key, text in options.items() if key.lower() not in _SPARKS_OWN}
        given = GivenOptions(own, Use.WRITE, (*CLIENT_OPTIONS, *SOURCE_OPTIONS, *SINK_OPTIONS))
        return SinkOptions(
            client=SparkClientOptions.of(given),
            topic=_topic(given.get("topic")),
            exactly_once=given.get("exactlyOnce"),
            sort_by_position=given.get("sortByPosition"),
            schema=given.get("schema"),
            schema_name=given.get("schema.name"),
            schema_namespace=given.get("schema.namespace"),
            producer_name=given.get(PRODUCER_PREFIX + "producerName"),
            batches=BatchOptions(
                messages_max=given.get(PRODUCER_PREFIX + "batchingMaxMessages"),
                bytes_max=given.get(PRODUCER_PREFIX + "batchingMaxBytes"),
                compression=COMPRESSIONS[given.get(PRODUCER_PREFIX + "compressionType").lower()],
                batching=given.get(PRODUCER_PREFIX + "batchingEnabled"),
            ),
            hashing_scheme=given.get(PRODUCER_PREFIX + "hashingScheme"),
            send_timeout_s=given.get(PRODUCER_PREFIX + "sendTimeoutMs") / 1000,
        )


def _topic(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        return TopicName.parse(name).full
    except server_errors.InvalidName as error:
        raise InvalidOption(f"option topic: {error}") from None

"""The options of writing to topics. Owns their table, which goes with the one of `options`, and what was given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from magnetar import errors as server_errors
from magnetar.client.options import COMPRESSIONS
from magnetar.client.produce.routing import HashingScheme
from magnetar.names import TopicName
from magnetar.settings.kinds import Choice, Flag, Text, Whole
from magnetar.spark.client_options import CLIENT_OPTIONS, SparkClientOptions
from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import GivenOptions, Option, Use
from magnetar.spark.sink.entry_builder import BatchOptions
from magnetar.spark.source.options import SOURCE_OPTIONS

PRODUCER_PREFIX = "pulsar.producer."

ExactlyOnce = Literal["auto", "required", "off"]
CompressionType = Literal["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"]

_SIZE_MAX = 1 << 30
_MS_MAX = 24 * 3600 * 1000

# What Spark itself passes on to a sink.
_OF_SPARK = frozenset({"checkpointlocation", "queryname", "outputmode"})

SINK_OPTIONS: tuple[Option, ...] = (
    Option(
        "topic",
        Use.WRITE,
        Text(
            r"\S+",
            "the name of a topic",
            "The topic to write to, all rows. Without it the column `__topic` says where each row goes.",
        ),
    ),
    Option(
        "exactlyOnce",
        Use.WRITE,
        Choice(
            ExactlyOnce,
            "`auto`: rows that carry the position they come from (`__messageId`, and `__sourceTopic` or the source's "
            "`__topic`) are written exactly once by the topic's deduplication, others at least once; a topic of which "
            "`admin.url` says that it does not deduplicate is an error then. `required`: so are rows without a "
            "position, and a topic that turns out not to deduplicate. `off`: at least once.",
        ),
        "auto",
    ),
    Option(
        "sortByPosition",
        Use.WRITE,
        Flag(
            "Whether a task first collects its rows in memory and sorts them by where they come from: for rows that a "
            "shuffle brought out of order, and that shall be written exactly once."
        ),
        False,
    ),
    Option(
        "schema",
        Use.WRITE,
        Text(
            r"(?s)json|avro|\{.*\}",
            '`json`, `avro`, or JSON as of the admin API: {"type": "AVRO", "schema": "...", "properties": {}}',
            "The schema that typed columns are encoded with: one made from the columns, each of which may be null, or "
            "a given one. Without it the one that the topic has.",
        ),
    ),
    Option(
        PRODUCER_PREFIX + "producerName",
        Use.WRITE,
        Text(
            r"\S(.*\S)?",
            "a text",
            "The beginning of the names of producers, instead of the id of the query. With it, rows up to "
            "the last position that was written under that name are not written again, and a shuffle is an error.",
        ),
    ),
    Option(
        PRODUCER_PREFIX + "compressionType", Use.WRITE, Choice(CompressionType, "How entries are compressed."), "NONE"
    ),
    Option(
        PRODUCER_PREFIX + "batchingEnabled",
        Use.WRITE,
        Flag("Whether several messages share an entry. Delayed messages never do."),
        True,
    ),
    Option(
        PRODUCER_PREFIX + "batchingMaxMessages",
        Use.WRITE,
        Whole(1, 65_536, "How many messages a batch has at most."),
        1000,
    ),
    Option(
        PRODUCER_PREFIX + "batchingMaxBytes",
        Use.WRITE,
        Whole(1, _SIZE_MAX, "How large a batch is at most, before compression. A larger message goes alone."),
        128 * 1024,
    ),
    Option(
        PRODUCER_PREFIX + "hashingScheme",
        Use.WRITE,
        Choice(HashingScheme, "Which hash of the key says the partition."),
        "Murmur3_32Hash",
    ),
    Option(
        PRODUCER_PREFIX + "sendTimeoutMs",
        Use.WRITE,
        Whole(1, _MS_MAX, "How long nothing may be stored, while something should be, before the write fails."),
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
    producer_name: str | None
    batches: BatchOptions
    hashing_scheme: HashingScheme
    send_timeout_s: float

    @staticmethod
    def of(options: Mapping[str, str]) -> SinkOptions:
        """Raises `InvalidOption`, which names the option."""
        own = {key: text for key, text in options.items() if key.lower() not in _OF_SPARK}
        given = GivenOptions(own, Use.WRITE, (*CLIENT_OPTIONS, *SOURCE_OPTIONS, *SINK_OPTIONS))
        return SinkOptions(
            client=SparkClientOptions.of(given),
            topic=_topic(given.get("topic")),
            exactly_once=given.get("exactlyOnce"),
            sort_by_position=given.get("sortByPosition"),
            schema=given.get("schema"),
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

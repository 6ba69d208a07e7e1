"""`magnetar.spark.deadletters`: dead letters as a DataFrame, one row per letter.

Owns the columns, the arguments and their errors. `plan` finds topics and ranges, `reading` fills the columns in
workers. The rows are those of the moment of the call: a letter that is published or acknowledged afterwards changes
nothing, however often the DataFrame is used.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Literal, cast

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from magnetar.spark.codec.columns import Column
from magnetar.spark.dead_letters.payload_struct import STRUCT_ROWS, struct_of
from magnetar.spark.dead_letters.plan import LetterPlan, Source, plan_letters
from magnetar.spark.dead_letters.reading import LetterTask
from magnetar.spark.errors import InvalidOption

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.udtf import UserDefinedTableFunction

Payload = Literal["auto", "json"]

PAYLOAD, PAYLOAD_JSON = "payload", "payload_json"

_TEXT, _BYTES, _TIME, _INT = StringType(), BinaryType(), TimestampType(), IntegerType()

LETTER_COLUMNS = (
    Column("letter_topic", _TEXT, "the dead letter topic that it is in; of a partitioned one, the partition"),
    Column(
        "kind",
        _TEXT,
        "`DLQ`; `QUARANTINE` for letters that were redriven too often, `REPL` for messages that a remote cluster"
        " rejected, `CUSTOM` for topics with another name",
    ),
    Column("message_id", _TEXT, "its message id there, `ledger:entry:partition` and, in a batch, `:batch index`"),
    Column("topic", _TEXT, "the origin: the topic that it was published to, without a partition; null if unknown"),
    Column("partition", _INT, "the partition of the origin; null if it has none, or is unknown"),
    Column("subscription", _TEXT, "the subscription on which it failed"),
    Column("origin_message_id", _TEXT, "its message id in the origin"),
    Column("key", _TEXT, "the key as text; `base64:...` if it is not text"),
    Column(
        "reason",
        _TEXT,
        "the reason code; `Client` for letters that a client published by its own policy, `Unknown` for messages that"
        " no policy put there",
    ),
    Column("description", _TEXT, "the reason in a sentence"),
    Column("exception", _TEXT, "the class of the exception that it failed with, if it is known"),
    Column("error", _TEXT, "the application's error text"),
    Column("stack_trace", _TEXT, "the end of the stack trace"),
    Column("fingerprint", _TEXT, "what failures of the same cause have in common, as 12 hexadecimal digits"),
    Column("count", LongType(), "number of failed deliveries, or of retries by a client"),
    Column("first_failure", _TIME, "its first failure, if a history says so"),
    Column("last_failure", _TIME, "its last failure, if a history says so"),
    Column("deaths", _INT, "number of failures in its history: more than one if it was redriven and failed again"),
    Column("generation", _INT, "how often it was redriven"),
    Column("redrive_subscription", _TEXT, "the subscription that it was last redriven for"),
    Column("consumer", _TEXT, "the consumer that failed last"),
    Column("consumer_address", _TEXT, "its address"),
    Column("client_version", _TEXT, "its client"),
    Column("published", _TIME, "when the letter was published"),
    Column("event_time", _TIME, "the event time set by the application, or null"),
    Column("handled", BooleanType(), "whether every durable subscription of the dead letter topic acknowledged it"),
    Column("properties", MapType(_TEXT, _TEXT), "all properties of the letter"),
    Column("value", _BYTES, "the payload; null if the producer sent none, or if it is unreadable"),
    Column("size", LongType(), "size of the payload in bytes"),
    Column(
        PAYLOAD_JSON,
        _TEXT,
        "the payload decoded by its schema: JSON, or text as it is; null if it cannot be decoded",
    ),
    Column("payload_error", _TEXT, "why the payload cannot be decoded or the letter cannot be opened, or null"),
    Column("__messageId", _BYTES, "the message id in Pulsar's serialized form"),
    Column("__sourceTopic", _TEXT, "as `letter_topic`"),
    Column("__schemaVersion", LongType(), "number of the schema version that it was written with, or null"),
    Column("__key", _BYTES, "the key: the bytes of a byte key, or the UTF-8 of a string key"),
    Column("__orderingKey", _BYTES, "the ordering key, if it differs from the key"),
    Column("__error", _TEXT, "why the letter cannot be opened, such as encryption, or null"),
)

_BY_NAME = {column.name: column for column in LETTER_COLUMNS}


def deadletters(
    spark: SparkSession,
    namespace_or_topics: Source,
    *,
    handled: bool = False,
    columns: Sequence[str] | None = None,
    payload: Payload | None = "auto",
    **options: str,
) -> DataFrame:
    """The dead letters that wait, with `handled` all that are stored, in the order of each topic.

        magnetar.spark.deadletters(spark, "public/default", **{"service.url": "http://localhost:8080"})

    `namespace_or_topics` is a namespace for all its dead letter topics, a topic, several, or a regular expression
    (`tenant/namespace/expression`, as a text or compiled). `columns` are the ones to build, which saves time: without
    it all. `payload="auto"` adds a column `payload`, a struct if the payloads are records, otherwise the text of
    `payload_json`; None decodes no payloads. `options` are the client options of `format("pulsar")` and its
    `startingOffsets`, `startingTime`, `endingOffsets`, `endingTime` and `minPartitions`, which splits long topics.
    """
    names = letter_columns(columns, payload)
    plan = plan_letters(namespace_or_topics, options, handled=handled)
    return letters_of(spark, plan, names)


def letter_columns(columns: Sequence[str] | None, payload: Payload | None) -> list[str]:
    """The names of the columns; raises `InvalidOption`."""
    if payload not in ("auto", "json", None):
        raise InvalidOption(f"payload is {payload!r}: it must be 'auto', 'json' or None")
    known = [*_BY_NAME, PAYLOAD] if payload == "auto" else list(_BY_NAME)
    if columns is None:
        return [name for name in known if payload is not None or name not in (PAYLOAD_JSON, "payload_error")]
    for name in columns:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise InvalidOption(f"columns: unknown column {name!r}: {hint}")
    return list(dict.fromkeys(columns))


def letters_of(spark: SparkSession, plan: LetterPlan, names: Sequence[str]) -> DataFrame:
    """The DataFrame of a plan. `payload` is among the names if it is wanted."""
    from pyspark.sql import functions as F

    built = [name for name in names if name != PAYLOAD]
    if PAYLOAD in names and PAYLOAD_JSON not in built:
        built.append(PAYLOAD_JSON)
    schema = StructType([_BY_NAME[name].field for name in built])
    tasks = [_rows_of(LetterTask(plan.options, ranges, schema, handled=plan.handled)) for ranges in plan.tasks]
    letters = reduce(DataFrame.unionAll, tasks) if tasks else spark.createDataFrame([], schema)
    if PAYLOAD not in names:
        return letters
    record = payload_type(plan)
    json = F.col(PAYLOAD_JSON)
    typed = json if record is None else F.from_json(json, record)
    return letters.withColumn(PAYLOAD, typed).select(*names)


def _rows_of(task: LetterTask) -> DataFrame:
    """Of one task. `mapInArrow` would need pandas, and a data source has its options in plans that Spark shows."""
    from pyspark.sql import functions as F

    class Read:
        def eval(self) -> Iterator[pa.RecordBatch]:
            yield from task.rows()

    return cast("UserDefinedTableFunction", F.arrow_udtf(Read, returnType=task.schema))()


def payload_type(plan: LetterPlan) -> StructType | None:
    """The struct of the first payloads; None if they are no records."""
    texts: list[str] = []
    for batch in first_rows(plan, [PAYLOAD_JSON]):
        texts += [text for text in batch.column(0).to_pylist() if text is not None]
        if len(texts) >= STRUCT_ROWS:
            break
    return struct_of(texts[:STRUCT_ROWS])


def first_rows(plan: LetterPlan, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Record batches of some columns, read by this process."""
    schema = StructType([_BY_NAME[name].field for name in names])
    return LetterTask(plan.options, plan.ranges, schema, handled=plan.handled).rows()

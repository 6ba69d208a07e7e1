"""The pipeline of one stream to several targets: its builder.

Owns what belongs together: one read, its subscription, and targets that differ. What happens to a micro-batch is in
`batch_run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from pyspark.sql import DataFrame, SparkSession

from magnetar.clock import Clock, SystemClock
from magnetar.deadletter.topics import RETRY_SUFFIX
from magnetar.names import TopicName
from magnetar.spark.codec.columns import VALUE
from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import shortened
from magnetar.spark.routing.archive import ArchiveTarget
from magnetar.spark.routing.batch_run import ARCHIVED, BatchRun, LetterTarget, RetryTarget, Targets
from magnetar.spark.routing.delays import delays_ms
from magnetar.spark.routing.letters import PAYLOAD, check_bad_rows
from magnetar.spark.routing.plan import Plans
from magnetar.spark.routing.query import LadderThread, PipelineQuery
from magnetar.spark.routing.retries import RetryFeed, RetryTopic
from magnetar.spark.routing.retry_rows import source_rows
from magnetar.spark.routing.stored_batches import StoredBatches
from magnetar.spark.routing.targets import TopicTarget, check_target_options, client_options, topic_target
from magnetar.spark.sink.columns import MESSAGE_ID, TOPIC
from magnetar.spark.source.options import SourceOptions

TARGETS_MAX = 20
_SUBSCRIPTION = "predefinedSubscription"


def pipeline(
    spark: SparkSession, *, checkpoint: str, subscription: str | None = None, clock: Clock | None = None
) -> PipelineBuilder:
    """A pipeline that reads one stream and writes each row exactly once to every target that it is for.

    `subscription` is the `predefinedSubscription` of the stream, and may be left out.
    """
    if not isinstance(checkpoint, str) or not checkpoint.strip():
        raise InvalidOption(f"checkpoint is {shortened(checkpoint)}: it must be a folder of its own for this pipeline")
    return PipelineBuilder(spark, checkpoint, subscription, clock or SystemClock())


class _Prepared(NamedTuple):
    plans: Plans
    run: BatchRun
    ladder: RetryFeed | None


class PipelineBuilder:
    """Targets are added before `start`. Frames come from one `load()`."""

    def __init__(self, spark: SparkSession, checkpoint: str, subscription: str | None, clock: Clock) -> None:
        self._spark = spark
        self._checkpoint = checkpoint
        self._subscription = subscription
        self._clock = clock
        self._topics: dict[str, TopicTarget] = {}
        self._letters: TopicTarget | None = None
        self._delays_ms: tuple[int, ...] = ()
        self._archive: ArchiveTarget | None = None
        self._frames: dict[str, DataFrame] = {}

    def to(self, topic: str, rows: DataFrame, *, schema: str | None = None, **options: Any) -> Self:
        """Writes rows to a topic: `value` as it is, or typed columns by the schema of the topic or this one.

        `options` are those of the sink. Client options are those of the stream, unless set here.
        """
        target = topic_target(topic, rows, schema, options)
        self._add(target.topic, rows)
        self._topics[target.topic] = target
        return self

    def dead_letters(self, topic: str, rows: DataFrame, *, retry: Sequence[str] = (), **options: Any) -> Self:
        """Writes the bad rows of a split to a dead letter topic: the message as it was, and why it is there.

        With `retry`, delays such as `10s`, a row waits in the retry topic first, and goes the whole way again when it
        is due: so often as there are delays. One that is unreadable does not.
        """
        if self._letters is not None:
            raise InvalidOption(
                f"dead letters go to {self._letters.topic} already: use one dead letter topic for all bad rows"
            )
        check_bad_rows(topic, rows)
        options = {"pulsar.producer.batchingEnabled": False} | options  # letters are handled one by one
        raw = rows.select(TOPIC, MESSAGE_ID, rows[PAYLOAD].alias(VALUE))
        target = topic_target(topic, raw, None, options)
        self._add(target.topic, rows)
        self._letters, self._delays_ms = target, delays_ms(retry)
        return self

    def archive(
        self,
        path: str,
        rows: DataFrame | None = None,
        *,
        format: str = "parquet",
        partition_by: str | Sequence[str] | None = None,
    ) -> Self:
        """Appends rows to files or to a table of Delta Lake: these, or without them those of the other targets.

        A column `day` to partition by is made of `__publishTime` if there is none.
        """
        if self._archive is not None:
            raise InvalidOption(f"there is an archive already, {self._archive.path}: a pipeline has one")
        self._archive = ArchiveTarget.of(path, format, partition_by)
        if rows is not None:
            self._frames[ARCHIVED] = rows
        return self

    def _add(self, topic: str, rows: DataFrame) -> None:
        if topic in self._frames:
            raise InvalidOption(f"target {topic} is there already: one frame has all rows of a topic")
        if len(self._topics) == TARGETS_MAX:
            raise InvalidOption(f"target {topic} exceeds the limit of {TARGETS_MAX} targets")
        self._frames[topic] = rows

    # -- running

    def start(self, **trigger: Any) -> PipelineQuery:
        """Starts the pipeline. `trigger` has the arguments of Spark's `DataStreamWriter.trigger`."""
        prepared = self._prepared()
        rows = prepared.plans.frame(prepared.plans.cuts[0].plan)
        writer = rows.writeStream.foreachBatch(prepared.run.write).option("checkpointLocation", self._checkpoint)
        if trigger:
            writer = writer.trigger(**trigger)
        if prepared.ladder is None:
            return PipelineQuery(writer.start())
        prepared.ladder.open()
        try:
            return PipelineQuery(writer.start(), LadderThread(self._spark, prepared.ladder))
        except BaseException:
            prepared.ladder.close()
            raise

    def run_available_now(self) -> PipelineQuery:
        """Handles the messages that exist now, and returns; raises what has ended the pipeline before that."""
        query = self.start(availableNow=True)
        query.awaitTermination()
        return query

    def _prepared(self) -> _Prepared:
        if not self._topics and self._letters is None:
            raise InvalidOption("the pipeline has no target topic: add one with to() or dead_letters()")
        plans = Plans(self._spark, self._frames, from_read=bool(self._delays_ms))
        source, client = SourceOptions.of(plans.read.options), client_options(plans.read.options)
        subscription = self._checked_subscription(source)
        for name in (*self._topics, *([] if self._letters is None else [self._letters.topic])):
            _check_not_the_source(name, source)
        for name, target in self._topics.items():
            check_target_options(target, self._frames[name], client)
        if self._archive is not None:
            self._archive.check_columns(self._archived_columns())
        retry = self._retry_target(source, subscription)
        letters = None if self._letters is None else LetterTarget(self._letters, subscription, retry)
        targets = Targets(self._topics, letters, self._archive)
        run = BatchRun(self._spark, plans, targets, client, self._clock, self._store("batches"))
        ladder = None if retry is None else self._ladder(retry, subscription, plans, source, run)
        return _Prepared(plans, run, ladder)

    def _store(self, name: str) -> StoredBatches:
        return StoredBatches(self._spark, f"{self._checkpoint.rstrip('/')}/{name}")

    def _retry_target(self, source: SourceOptions, subscription: str) -> RetryTarget | None:
        if not self._delays_ms:
            return None
        if len(source.topics.names) != 1:
            raise InvalidOption(
                f"retry needs a stream of one topic, whose name the retry topic has, and it reads {source.topics}"
            )
        topic = TopicName.parse(source.topics.names[0]).base.full
        name = f"{topic}-{subscription}{RETRY_SUFFIX}"
        if name in self._frames:
            raise InvalidOption(f"target {name} is the retry topic, whose messages come back to the pipeline")
        return RetryTarget(TopicTarget(name, {"topic": name, "exactlyOnce": "required"}), self._delays_ms)

    def _ladder(
        self, retry: RetryTarget, subscription: str, plans: Plans, source: SourceOptions, run: BatchRun
    ) -> RetryFeed:
        topic = RetryTopic(retry.topic.topic, subscription, len(retry.delays_ms))
        rows = source_rows(source, plans.frame(plans.read.plan).schema)
        client = client_options(plans.read.options)
        return RetryFeed(self._spark, topic, rows, client, run, self._store("retries"), self._clock)

    def _checked_subscription(self, source: SourceOptions) -> str:
        """The subscription that keeps messages until every target has them, and that dead letters name."""
        found, wanted = source.subscription, self._subscription
        if found is None:
            raise InvalidOption(
                f"the stream of {source.topics} has no subscription: read it with option {_SUBSCRIPTION}"
                f"={wanted or '…'}, which keeps messages until all targets have them"
            )
        if wanted is not None and wanted != found:
            raise InvalidOption(
                f"the subscription is {wanted}, but the stream is read with option {_SUBSCRIPTION}={found}"
            )
        return found

    def _archived_columns(self) -> list[str]:
        if ARCHIVED in self._frames:
            return self._frames[ARCHIVED].columns
        assert self._archive is not None
        if len(self._topics) > 1:
            raise InvalidOption(
                f"archive {self._archive.path}: name its rows, because a row may be for several of the"
                f" {len(self._topics)} topics"
            )
        return list(dict.fromkeys(name for rows in self._frames.values() for name in rows.columns))


def _check_not_the_source(topic: str, source: SourceOptions) -> None:
    name = TopicName.parse(topic).base
    names = [TopicName.parse(each).base for each in source.topics.names]
    is_matched = name.namespace_full == source.topics.namespace and source.topics.matches(name)
    if name in names or is_matched:
        raise InvalidOption(f"target {topic} is read by the pipeline itself ({source.topics}), which would never end")

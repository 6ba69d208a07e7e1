"""A running pipeline, with the interface of Spark's `StreamingQuery`, and the thread of its retry ladder."""

from __future__ import annotations

import threading
import uuid
from typing import Any

from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from magnetar.spark.routing.retries import RetryFeed

_LOOK_S = 0.5
"""How often the thread looks whether a row is due, which takes no Spark job."""


class LadderThread:
    """Runs what is due while a query is active, and once more when it has ended by itself."""

    def __init__(self, spark: SparkSession, ladder: RetryFeed) -> None:
        self._spark = spark
        self._ladder = ladder
        self._stopping = threading.Event()
        self._group = f"retries-{uuid.uuid4().hex}"
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None

    def start(self, query: StreamingQuery) -> None:
        self._thread = InheritableThread(target=self._run, args=(query,), name=self._group, daemon=True)
        self._thread.start()

    def _run(self, query: StreamingQuery) -> None:
        session: Any = self._spark
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)  # where Spark looks for the format
        context: Any = session.sparkContext
        context.setJobGroup(self._group, "rows that are retried", True)
        try:
            is_active = True
            while is_active and not self._stopping.is_set():
                is_active = query.isActive
                if is_active or query.exception() is None:
                    self._ladder.run_due(query.id, self._stopping.is_set)
                self._stopping.wait(_LOOK_S if is_active else 0)
        except Exception as error:
            if not self._stopping.is_set():
                self.error = error
                query.stop()
        finally:
            self._ladder.close()

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def join(self, timeout_s: float | None) -> None:
        if self._thread is not None:
            self._thread.join(timeout_s)

    def stop(self) -> None:
        """A batch that is interrupted is repeated at the next start."""
        self._stopping.set()
        self._spark.sparkContext.cancelJobGroup(self._group)
        self.join(None)


class PipelineQuery:
    def __init__(self, query: StreamingQuery, ladder: LadderThread | None = None) -> None:
        self._query = query
        self._ladder = ladder
        if ladder is not None:
            ladder.start(query)

    @property
    def id(self) -> str:
        """The same for all runs with one checkpoint; producer names begin with it."""
        return self._query.id

    @property
    def isActive(self) -> bool:
        return self._query.isActive or (self._ladder is not None and self._ladder.is_alive)

    @property
    def lastProgress(self) -> Any:
        return self._query.lastProgress

    @property
    def recentProgress(self) -> list[Any]:
        return list(self._query.recentProgress)

    @property
    def status(self) -> dict[str, Any]:
        return self._query.status

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Raises what has ended the pipeline, unless it was stopped. With a timeout, returns whether it has ended."""
        has_ended = self._query.awaitTermination(timeout)
        if self._ladder is None or has_ended is False:
            return has_ended
        self._ladder.join(timeout)
        if self._ladder.error is not None:
            raise self._ladder.error
        return None if timeout is None else not self._ladder.is_alive

    def processAllAvailable(self) -> None:
        """Returns when the messages of the stream are handled; rows that are retried come later."""
        self._query.processAllAvailable()

    def stop(self) -> None:
        """A micro-batch that is interrupted is repeated at the next start."""
        if self._ladder is not None:
            self._ladder.stop()
        self._query.stop()

    def exception(self) -> StreamingQueryException | Exception | None:
        error = self._query.exception()
        return error if error is not None or self._ladder is None else self._ladder.error

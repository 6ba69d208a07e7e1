"""Plans of the frames of a pipeline: where they meet, and what each does with the rows of a micro-batch.

All frames of a pipeline come from one read. They meet at a split, or at the read itself: there the stream is cut, and
below the cut the rows of a micro-batch take its place. Owns the classes of Spark's plans, which Python does not offer.
Reads and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as PlannedFrame
from pyspark.sql.types import StructType

from magnetar.spark.errors import InvalidOption
from magnetar.spark.option import shortened
from magnetar.spark.routing.split import SPLIT_MARK

Plan = Any
"""A logical plan of Spark, in its JVM."""

_READ = "StreamingRelationV2"
_FORMAT = "pulsar"
_MARKED = "SubqueryAlias"
_ROW_BY_ROW = frozenset(
    {"Project", "Filter", _MARKED, "Join", "Generate", "ResolvedHint", "MapInArrow", "MapInPandas", "PythonMapInArrow"}
)
_CERTAIN = frozenset({"Project", "Filter", _MARKED})
_CERTAIN_EXPRESSIONS = frozenset(
    {"AttributeReference", "Alias", "Literal", "IsNull", "IsNotNull", "Not", "And", "Or", "EqualTo", "GetStructField"}
)


class Read(NamedTuple):
    """The one read of a pipeline, with the options of its source."""

    plan: Plan
    options: dict[str, str]


@dataclass(frozen=True)
class Cut:
    """A place where frames meet: the read, whose name is "", or a split."""

    name: str
    plan: Plan


class Plans:
    """The frames of a pipeline, by the name of their target."""

    def __init__(self, spark: SparkSession, frames: Mapping[str, DataFrame], *, from_read: bool = False) -> None:
        """With `from_read`, rows may come from elsewhere too. Raises `InvalidOption`, which names the target."""
        self._spark = spark
        self._jvm: Any = spark._jvm
        self._plans = {name: _plan_of(name, frame) for name, frame in frames.items()}
        self.read = self._common_read()
        self.cuts = self._cuts()
        self._columns = {cut.name: self.frame(cut.plan).schema for cut in self.cuts}
        self._are_certain = {name: self._is_certain(plan) for name, plan in self._plans.items()}
        for name, plan in self._plans.items():
            self._check_row_by_row(name, plan, "" if from_read else self.cuts[0].name)

    # -- where frames meet

    def _common_read(self) -> Read:
        found: Plan = None
        for name, plan in self._plans.items():
            reads = [node for node in _nodes(plan) if _class_of(node) == _READ]
            if len(reads) != 1:
                raise InvalidOption(
                    f"the rows of {name} come from {len(reads)} streams: a pipeline has one read, of a stream of"
                    f" format {_FORMAT}"
                )
            if reads[0].sourceName() != _FORMAT:
                raise InvalidOption(
                    f"the rows of {name} come from a stream of format {reads[0].sourceName()}, not {_FORMAT}"
                )
            if found is not None and not found.equals(reads[0]):
                raise InvalidOption(
                    f"the rows of {name} come from another load(): a pipeline has one read for all targets"
                )
            found = reads[0]
        return Read(found, dict(found.extraOptions().asCaseSensitiveMap()))

    def _cuts(self) -> list[Cut]:
        """The first one is common to all frames; each other is below it."""
        splits = {name: list(_splits(plan)) for name, plan in self._plans.items()}
        deepest = {found[-1].name if found else "" for found in splits.values()}
        cuts = [] if len(deepest) == 1 and "" not in deepest else [Cut("", self.read.plan)]
        by_depth = sorted(
            (cut for found in splits.values() for cut in found), key=lambda cut: len(list(_splits(cut.plan)))
        )
        known: set[str] = set()
        for cut in by_depth:
            if cut.name not in known:
                known.add(cut.name)
                cuts.append(cut)
        return cuts

    def _check_row_by_row(self, target: str, plan: Plan, cut: str) -> None:
        """Above the cut, what counts, sorts or drops duplicates would see one micro-batch only."""
        for node in _nodes_above(plan, {cut}):
            if _class_of(node) not in _ROW_BY_ROW:
                where = "after the split" if cut else "in its frame"
                raise InvalidOption(
                    f"the rows of {target}: {_class_of(node)} {where} is not possible, because a pipeline handles row"
                    " by row; filter, select, explode and join with frames that are no streams"
                )

    # -- the rows of a micro-batch

    @property
    def names(self) -> list[str]:
        return list(self._plans)

    def frame(self, plan: Plan) -> DataFrame:
        session: Any = self._spark
        return PlannedFrame(
            self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session
        )

    def columns(self, cut: Cut) -> StructType:
        return self._columns[cut.name]

    def cut_rows(self, cut: Cut, stored: Mapping[str, DataFrame]) -> DataFrame:
        """The rows of a later cut, made from those of the earlier ones."""
        inner = cut.plan.children().apply(0)
        return self.frame(self._replaced(inner, stored))

    def rows(self, name: str, stored: Mapping[str, DataFrame]) -> DataFrame:
        """The rows of a target, made from the rows at the cuts."""
        return self.frame(self._replaced(self._plans[name], stored))

    def is_certain(self, name: str) -> bool:
        """Whether the same rows at the cuts always make the same rows of the target."""
        return self._are_certain[name]

    def _is_certain(self, plan: Plan) -> bool:
        nodes = _nodes_above(plan, {cut.name for cut in self.cuts})
        return all(_class_of(node) in _CERTAIN and all(map(_is_certain, _each(node.expressions()))) for node in nodes)

    def _replaced(self, plan: Plan, stored: Mapping[str, DataFrame]) -> Plan:
        name = _cut_name(plan)
        if name is not None and name in stored:
            return self._renamed(stored[name], plan.output())
        if not plan.isStreaming() or not plan.children().size():
            return plan
        return plan.withNewChildren(self._sequence([self._replaced(child, stored) for child in _each(plan.children())]))

    def _renamed(self, frame: DataFrame, attributes: Any) -> Plan:
        """The rows of a frame as these attributes, which the plan above refers to."""
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        plan = _analyzed(frame)
        columns = [
            catalyst.expressions.Alias(
                column,
                wanted.name(),
                wanted.exprId(),
                wanted.qualifier(),
                self._jvm.scala.Option.apply(None),
                self._sequence([]),
            )
            for column, wanted in zip(_each(plan.output()), _each(attributes), strict=True)
        ]
        return catalyst.plans.logical.Project(self._sequence(columns), plan)

    def _sequence(self, items: Sequence[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(list(items))


def _plan_of(name: str, frame: DataFrame) -> Plan:
    if not isinstance(frame, PlannedFrame):
        raise InvalidOption(
            f"the rows of {name} are {shortened(frame)}: they must be a DataFrame, not of Spark Connect"
        )
    if not frame.isStreaming:
        raise InvalidOption(f"the rows of {name} are not a stream: begin with spark.readStream")
    return _analyzed(frame)


def _analyzed(frame: DataFrame) -> Plan:
    dataset: Any = frame
    return dataset._jdf.queryExecution().analyzed()


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _class_of(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _nodes(plan: Plan) -> Iterator[Plan]:
    """The streaming nodes of a plan, from its result to its read."""
    if plan.isStreaming():
        yield plan
        for child in _each(plan.children()):
            yield from _nodes(child)


def _nodes_above(plan: Plan, names: set[str]) -> Iterator[Plan]:
    """Those above the cuts of these names."""
    if plan.isStreaming() and _cut_name(plan) not in names:
        yield plan
        for child in _each(plan.children()):
            yield from _nodes_above(child, names)


def _cut_name(plan: Plan) -> str | None:
    if _class_of(plan) == _READ:
        return ""
    if _class_of(plan) == _MARKED and plan.alias().startswith(SPLIT_MARK):
        return str(plan.alias())
    return None


def _splits(plan: Plan) -> Iterator[Cut]:
    """The splits that a plan comes from, the first one last."""
    for node in _nodes(plan):
        name = _cut_name(node)
        if name:
            yield Cut(name, node)


def _is_certain(expression: Any) -> bool:
    return _class_of(expression) in _CERTAIN_EXPRESSIONS and all(map(_is_certain, _each(expression.children())))

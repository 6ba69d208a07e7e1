"""Reading of dead letters in workers: record batches of a plan's ranges, in the order of each topic.

Leaves out acknowledged letters as early as possible: whole entries before they are
opened, messages of a batch afterwards. `letter_columns` fills the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BooleanType, StructField, StructType

from magnetar.client.consume.entry import Entry
from magnetar.client.schema import Schema
from magnetar.names import TopicName
from magnetar.spark.codec.columns import VALUE, SourceColumns
from magnetar.spark.codec.record_batches import RowReader
from magnetar.spark.codec.value_schema import RegistryVersions
from magnetar.spark.dead_letters.letter_columns import LetterBuilders
from magnetar.spark.dead_letters.payloads import PayloadDecoder
from magnetar.spark.dead_letters.plan import LetterRange
from magnetar.spark.dead_letters.unacknowledged import Unacknowledged
from magnetar.spark.source.options import SourceOptions
from magnetar.spark.source.read_task import earlier_entries, entries_of

_HANDLED = "handled"


@dataclass(frozen=True)
class LetterTask:
    """The ranges of one task, and the columns to build; sent to a worker."""

    options: SourceOptions
    ranges: tuple[LetterRange, ...]
    schema: StructType
    handled: bool

    def rows(self) -> Iterator[pa.RecordBatch]:
        for letters in self.ranges:
            yield from self._range(letters)

    def _range(self, letters: LetterRange) -> Iterator[pa.RecordBatch]:
        options, span = self.options, letters.span
        unacknowledged = None if self.handled else letters.unacknowledged
        columns = self._columns(with_handled=unacknowledged is not None)
        payloads = PayloadDecoder(TopicName.parse(span.topic), self._schema)
        builders = LetterBuilders(letters, payloads).by_name
        reader = RowReader(columns, None, "row", earlier_entries(options, span.topic), builders)
        entries = entries_of(options, span)
        if unacknowledged is None:
            yield from reader.read(entries, span)
            return
        place = columns.names.index(_HANDLED)
        for batch in reader.read(_waiting(entries, unacknowledged), span):
            waiting = batch.filter(pc.invert(batch.column(place)))
            yield waiting.select(self.schema.fieldNames())

    def _columns(self, *, with_handled: bool) -> SourceColumns:
        fields = list(self.schema.fields)
        if with_handled and _HANDLED not in self.schema.fieldNames():
            fields.append(StructField(_HANDLED, BooleanType()))
        return SourceColumns(fields, [VALUE])

    def _schema(self, topic: str, version: bytes) -> Schema | None:
        return RegistryVersions(self.options.client, topic)(version)


def _waiting(chunks: Iterable[list[Entry]], unacknowledged: Unacknowledged) -> Iterator[list[Entry]]:
    """Without the entries that are acknowledged whole."""
    for entries in chunks:
        ids = np.array([(entry.id.entry_id, -1, entry.id.ledger_id) for entry in entries], np.int64)
        mask = unacknowledged.mask(ids[:, 0], ids[:, 1], ids[:, 2])
        yield [entry for entry, is_open in zip(entries, mask.tolist(), strict=True) if is_open]

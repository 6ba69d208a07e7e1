"""The messages of a task, in a worker: read, decoded by the topic's schema, and without those that are settled.

Owns which columns are read. Messages of the retry topic are decoded by the schema of the topic that they came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from magnetar.client.message import Position
from magnetar.pipelines.processing.call.message import (
    EVENT_TIME,
    KEY,
    MESSAGE_ID,
    ORDERING_KEY,
    PROPERTIES,
    PUBLISH_TIME,
    TOPIC,
)
from magnetar.pipelines.processing.task import RoundTask
from magnetar.spark.client_options import SparkClientOptions
from magnetar.spark.codec.columns import RAW_VALUE, VALUE, SourceColumns, named_columns
from magnetar.spark.codec.value_decoder import ValueDecoder
from magnetar.spark.codec.value_schema import ValueSchema
from magnetar.spark.dead_letters.unacknowledged import Unacknowledged
from magnetar.spark.sink.sequence_ids import message_positions
from magnetar.spark.source.options import SourceOptions
from magnetar.spark.source.read_task import read_range

if TYPE_CHECKING:
    from numpy.typing import NDArray

PAYLOAD, ERROR, VERSION = "__payload", "__error", "__schemaVersion"

_COLUMNS = (KEY, PROPERTIES, EVENT_TIME, MESSAGE_ID, TOPIC, PUBLISH_TIME, ORDERING_KEY, ERROR, VERSION)


class _OriginSchema(ValueSchema):
    """Decodes all topics as `topic`, whose versions the messages of its retry topic have."""

    def decoder(self, client: SparkClientOptions, partition: str) -> ValueDecoder:
        return super().decoder(client, self.topic)


@dataclass(frozen=True)
class MessageSource:
    """`values` is None where payloads stay bytes."""

    options: SourceOptions
    columns: SourceColumns
    values: ValueSchema | None

    @staticmethod
    def of(options: SourceOptions, values: ValueSchema | None) -> MessageSource:
        """Raises `InvalidOption` for a schema whose fields have the names of metadata columns."""
        fields = [RAW_VALUE.field] if values is None else values.fields
        names = [field.name for field in fields]
        own = () if values is None else (PAYLOAD,)
        struct = named_columns([*names, *own, *_COLUMNS], fields)
        options = replace(options, on_unreadable="row", fail_on_data_loss=False)
        origin = None if values is None else _OriginSchema(values.topic, values.schema)
        return MessageSource(options, SourceColumns(struct, names), origin)

    @property
    def payload(self) -> str:
        """The column with the payload as bytes."""
        return VALUE if self.values is None else PAYLOAD

    def read(self, task: RoundTask, waiting: Unacknowledged | None) -> Iterator[pa.RecordBatch]:
        """Those of the task that are `waiting`; None stands for all."""
        for span in task.spans():
            for batch in read_range(self.options, self.columns, self.values, span):
                ledgers, entries, indexes = message_positions(MESSAGE_ID, batch.column(MESSAGE_ID))
                keep = np.ones(len(entries), np.bool_) if waiting is None else waiting.mask(entries, indexes, ledgers)
                if task.chosen is not None:
                    keep &= _are_chosen(task.chosen, ledgers, entries)
                yield batch if keep.all() else batch.filter(pa.array(keep))


def _are_chosen(
    chosen: tuple[Position, ...], ledgers: NDArray[np.int64], entries: NDArray[np.int64]
) -> NDArray[np.bool_]:
    found = np.zeros(len(entries), np.bool_)
    for ledger_id in np.unique(ledgers).tolist():
        wanted = [position.entry_id for position in chosen if position.ledger_id == ledger_id]
        found |= (ledgers == ledger_id) & np.isin(entries, wanted)
    return found

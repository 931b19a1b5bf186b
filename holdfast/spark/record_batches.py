"""Blocks of events as Arrow's record batches, column by column.

Rule never broken: only what is asked for is decoded. An event with a body and perhaps a key, the common case, is never
looked at by itself; what holds more is decoded once for all the columns that need it.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from holdfast.client import EventBlock, EventColumns, ReceivedEvent
from holdfast.client.blocks.event_arrays import EventArrays, arrays_of
from holdfast.spark.schema import schema_of

PRODUCER_ID = "com.microsoft:producer-id"
PRODUCER_SEQUENCE = "com.microsoft:producer-sequence-number"
PUBLISHER_COLUMNS = frozenset({"producerId", "sequenceNumber"})
"""Nodes tell them only on request: it costs them, and us, something for each event."""
GROUP_KEY = "event-streams-group-key"
_HEADER = ("durable", "priority", "ttl", "first_acquirer", "delivery_count")
_PROPERTIES = (
    *("message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding"),
    *("absolute_expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id"),
)

Texts = dict[str, str | None]


class BatchBuilder:
    """Builder of Arrow record batches from one partition's blocks."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._schema = to_arrow_schema(schema_of(columns), timezone="UTC")
        self._nothing = pa.array([], pa.int8())  # of maps without entries, as many as were needed at once

    def batch(self, block: EventBlock) -> tuple[pa.RecordBatch, int, int]:
        """Record batch of a block, with its first and last offset."""
        arrays = arrays_of(block)
        if arrays is not None:
            found = [self._of_arrays(field, block, arrays) for field in self._schema]
            first, last = int(arrays.offsets[0]), int(arrays.offsets[-1])
        else:
            columns = block.columns()
            found = [self._of_columns(field, block, columns) for field in self._schema]
            first, last = columns.offsets[0], columns.offsets[-1]
        return pa.RecordBatch.from_arrays(found, schema=self._schema), first, last

    def _of_arrays(self, field: pa.Field, block: EventBlock, arrays: EventArrays) -> pa.Array:
        count = len(block)
        match field.name:
            case "body":
                buffers = [None, pa.py_buffer(arrays.body_ends), pa.py_buffer(arrays.bodies)]
                return pa.Array.from_buffers(field.type, count, buffers)
            case "partition":
                return pa.repeat(pa.scalar(block.partition, field.type), count)
            case "offset":
                return pa.array(arrays.offsets)
            case "enqueuedTime":
                return pa.array(arrays.timestamps_ms * 1000).view(field.type)
            case "key":
                return pa.nulls(count, field.type) if arrays.keys is None else pa.array(arrays.keys, field.type)
            case "properties" | "systemProperties":
                if len(self._nothing) < count:
                    self._nothing = pa.array([[]] * count, field.type)
                return self._nothing.slice(0, count)
            case "producerId" if arrays.producer_ids is not None:
                return pa.array(arrays.producer_ids, field.type, mask=arrays.producer_ids < 0)
            case "sequenceNumber" if arrays.sequences is not None:
                return pa.array(arrays.sequences, field.type, mask=arrays.sequences < 0)
        return pa.nulls(count, field.type)

    def _of_columns(self, field: pa.Field, block: EventBlock, columns: EventColumns) -> pa.Array:
        values: Any
        match field.name:
            case "body":
                values = columns.bodies
            case "partition":
                values = [block.partition] * len(block)
            case "offset":
                values = columns.offsets
            case "enqueuedTime":
                values = [at_ms * 1000 for at_ms in columns.timestamps_ms]
            case "key":
                values = columns.keys
            case "properties":
                values = self._texts(block, columns, lambda event: event.properties)
            case "systemProperties":
                values = self._texts(block, columns, _system)
            case "producerId":
                values = self._number(block, columns, 0, PRODUCER_ID)
            case "sequenceNumber":
                values = self._number(block, columns, 1, PRODUCER_SEQUENCE)
            case other:
                raise AssertionError(f"no such column: {other}")
        return pa.array(values, type=field.type)

    def _texts(
        self, block: EventBlock, columns: EventColumns, of: Callable[[ReceivedEvent], Mapping[str, Any]]
    ) -> list[list[tuple[str, str | None]]]:
        nothing: list[tuple[str, str | None]] = []
        found = [nothing] * len(block)
        for place, event in columns.decoded.items():
            found[place] = [(str(name), as_text(value)) for name, value in of(event).items()]
        return found

    def _number(self, block: EventBlock, columns: EventColumns, part: int, name: str) -> list[int | None]:
        """Numbers as the node tells them; for events without numbers there, as their own annotations say."""
        told = columns.publishers or [(-1, -1)] * len(block)
        found: list[int | None] = [None if numbers[0] < 0 else numbers[part] for numbers in told]
        for place, event in columns.decoded.items():
            value = event.message.message_annotations.get(name) if found[place] is None else None
            found[place] = int(value) if isinstance(value, int) else found[place]
        return found


def _system(event: ReceivedEvent) -> dict[str, Any]:
    """Header, properties and annotations, by the names of AMQP."""
    message = event.message
    found = {
        name.replace("_", "-"): value
        for name in (*_HEADER, *_PROPERTIES)
        if (value := getattr(message, name)) is not None
    }
    annotations = {str(name): value for name, value in message.message_annotations.items() if name != GROUP_KEY}
    return found | annotations


def as_text(value: Any) -> str | None:
    """A value of AMQP as a text: what a person would write; bytes in hex digits."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.hex()
        case datetime.datetime():
            return value.isoformat()
        case uuid.UUID() | str() | int() | float():
            return str(value)
    return repr(value)

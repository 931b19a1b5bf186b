"""Conversion of Arrow's columns to encoded events and the partitions that they go to, a column at a time.

Problem: an event that Python touches costs a microsecond for each thing that is done with it.
Rules never broken: the bytes are those that the client would write for the same body, key and properties; rows of one
partition keep their order; a row whose place or body is missing stops the task, and is never left out.

The pieces of an event (what the key puts in front, the head of the data section, the body) are made once for each
distinct key and each distinct size, and put together by Arrow. Only rows with properties are encoded one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from holdfast.client.events import data_head, encode_event, key_section
from holdfast.spark.errors import OptionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

BYTES = pa.large_binary()
NOWHERE: Final = -1

RUN_ROWS: Final = 256
"""Rows without key and partition that go to one partition together, at least: each piece costs a node something."""

TYPES: Final[dict[str, tuple[str, tuple[type[DataType], ...]]]] = {
    "body": ("binary or string", (BinaryType, StringType)),
    "key": ("string", (StringType,)),
    "partition": ("string or int", (StringType, ByteType, ShortType, IntegerType, LongType)),
    "properties": ("map<string,string>", (MapType,)),
}


class RowError(OptionError):
    """A row cannot be an event."""

    advice = "correct the query: the same rows would be refused again"


def check_schema(given: StructType) -> None:
    """Check the columns of the rows. Raises OptionError with one sentence."""
    shape = "body (binary or string) and, if wanted, key (string), partition (string or int), properties (map of texts)"
    for field in given.fields:
        known = TYPES.get(field.name)
        if known is None:
            raise OptionError(f"the column {field.name!r} has no place in an event: a log takes {shape}")
        name, kinds = known
        kind = field.dataType
        texts = not isinstance(kind, MapType) or (
            isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
        )
        if not isinstance(kind, kinds) or not texts:
            raise OptionError(f"the column {field.name!r} is {name}, not {kind.simpleString()}")
    names = [field.name for field in given.fields]
    if "body" not in names:
        raise OptionError(f"there is no column 'body': a log takes {shape}")


class Router:
    """Router of rows to partitions. `of_key`: the client's choice for a key."""

    def __init__(self, log: str, partitions: Sequence[str], of_key: Callable[[str], str], turn: int) -> None:
        self._log, self._names = log, list(partitions)
        self._places = {name: place for place, name in enumerate(self._names)}
        self._of_key = of_key
        self._turn = turn  # tasks begin at different partitions

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[str, list[bytes]]]:
        """Yield each partition that gets something, with its encoded events, in their order."""
        if not rows.num_rows:
            return
        events = encoded(rows)
        places = self.places(rows)
        first = int(places[0])
        if (places == first).all():
            yield self._names[first], pieces(events)
            return
        for place in np.unique(places):
            yield self._names[place], pieces(events.take(pa.array(np.flatnonzero(places == place))))

    def places(self, rows: pa.RecordBatch) -> NDArray[np.int64]:
        """Number of the partition of each row."""
        places = np.full(rows.num_rows, NOWHERE, dtype=np.int64)
        if "partition" in rows.schema.names:
            places = _looked_up(rows.column("partition"), self._named, places)
        if "key" in rows.schema.names:
            places = _looked_up(rows.column("key"), lambda key: self._places[self._of_key(key)], places)
        free = np.flatnonzero(places == NOWHERE)
        if len(free):
            run = max(RUN_ROWS, -(-len(free) // len(self._names)))
            turns: NDArray[np.int64] = self._turn + np.arange(len(free), dtype=np.int64) // run
            places[free] = turns % len(self._names)
            self._turn = int(turns[-1]) + 1
        return places

    def _named(self, name: Any) -> int:
        place = self._places.get(str(name))
        if place is None:
            known = ", ".join(self._names[:20])
            raise RowError(f"a row names partition {str(name)!r}, and log {self._log!r} has {known}")
        return place


def _looked_up(column: pa.Array, place_of: Callable[[Any], int], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fill in the places that these values give to rows that have none yet; each distinct value is looked up once."""
    distinct = column.dictionary_encode()
    table = np.array([place_of(value) for value in distinct.dictionary.to_pylist()] + [NOWHERE], dtype=np.int64)
    found = table[distinct.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)]
    return np.where(places == NOWHERE, found, places)


def encoded(rows: pa.RecordBatch) -> pa.LargeBinaryArray:
    """Encode each row as an AMQP message."""
    bodies = rows.column("body").cast(BYTES)
    if bodies.null_count:
        raise RowError(f"the body of a row is null ({bodies.null_count} of {len(bodies)} rows)")
    parts = [_each(pc.binary_length(bodies), data_head), bodies]
    if "key" in rows.schema.names:
        parts.insert(0, _each(rows.column("key"), key_section))
    events = pc.binary_join_element_wise(*parts, pa.scalar(b"", BYTES))
    return _with_properties(rows, events) if "properties" in rows.schema.names else events


def _each(values: pa.Array, make: Callable[[Any], bytes]) -> pa.Array:
    """Make something of each value, nothing of null; made once for each distinct one."""
    distinct = values.dictionary_encode()
    made = pa.array([make(value) for value in distinct.dictionary.to_pylist()] + [b""], BYTES)
    return made.take(distinct.indices.fill_null(len(made) - 1))


def _with_properties(rows: pa.RecordBatch, events: pa.Array) -> pa.Array:
    found = rows.column("properties").to_pylist()
    if not any(found):
        return events
    keys = rows.column("key").to_pylist() if "key" in rows.schema.names else [None] * len(found)
    bodies, plain = rows.column("body").cast(BYTES).to_pylist(), events.to_pylist()
    return pa.array(
        [
            encode_event(body, key, dict(properties)) if properties else event
            for body, key, properties, event in zip(bodies, keys, found, plain, strict=True)
        ],
        BYTES,
    )


def pieces(array: pa.LargeBinaryArray) -> list[bytes]:
    """The values, cut out of one buffer."""
    _, offsets, data = array.buffers()
    if not len(array) or data is None:
        return [b""] * len(array)
    ends = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    whole = data.to_pybytes()
    return [whole[start:end] for start, end in pairwise(ends.tolist())]

"""The columns of a log, named as people know them from Spark's connectors for Kafka and Event Hubs.

They are fixed: a body is bytes, and what is in it is the business of the program (`from_json`, `from_csv`, ...).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from holdfast.spark.errors import OptionError

TEXTS: Final = MapType(StringType(), StringType())

TYPES: Final[dict[str, DataType]] = {
    "body": BinaryType(),
    "partition": StringType(),
    "offset": LongType(),  # later events of a partition have greater ones; there may be gaps
    "enqueuedTime": TimestampType(),  # when the partition's leader took the event in
    "key": StringType(),
    "properties": TEXTS,  # application properties, as texts
    "systemProperties": TEXTS,  # what else the message says: its properties, header and annotations
    "producerId": LongType(),
    "sequenceNumber": LongType(),
}
COLUMNS: Final = tuple(TYPES)


def schema_of(columns: tuple[str, ...]) -> StructType:
    return StructType([StructField(name, TYPES[name]) for name in columns])


def check_schema(given: StructType, columns: tuple[str, ...]) -> None:
    """Raise OptionError if the program has set a schema of its own."""
    own = schema_of(columns)
    if [(field.name, field.dataType) for field in given.fields] != [(f.name, f.dataType) for f in own.fields]:
        raise OptionError(
            f"the columns of a log are {', '.join(columns)}, and cannot be set by .schema({given.simpleString()})",
            advice="choose among them with the option columns, and take the body apart with from_json or from_csv",
        )

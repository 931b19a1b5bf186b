"""A history in memory, with its tables as lists; on disk each table is one Parquet file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_type_hints

from chaos.history.tables import (
    ADDED_LATER,
    TABLES,
    CommitRow,
    ComplaintRow,
    FaultRow,
    InputRow,
    LeaderRow,
    MomentRow,
    OpRow,
    OwnerRow,
    ReadRow,
    RegisterRow,
    RegistrationRow,
    ReplicaDumpRow,
    SendRow,
    TransactionRow,
    WatermarkRow,
)


@dataclass
class History:
    ops: list[OpRow] = field(default_factory=list)
    sends: list[SendRow] = field(default_factory=list)
    reads: list[ReadRow] = field(default_factory=list)
    commits: list[CommitRow] = field(default_factory=list)
    owners: list[OwnerRow] = field(default_factory=list)
    replica_dump: list[ReplicaDumpRow] = field(default_factory=list)
    faults: list[FaultRow] = field(default_factory=list)
    transactions: list[TransactionRow] = field(default_factory=list)
    inputs: list[InputRow] = field(default_factory=list)
    watermarks: list[WatermarkRow] = field(default_factory=list)
    leaders: list[LeaderRow] = field(default_factory=list)
    complaints: list[ComplaintRow] = field(default_factory=list)
    moments: list[MomentRow] = field(default_factory=list)
    registrations: list[RegistrationRow] = field(default_factory=list)
    registers: list[RegisterRow] = field(default_factory=list)

    def rows(self, table: str) -> list[Any]:
        found: list[Any] = getattr(self, table)
        return found


def write(history: History, directory: Path) -> None:
    """Write each table to `directory/TABLE.parquet`."""
    import pyarrow as pa
    from pyarrow import parquet

    directory.mkdir(parents=True, exist_ok=True)
    for name, kind in TABLES.items():
        schema = schema_of(kind)
        columns = list(zip(*history.rows(name), strict=True)) or [()] * len(schema.names)
        arrays = [pa.array(column, type=of.type) for column, of in zip(columns, schema, strict=True)]
        parquet.write_table(pa.Table.from_arrays(arrays, schema=schema), directory / f"{name}.parquet")


def read(directory: Path, only: Collection[str] = tuple(TABLES)) -> History:
    """Read a history that `write` has written. `only`: the tables to read; the others stay empty."""
    from pyarrow import parquet

    history = History()
    for name, kind in TABLES.items():
        if name not in only or (name in ADDED_LATER and not (directory / f"{name}.parquet").exists()):
            continue
        columns = parquet.read_table(directory / f"{name}.parquet").to_pydict()
        rows = zip(*(columns[column] for column in kind._fields), strict=True)  # type: ignore[attr-defined]
        history.rows(name).extend(kind(*row) for row in rows)
    return history


def rows_in(directory: Path, *tables: str) -> int:
    """Count the rows of these tables without reading them; a missing table counts 0."""
    from pyarrow import parquet

    paths = [directory / f"{name}.parquet" for name in tables]
    return sum(parquet.read_metadata(path).num_rows for path in paths if path.exists())


def schema_of(kind: type) -> Any:
    import pyarrow as pa

    plain = {int: pa.int64(), str: pa.string(), bool: pa.bool_()}
    fields = []
    for name, hint in get_type_hints(kind).items():
        optional = type(None) in get_args(hint)
        of = next(one for one in get_args(hint) if one is not type(None)) if optional else hint
        fields.append(pa.field(name, plain[of], nullable=optional))
    return pa.schema(fields)

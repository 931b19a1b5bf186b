"""A history in memory: its tables as lists. Written as one Parquet file a table, read back the same."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_type_hints

from chaos.history.tables import (
    ADDED_LATER,
    TABLES,
    Commit,
    Complaint,
    Fault,
    Input,
    Leader,
    Moment,
    Op,
    Owner,
    Read,
    Register,
    Registration,
    ReplicaDump,
    Send,
    Transaction,
    Watermark,
)


@dataclass
class History:
    ops: list[Op] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    owners: list[Owner] = field(default_factory=list)
    replica_dump: list[ReplicaDump] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    watermarks: list[Watermark] = field(default_factory=list)
    leaders: list[Leader] = field(default_factory=list)
    complaints: list[Complaint] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    registrations: list[Registration] = field(default_factory=list)
    registers: list[Register] = field(default_factory=list)

    def rows(self, table: str) -> list[Any]:
        found: list[Any] = getattr(self, table)
        return found


def write(history: History, directory: Path) -> None:
    """`directory/TABLE.parquet`, each."""
    import pyarrow as pa
    from pyarrow import parquet

    directory.mkdir(parents=True, exist_ok=True)
    for name, kind in TABLES.items():
        schema = schema_of(kind)
        columns = list(zip(*history.rows(name), strict=True)) or [()] * len(schema.names)
        arrays = [pa.array(column, type=of.type) for column, of in zip(columns, schema, strict=True)]
        parquet.write_table(pa.Table.from_arrays(arrays, schema=schema), directory / f"{name}.parquet")


def read(directory: Path, only: Collection[str] = tuple(TABLES)) -> History:
    """What `write` has written. `only`: these tables; the others stay empty."""
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
    """Of these tables, without reading them; a table that is not there has none."""
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

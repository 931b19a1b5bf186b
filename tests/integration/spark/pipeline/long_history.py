"""A history as chaos runs record it, as long as one likes: nothing is wrong in it but what is damaged on order.

Partitions come in fours: two that a numbered producer feeds, one of these with a consumer group behind it, one that
takes part in nothing else, and one that a pipeline fills by transactions of ten from the partition before it. Every
value is sent, read at the tail, and read once more when all is over; three nodes have copies. A call takes half a
millisecond, and each has a millisecond of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chaos.history.history import History, schema_of, write
from chaos.history.tables import COMMITTED, OK, TABLES, Fault, Leader

np: Any = pytest.importorskip("numpy", reason="it comes with pyarrow: `make test` installs it")
pa: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")

MS = 1_000_000
OF_A_TXN, OF_A_POLL, OF_A_QUESTION = 10, 100, 500
NODES = (1, 2, 3)
COPIES = 3  # of a value among sends and reads: what counts as operations
LOST, TWICE = 5, 7
"""In partition 0, if it is damaged: it was acknowledged, and is nowhere; it stands at the end once more."""

Columns = dict[str, Any]


def operations(each: int, partitions: int) -> int:
    return each * partitions * COPIES


def make(directory: Path, each: int, partitions: int, *, damaged: bool = False) -> None:
    """`each`: values of each partition."""
    few = History()
    few.faults.append(Fault("1.F1", "F1", "node 1", MS, 2 * MS, 3 * MS, 4 * MS))
    few.leaders += [Leader(partition, partition, 1, 1, 0) for partition in range(partitions)]
    write(few, directory)
    makers: dict[str, Callable[[int, int], Columns]] = {
        "ops": _ops, "sends": _sends, "reads": _reads, "replica_dump": _dump, "watermarks": _watermarks,
        "transactions": _transactions, "inputs": _inputs, "commits": _commits,
    }  # fmt: skip
    for name, columns_of in makers.items():
        schema = schema_of(TABLES[name])
        with parquet.ParquetWriter(directory / f"{name}.parquet", schema) as writer:
            for partition in range(partitions):
                table = _table(columns_of(partition, each), schema)
                if damaged and partition == 0 and name in ("reads", "replica_dump"):
                    table = _damaged(table, each)
                writer.write_table(table)


def _damaged(table: pa.Table, each: int) -> pa.Table:
    values = table["msg_id"].to_pandas()
    again = table.filter(pa.array(values == f"p0:{each - 1}")).to_pandas()
    again = again.assign(msg_id=f"p0:{TWICE}", offset=each)
    if "pos" in again:
        again["pos"] += 1
    rest = table.filter(pa.array(values != f"p0:{LOST}"))
    return pa.concat_tables([rest, pa.Table.from_pandas(again, schema=table.schema, preserve_index=False)])


def _table(columns: Columns, schema: pa.Schema) -> pa.Table:
    """A value that is no array is that of all rows."""
    rows = max(len(column) for column in columns.values() if isinstance(column, np.ndarray | list))
    arrays = []
    for field in schema:
        column = columns.get(field.name)
        arrays.append(
            pa.array(column, type=field.type)
            if isinstance(column, np.ndarray | list)
            else pa.repeat(pa.scalar(column, type=field.type), rows)
        )
    return pa.Table.from_arrays(arrays, schema=schema)


def _call(partition: int, each: int, kind: int, number: Any) -> Any:
    """Its op_id. Kinds: 0 sends, 1 decisions, 2 polls, 3 the drain, 4 commits of the group, 5 questions."""
    return (partition * 6 + kind) * each + number


def _by_transaction(partition: int) -> bool:
    return partition % 4 == 3


def _by_group(partition: int) -> bool:
    return partition % 4 == 2


def _values(partition: int, numbers: Any) -> list[str]:
    return [f"p{partition}:{number}" for number in numbers]


def _names_of_txns(partition: int, numbers: Any) -> list[str]:
    return [f"t{partition}-{number}" for number in numbers]


def _every(each: int, step: int) -> Any:
    """Where each run of so many ends."""
    return np.minimum(np.arange(step, each + step, step), each)


def _ops(partition: int, each: int) -> Columns:
    sent, polls, asked = np.arange(each), _every(each, OF_A_POLL), _every(each, OF_A_QUESTION)
    parts = [(0, "produce", f"p{partition}", sent * MS), (2, "poll", f"r{partition}", polls * MS + MS // 4)]
    if _by_transaction(partition):
        parts.append((1, "txn-commit", f"w{partition}", _every(each, OF_A_TXN) * MS - MS // 2))
    if _by_group(partition):
        parts.append((4, "commit", f"r{partition}", polls * MS + MS * 3 // 4))
    parts += [(5, "latest", f"q{partition}", asked * MS), (3, "drain", "drain", np.array([2 * each * MS]))]
    begun = np.concatenate([times for *_, times in parts])
    return {
        "op_id": np.concatenate([_call(partition, each, kind, np.arange(len(t))) for kind, _, _, t in parts]),
        "process": [process for _, _, process, times in parts for _ in range(len(times))],
        "f": [f for _, f, _, times in parts for _ in range(len(times))],
        "type": OK, "t_inv_ns": begun, "t_end_ns": begun + MS // 2 - 1, "deadline_ns": begun + 10_000 * MS,
    }  # fmt: skip


def _sends(partition: int, each: int) -> Columns:
    numbers = np.arange(each)
    found: Columns = {
        "op_id": _call(partition, each, 0, numbers), "msg_id": _values(partition, numbers), "partition": partition,
        "producer": f"p{partition}", "outcome": OK,
    }  # fmt: skip
    if _by_transaction(partition):
        return found | {"txn": _names_of_txns(partition, numbers // OF_A_TXN)}
    return found | {"epoch": 0, "seq": numbers, "offset": numbers}


def _reads(partition: int, each: int) -> Columns:
    numbers = np.arange(each)
    polls = _call(partition, each, 2, numbers // OF_A_POLL)
    drain = np.full(each, _call(partition, each, 3, 0))
    tail, grouped = [f"r{partition}"] * each, _by_group(partition)
    return {
        "op_id": np.concatenate([polls, drain]), "msg_id": _values(partition, numbers) * 2, "crc_ok": True,
        "partition": partition, "offset": np.concatenate([numbers, numbers]), "reader": tail + ["drain"] * each,
        "session": 0, "group": (["g"] if grouped else [None]) * each + [None] * each,
        "generation": ([1] if grouped else [None]) * each + [None] * each, "isolation": COMMITTED,
        "pos": np.concatenate([numbers, numbers]),
    }  # fmt: skip


def _dump(partition: int, each: int) -> Columns:
    numbers = np.arange(each)
    return {
        "node": np.repeat(NODES, each), "partition": partition, "offset": np.tile(numbers, len(NODES)), "term": 1,
        "msg_id": _values(partition, numbers) * len(NODES), "crc": 7,
    }  # fmt: skip


def _watermarks(partition: int, each: int) -> Columns:
    asked = _every(each, OF_A_QUESTION)
    return {
        "op_id": _call(partition, each, 5, np.arange(len(asked))), "process": f"q{partition}", "partition": partition,
        "earliest": 0, "latest": asked, "stable": asked // OF_A_TXN * OF_A_TXN,
    }  # fmt: skip


def _transactions(partition: int, each: int) -> Columns:
    ends = _every(each, OF_A_TXN) if _by_transaction(partition) else np.arange(0)
    numbers = np.arange(len(ends))
    return {
        "txn": _names_of_txns(partition, numbers), "process": f"w{partition}", "decision": "commit", "outcome": OK,
        "op_id": _call(partition, each, 1, numbers), "t_begin_ns": numbers * OF_A_TXN * MS,
    }  # fmt: skip


def _inputs(partition: int, each: int) -> Columns:
    numbers = np.arange(each if _by_transaction(partition) else 0)
    return {
        "txn": _names_of_txns(partition, numbers // OF_A_TXN), "msg_id": _values(partition, numbers),
        "source_partition": partition - 1, "source_offset": numbers, "source_msg_id": _values(partition - 1, numbers),
    }  # fmt: skip


def _commits(partition: int, each: int) -> Columns:
    """Of the group behind a partition; of the pipeline, in its transactions."""
    if _by_group(partition):
        ends = _every(each, OF_A_POLL)
        calls = _call(partition, each, 4, np.arange(len(ends)))
        return {"op_id": calls, "group": "g", "member": f"r{partition}", "generation": 1, "partition": partition,
                "offset": ends - 1}  # fmt: skip
    ends = _every(each, OF_A_TXN) if _by_transaction(partition) else np.arange(0)
    numbers = np.arange(len(ends))
    return {
        "op_id": _call(partition, each, 1, numbers), "group": "pipeline", "member": f"w{partition}", "generation": 1,
        "partition": np.full(len(ends), partition - 1), "offset": ends - 1, "txn": _names_of_txns(partition, numbers),
    }  # fmt: skip

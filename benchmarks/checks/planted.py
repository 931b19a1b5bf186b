"""One violation of each promise, planted into a correct history.

Each violation changes events of the first four partitions that no other violation touches. The checker under whose name
it is listed must see it, and no other checker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.checks.history import NODES, STEP_NS, Tables
from chaos.history.tables import INFO, OK

NUMBERED, PLAIN, GROUP, PIPELINE = range(4)
"""Numbers of the first four partitions."""

LONG_NS = 100_000_000_000
"""A time longer than any bound."""


# ---------------------------------------------------------------- rows


def where(table: pa.Table, **values: Any) -> Any:
    """Return the mask of rows that have all these values."""
    found = None
    for name, value in values.items():
        same = pc.fill_null(pc.equal(table[name], pa.scalar(value, type=table.schema.field(name).type)), False)
        found = same if found is None else pc.and_(found, same)
    return found


def row(tables: Tables, table: str, *, last_by: str | None = None, **values: Any) -> dict[str, Any]:
    """Return the first matching row, or the one with the greatest `last_by`."""
    rows = tables[table].filter(where(tables[table], **values)).to_pylist()
    assert rows, (table, values)
    found: dict[str, Any] = max(rows, key=lambda one: one[last_by]) if last_by else rows[0]
    return found


def add(tables: Tables, table: str, row: dict[str, Any], **changes: Any) -> None:
    new = {name: (row | changes).get(name) for name in tables[table].schema.names}
    rows = pa.Table.from_pylist([new], schema=tables[table].schema)
    tables[table] = pa.concat_tables([tables[table], rows])


def drop(tables: Tables, table: str, **values: Any) -> None:
    tables[table] = tables[table].filter(pc.invert(where(tables[table], **values)))


def change(tables: Tables, table: str, which: Any, **changes: Any) -> None:
    """Change columns of the chosen rows. A change is a new value, or a function of the column."""
    for name, value in changes.items():
        column = tables[table][name]
        new = value(column) if callable(value) else pa.scalar(value, type=column.type)
        place, field = tables[table].schema.get_field_index(name), tables[table].schema.field(name)
        tables[table] = tables[table].set_column(place, field, pc.if_else(which, new, column))


def call(tables: Tables, process: str, f: str, begun_ns: int, outcome: str = OK) -> int:
    number: int = pc.max(tables["ops"]["op_id"]).as_py() + 1
    add(
        tables, "ops",
        {"op_id": number, "process": process, "f": f, "type": outcome, "t_inv_ns": begun_ns,
         "t_end_ns": begun_ns + STEP_NS // 2, "deadline_ns": begun_ns + LONG_NS},
    )  # fmt: skip
    return number


def end_ns(tables: Tables) -> int:
    found: int = pc.max(tables["ops"]["t_end_ns"]).as_py()
    return found


def at_end(tables: Tables, partition: int, value: str) -> None:
    """Append a value to the log for all readers and nodes."""
    readers = [f"drain-{partition}-node-{node}" for node in NODES] + [f"tail-{partition}", f"dirty-{partition}"]
    for reader in readers:
        last = row(tables, "reads", last_by="offset", reader=reader, partition=partition)
        add(tables, "reads", last, msg_id=value, offset=last["offset"] + 1, pos=last["pos"] + 1)
    for node in NODES:
        last = row(tables, "replica_dump", last_by="offset", node=node, partition=partition)
        add(tables, "replica_dump", last, msg_id=value, offset=last["offset"] + 1, crc=7)


# ---------------------------------------------------------------- violations


def lost(tables: Tables) -> None:
    for table in ("reads", "replica_dump"):
        drop(tables, table, msg_id=f"p{PLAIN}:15")


def two_values(tables: Tables) -> None:
    given = where(tables["reads"], reader=f"tail-{PLAIN}", msg_id=f"p{PLAIN}:25")
    change(tables, "reads", given, msg_id=f"p{PLAIN}.{INFO}:0")


def twice(tables: Tables) -> None:
    last = row(tables, "sends", last_by="op_id", producer=f"p{PLAIN}")  # of the newest term
    at_end(tables, PLAIN, last["msg_id"])


def numbers_swapped(tables: Tables) -> None:
    for value, number in ((9, 8), (8, 9)):
        change(tables, "sends", where(tables["sends"], msg_id=f"p{NUMBERED}.0:{value}"), seq=number)


def old_epoch(tables: Tables) -> None:
    last = row(tables, "sends", last_by="seq", producer=f"p{NUMBERED}.0", epoch=0)
    value = f"p{NUMBERED}.0:9999999"
    begun_ns = row(tables, "ops", op_id=last["op_id"])["t_inv_ns"]
    number = call(tables, last["producer"], "produce", begun_ns, INFO)
    add(tables, "sends", last, op_id=number, msg_id=value, seq=last["seq"] + 1, outcome=INFO, offset=None)
    at_end(tables, NUMBERED, value)


def later_before_earlier(tables: Tables) -> None:
    earlier, later = f"p{PLAIN}:52", f"p{PLAIN}:84"
    for table in ("reads", "replica_dump"):
        these = where(tables[table], msg_id=earlier), where(tables[table], msg_id=later)
        change(tables, table, these[0], msg_id=later)
        change(tables, table, these[1], msg_id=earlier)
    change(tables, "sends", where(tables["sends"], msg_id=earlier), offset=84)
    change(tables, "sends", where(tables["sends"], msg_id=later), offset=52)


def invented(tables: Tables) -> None:
    at_end(tables, PLAIN, "nobody:0")


def aborted_seen(tables: Tables) -> None:
    hidden = row(tables, "reads", reader=f"dirty-{PIPELINE}", msg_id=f"w{PIPELINE}:95")
    for reader in (f"tail-{PIPELINE}", *(f"drain-{PIPELINE}-node-{node}" for node in NODES)):
        before = row(tables, "reads", reader=reader, msg_id=f"w{PIPELINE}:89")
        of_reader = where(tables["reads"], reader=reader, session=before["session"])
        behind = pc.and_(of_reader, pc.greater(tables["reads"]["pos"], before["pos"]))
        change(tables, "reads", behind, pos=lambda column: pc.add(column, 1))
        add(tables, "reads", before, msg_id=hidden["msg_id"], offset=hidden["offset"], pos=before["pos"] + 1)


def passed_over(tables: Tables) -> None:
    drop(tables, "reads", reader=f"tail-{PLAIN}", msg_id=f"p{PLAIN}:91")


def outbid_commits(tables: Tables) -> None:
    last = row(tables, "commits", last_by="op_id", partition=GROUP, group="g")
    number = call(tables, f"m{GROUP}.0", "commit", end_ns(tables) + STEP_NS)
    add(tables, "commits", last, op_id=number, member=f"m{GROUP}.0", generation=0, offset=last["offset"] + 1)


def position_back(tables: Tables) -> None:
    last = row(tables, "commits", last_by="op_id", partition=GROUP, group="pipeline")
    number = call(tables, last["member"], "commit", end_ns(tables) + STEP_NS)
    add(tables, "commits", last, op_id=number, offset=last["offset"] - 5, txn=None)


def before_its_commit(tables: Tables) -> None:
    value = row(tables, "reads", reader=f"tail-{PIPELINE}", msg_id=f"w{PIPELINE}:15")
    txn = row(tables, "sends", msg_id=value["msg_id"])["txn"]
    decided = row(tables, "ops", op_id=row(tables, "transactions", txn=txn)["op_id"])
    number = call(tables, "early", "poll", decided["t_inv_ns"] - STEP_NS)
    add(tables, "reads", value, op_id=number, reader="early", session=0, pos=0)


def two_outputs(tables: Tables) -> None:
    source = row(tables, "inputs", msg_id=f"w{PIPELINE}:25")
    other = row(tables, "inputs", msg_id=f"w{PIPELINE}:35")
    add(tables, "inputs", source, txn=other["txn"], msg_id=other["msg_id"])


def from_the_future(tables: Tables) -> None:
    value = row(tables, "reads", reader=f"tail-{PLAIN}", msg_id=f"p{PLAIN}:105")
    sent = row(tables, "ops", op_id=row(tables, "sends", msg_id=value["msg_id"])["op_id"])
    number = call(tables, "prophet", "poll", sent["t_inv_ns"] - 2 * STEP_NS)
    add(tables, "reads", value, op_id=number, reader="prophet", session=0, pos=0)


def two_leaders(tables: Tables) -> None:
    led = row(tables, "leaders", partition=PLAIN)
    add(tables, "leaders", led, node=led["node"] % len(NODES) + 1)


def stale_end(tables: Tables) -> None:
    told = row(tables, "watermarks", partition=PLAIN)
    number = call(tables, "another", "latest", end_ns(tables))
    add(tables, "watermarks", told, op_id=number, process="another", latest=3, stable=3)


def end_falls(tables: Tables) -> None:
    _told_first(tables, PLAIN, latest=999_999_999)


def stable_falls(tables: Tables) -> None:
    _told_first(tables, PIPELINE, stable=999_999_999)


def begin_falls(tables: Tables) -> None:
    last = row(tables, "watermarks", last_by="op_id", partition=NUMBERED)
    for earliest in (4, 0):
        number = call(tables, last["process"], "latest", end_ns(tables) + LONG_NS)
        add(tables, "watermarks", last, op_id=number, earliest=earliest, latest=999_999_999)


def _told_first(tables: Tables, partition: int, **changes: int) -> None:
    first = row(tables, "watermarks", partition=partition)
    change(tables, "watermarks", where(tables["watermarks"], op_id=first["op_id"]), **changes)


def replica_differs(tables: Tables) -> None:
    change(tables, "replica_dump", where(tables["replica_dump"], node=3, partition=PLAIN, offset=115), crc=7)


def partition_dead(tables: Tables) -> None:
    number = call(tables, "z", "produce", end_ns(tables) + LONG_NS, INFO)
    add(
        tables, "sends",
        {"op_id": number, "msg_id": "z:0", "partition": 1_000_000, "producer": "z", "outcome": INFO},
    )  # fmt: skip


def node_died(tables: Tables) -> None:
    add(tables, "complaints", {"node": 2, "t_ns": STEP_NS, "text": "it ended by itself with status 1"})


def endless(tables: Tables) -> None:
    number = call(tables, "z", "latest", STEP_NS)
    change(tables, "ops", where(tables["ops"], op_id=number), deadline_ns=2 * STEP_NS, t_end_ns=None)
    call(tables, "z", "latest", end_ns(tables) + LONG_NS)


def half_seen(tables: Tables) -> None:
    drop(tables, "reads", reader=f"tail-{PIPELINE}", msg_id=f"w{PIPELINE}:43")


def not_rewound(tables: Tables) -> None:
    undone = row(tables, "inputs", msg_id=f"w{PIPELINE}:93")
    again = row(tables, "inputs", msg_id=f"w{PIPELINE}:103")
    assert again["source_msg_id"] == undone["source_msg_id"]
    drop(tables, "inputs", msg_id=again["msg_id"])


def other_value_read(tables: Tables) -> None:
    first = row(tables, "registers", f="read", value=5)
    change(tables, "registers", where(tables["registers"], op_id=first["op_id"]), value=3)


PLANTED: dict[str, Callable[[Tables], None]] = {
    "C1": lost, "C2": two_values, "C3": twice, "C4": numbers_swapped, "C5": old_epoch, "C6": later_before_earlier,
    "C7": invented, "C8": aborted_seen, "C9": passed_over, "C10": outbid_commits, "C11": position_back,
    "C12": before_its_commit, "C13": two_outputs, "C14": from_the_future, "C15": two_leaders, "C16": stale_end,
    "C17": end_falls, "C18": replica_differs, "C19": begin_falls, "C20": partition_dead, "C21": node_died,
    "C22": other_value_read, "CALLS": endless, "G1B": half_seen, "LSO": stable_falls, "REWIND": not_rewound,
}  # fmt: skip
"""Violations by the checker that must see each."""

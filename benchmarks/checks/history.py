"""A correct history of any length, as chaos runs record it.

Partitions come in fours, and each four has the workloads of a run:

0  three numbered producers, event by event, replaced by successors of a greater epoch; some events are sent twice
1  batches without numbers; some are refused, some have an unknown outcome
2  a numbered producer in batches; a consumer group, whose members follow each other, and a pipeline read them
3  output of the pipeline from 2, in transactions; each eleventh is rolled back, and its inputs are read again

Every value is read twice during the run (0, 1, 3: at the tail, committed and uncommitted; 2: by the group and by the
pipeline), and once from each node at the end. Each node has a copy of it. Leaders change. A partition takes a thousand
values a second. Rows are in the order of time, as a run writes them.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from chaos.history.history import schema_of
from chaos.history.tables import COMMITTED, FAIL, INFO, OK, READ, TABLES, UNCOMMITTED, WRITE

np: Any = numpy  # numpy's types for arrays do not help here

STEP_NS = 1_000_000
"""Time from one value of a partition to the next."""
NODES = (1, 2, 3)
OF_A_FOUR = 4
OPERATIONS_OF_A_VALUE = 6
"""Operations for each value: sent, read twice, drained from each node."""

OF_A_BATCH, OF_A_POLL, OF_A_DRAIN, OF_A_QUESTION = 10, 10, 500, 100
OF_A_SESSION, OF_A_MEMBER, UNCOMMITTED_YET = 10_000, 2_000, 20
OF_A_ROUND = 11
"""Transactions of a round: the last but one is rolled back, and the last one does its work again."""
TERMS = 5
LAG_NS = 40 * STEP_NS

Tables = dict[str, pa.Table]


def values_for(operations: int, partitions: int) -> int:
    """Return how many values each partition needs for so many operations in all of them."""
    return max(operations // OPERATIONS_OF_A_VALUE // partitions, 200)


def make(operations: int, partitions: int = 8) -> Tables:
    """Make the tables of a history. `partitions`: a multiple of four."""
    assert partitions % OF_A_FOUR == 0, partitions
    each = values_for(operations, partitions)
    story = Story(each)
    for first in range(0, partitions, OF_A_FOUR):
        _numbered(story, first)
        _plain(story, first + 1)
        _batches(story, first + 2)
        _pipeline(story, first + 3, first + 2)
    _metadata(story)
    return story.tables()


def operations_in(tables: Tables) -> int:
    """Count the values that were sent or read."""
    return int(tables["sends"].num_rows + tables["reads"].num_rows)


def write(tables: Tables, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        parquet.write_table(table, directory / f"{name}.parquet")


class Story:
    """Builder of the tables. `each`: values of a partition. A column is an array, or one value for all rows."""

    def __init__(self, each: int) -> None:
        self.each = each
        self.end_ns = (each + 1) * STEP_NS + 10 * LAG_NS
        self._calls = 1
        self._parts: dict[str, list[tuple[Any, pa.Table]]] = defaultdict(list)

    def add(self, table: str, at_ns: Any, **columns: Any) -> None:
        """Add rows to a table. `at_ns`: when each row was written."""
        schema = schema_of(TABLES[table])
        arrays = [_column(columns.get(field.name), field.type, len(at_ns)) for field in schema]
        self._parts[table].append((at_ns, pa.Table.from_arrays(arrays, schema=schema)))

    def calls(self, f: str, process: Any, begun_ns: Any, took_ns: int, outcome: str = OK) -> Any:
        """Add calls and return their ids. Calls of the same process are in the order of its rows."""
        numbers = np.arange(self._calls, self._calls + len(begun_ns))
        self._calls += len(begun_ns)
        self.add(
            "ops", begun_ns + took_ns, op_id=numbers, process=process, f=f, type=outcome, t_inv_ns=begun_ns,
            t_end_ns=begun_ns + took_ns, deadline_ns=begun_ns + 10_000_000_000,
        )  # fmt: skip
        return numbers

    def tables(self) -> Tables:
        found = {}
        for name, kind in TABLES.items():
            parts = self._parts[name]
            whole = pa.concat_tables([schema_of(kind).empty_table(), *(part for _, part in parts)])
            if parts:
                whole = whole.take(pa.array(np.argsort(np.concatenate([at for at, _ in parts]), kind="stable")))
            found[name] = whole.combine_chunks()
        return found


def _column(given: Any, kind: pa.DataType, rows: int) -> pa.Array:
    if isinstance(given, pa.Array):
        return given
    if isinstance(given, np.ndarray):
        return pa.array(given, type=kind)
    return pa.repeat(pa.scalar(given, type=kind), rows)


def named(before: Any, numbers: Any, between: str = ":") -> pa.Array:
    """Join names and numbers. `before`: a text, or an array of them."""
    return pc.binary_join_element_wise(before, pc.cast(pa.array(numbers), pa.string()), between)


# ---------------------------------------------------------------- senders


def _numbered(story: Story, partition: int) -> None:
    numbers = np.arange(story.each)
    producers = named(f"p{partition}", numbers % 3, ".")
    names = named(producers, numbers // 3)
    half = story.each // 6 * 3
    later = (numbers >= half).astype(np.int64)
    columns = {"partition": partition, "epoch": later, "seq": numbers // 3 - later * (half // 3)}
    begun_ns = (numbers + 5) * STEP_NS
    again = numbers[7::50]
    chosen = {name: column[again] if isinstance(column, np.ndarray) else column for name, column in columns.items()}
    first = story.calls("produce", producers.take(again), begun_ns[again] - 3 * STEP_NS, STEP_NS, INFO)
    story.add(
        "sends", begun_ns[again], op_id=first, msg_id=names.take(again), producer=producers.take(again), outcome=INFO,
        **chosen,
    )  # fmt: skip
    calls = story.calls("produce", producers, begun_ns, 2 * STEP_NS)
    ends_ns = begun_ns + 2 * STEP_NS
    story.add("sends", ends_ns, op_id=calls, msg_id=names, producer=producers, outcome=OK, offset=numbers, **columns)
    _tails(story, partition, names, numbers, ends_ns, np.ones(story.each, bool))
    _kept(story, partition, names, numbers)


def _plain(story: Story, partition: int) -> None:
    names = named(f"p{partition}", np.arange(story.each))
    ends_ns = _sent_in_batches(story, partition, names)
    for outcome, place in ((INFO, 3), (FAIL, 7)):
        at_ns = np.arange(place, story.each, 100) * STEP_NS
        lost = named(f"p{partition}.{outcome}", np.arange(len(at_ns)))
        calls = story.calls("produce", f"p{partition}.{outcome}", at_ns, STEP_NS, outcome)
        story.add(
            "sends", at_ns + STEP_NS, op_id=calls, msg_id=lost, partition=partition,
            producer=f"p{partition}.{outcome}", outcome=outcome,
        )  # fmt: skip
    _tails(story, partition, names, np.arange(story.each), ends_ns, np.ones(story.each, bool))
    _kept(story, partition, names, np.arange(story.each))


def _batches(story: Story, partition: int) -> None:
    numbers = np.arange(story.each)
    names = named(f"p{partition}", numbers)
    _sent_in_batches(story, partition, names, epoch=0, seq=numbers)
    _group(story, partition, names)
    _kept(story, partition, names, numbers)


def _sent_in_batches(story: Story, partition: int, names: pa.Array, **columns: Any) -> Any:
    """Send the values in batches; return the times of acknowledgement."""
    numbers = np.arange(story.each)
    batches = np.arange(0, story.each, OF_A_BATCH)
    calls = story.calls("produce", f"p{partition}", batches * STEP_NS, 5 * STEP_NS)
    ends_ns = batches.repeat(OF_A_BATCH)[: story.each] * STEP_NS + 5 * STEP_NS
    story.add(
        "sends", ends_ns, op_id=calls.repeat(OF_A_BATCH)[: story.each], msg_id=names, partition=partition,
        producer=f"p{partition}", outcome=OK, offset=numbers, **columns,
    )  # fmt: skip
    return ends_ns


def _pipeline(story: Story, partition: int, source: int) -> None:
    tries = np.arange(story.each // OF_A_BATCH)
    place = tries % OF_A_ROUND
    undone = place == OF_A_ROUND - 2
    chunks = tries // OF_A_ROUND * (OF_A_ROUND - 1) + np.minimum(place, OF_A_ROUND - 2)
    worker = (tries + 1) // OF_A_ROUND  # a new worker after each roll-back
    workers, txns = named(f"w{partition}", worker, "."), named(f"t{partition}", tries, "/")
    begun_ns = tries * OF_A_BATCH * STEP_NS + 2 * LAG_NS

    numbers = np.arange(len(tries) * OF_A_BATCH)
    of_try = numbers // OF_A_BATCH
    taken = chunks[of_try] * OF_A_BATCH + numbers % OF_A_BATCH
    inputs, names = named(f"p{source}", taken), named(f"w{partition}", numbers)
    polls = story.calls("poll", workers, begun_ns, STEP_NS)
    first_of_worker = np.maximum(worker * OF_A_ROUND - 1, 0)
    story.add(
        "reads", begun_ns[of_try] + STEP_NS, op_id=polls[of_try], msg_id=inputs, crc_ok=True, partition=source,
        offset=taken, reader=workers.take(of_try), session=0, group="pipeline", generation=worker[of_try] + 1,
        isolation=COMMITTED, pos=numbers - first_of_worker[of_try] * OF_A_BATCH,
    )  # fmt: skip
    sends = story.calls("produce", workers, begun_ns + 2 * STEP_NS, 2 * STEP_NS)
    story.add(
        "sends", begun_ns[of_try] + 4 * STEP_NS, op_id=sends[of_try], msg_id=names, partition=partition,
        producer=workers.take(of_try), epoch=0, txn=txns.take(of_try), outcome=OK,
    )  # fmt: skip
    story.add(
        "inputs", begun_ns[of_try] + 4 * STEP_NS, txn=txns.take(of_try), msg_id=names, source_partition=source,
        source_offset=taken, source_msg_id=inputs,
    )  # fmt: skip
    ends = np.empty(len(tries), np.int64)
    for decision, which in (("commit", ~undone), ("abort", undone)):
        these = np.flatnonzero(which)
        at_ns = begun_ns[these] + 5 * STEP_NS
        ends[these] = story.calls(f"txn-{decision}", workers.take(these), at_ns, STEP_NS)
        story.add(
            "transactions", at_ns + STEP_NS, txn=txns.take(these), process=workers.take(these), op_id=ends[these],
            decision=decision, outcome=OK, t_begin_ns=begun_ns[these],
        )  # fmt: skip
    kept = np.flatnonzero(~undone)
    story.add(
        "commits", begun_ns[kept] + 6 * STEP_NS, op_id=ends[kept], group="pipeline", member=workers.take(kept),
        generation=worker[kept] + 1, partition=source, offset=chunks[kept] * OF_A_BATCH + OF_A_BATCH - 1,
        txn=txns.take(kept),
    )  # fmt: skip
    offsets = numbers + of_try  # a gap of one offset after each transaction
    _tails(story, partition, names, offsets, begun_ns[of_try] + 6 * STEP_NS, ~undone[of_try])
    _kept(story, partition, names, offsets, ~undone[of_try])


# ---------------------------------------------------------------- readers


def _tails(story: Story, partition: int, names: pa.Array, offsets: Any, there_ns: Any, counts: Any) -> None:
    """Add readers at the tail. `there_ns`: when values become readable; `counts`: those for committed readers."""
    for isolation, reader, chosen in (
        (COMMITTED, f"tail-{partition}", np.flatnonzero(counts)),
        (UNCOMMITTED, f"dirty-{partition}", np.arange(len(offsets))),
    ):
        numbers = np.arange(len(chosen))
        _read(
            story, "poll", reader, OF_A_POLL, there_ns[chosen] + LAG_NS, msg_id=names.take(chosen), partition=partition,
            offset=offsets[chosen], reader=reader, session=numbers // OF_A_SESSION, pos=numbers % OF_A_SESSION,
            isolation=isolation,
        )  # fmt: skip
    asked = np.arange(OF_A_QUESTION, len(offsets), OF_A_QUESTION)
    calls = story.calls("latest", f"q{partition}", there_ns[asked] - STEP_NS // 2, STEP_NS // 4)
    reached = offsets[np.minimum(asked + OF_A_BATCH, len(offsets) - 1)] + 1
    story.add(
        "watermarks", there_ns[asked], op_id=calls, process=f"q{partition}", partition=partition, earliest=0,
        latest=reached, stable=np.maximum(offsets[asked] - OF_A_BATCH, 0),
    )  # fmt: skip


def _group(story: Story, partition: int, names: pa.Array) -> None:
    """Add a consumer group: each member reads some events beyond its last commit, and the next one reads them again."""
    numbers = np.arange(story.each)
    beyond = numbers[(numbers >= OF_A_MEMBER) & (numbers % OF_A_MEMBER < UNCOMMITTED_YET)]
    taken = np.concatenate([numbers, beyond])
    claim = np.concatenate([numbers // OF_A_MEMBER + 1, beyond // OF_A_MEMBER])
    order = np.lexsort((taken, claim))
    taken, claim = taken[order], claim[order]
    members = named(f"m{partition}", claim, ".")
    _read(
        story, "poll", members, OF_A_POLL, taken * STEP_NS + LAG_NS, msg_id=names.take(taken), partition=partition,
        offset=taken, reader=members, session=0, group="g", generation=claim, isolation=COMMITTED,
        pos=np.arange(len(taken)) - np.searchsorted(claim, claim),
    )  # fmt: skip
    done = np.arange(OF_A_BATCH * 2 - 1, story.each, OF_A_BATCH * 2)
    claim = done // OF_A_MEMBER + 1
    members = named(f"m{partition}", claim, ".")
    at_ns = done * STEP_NS + LAG_NS + STEP_NS // 4
    calls = story.calls("commit", members, at_ns, STEP_NS // 4)
    story.add(
        "commits", at_ns + STEP_NS // 4, op_id=calls, group="g", member=members, generation=claim, partition=partition,
        offset=done,
    )  # fmt: skip


def _read(story: Story, f: str, process: Any, of_a_call: int, there_ns: Any, **columns: Any) -> None:
    """Add calls that read. `there_ns`: when each value became readable."""
    rows = len(there_ns)
    lasts = np.minimum(np.arange(0, rows, of_a_call) + of_a_call, rows) - 1
    processes = process.take(lasts) if isinstance(process, pa.Array) else process
    ends_ns = there_ns[lasts] + STEP_NS // 4
    calls = story.calls(f, processes, ends_ns - STEP_NS // 2, STEP_NS // 2)
    place = np.arange(rows) // of_a_call
    story.add("reads", ends_ns[place], op_id=calls[place], crc_ok=True, **columns)


def _kept(story: Story, partition: int, names: pa.Array, offsets: Any, counts: Any = None) -> None:
    """Add the drains from each node, the copies in their stores, and the leaders of the partition."""
    top = offsets[-1] + 1
    chosen = np.arange(len(offsets)) if counts is None else np.flatnonzero(counts)
    for node in NODES:
        reader = f"drain-{partition}-node-{node}"
        _read(
            story, "drain", reader, OF_A_DRAIN, np.full(len(chosen), story.end_ns + node * STEP_NS),
            msg_id=names.take(chosen), partition=partition, offset=offsets[chosen], reader=reader, session=0,
            isolation=COMMITTED, pos=np.arange(len(chosen)), node=node,
        )  # fmt: skip
        story.add(
            "replica_dump", np.full(len(offsets), story.end_ns + node), node=node, partition=partition, offset=offsets,
            term=1 + offsets * TERMS // top, msg_id=names, crc=offsets * 7919 % (1 << 32),
        )  # fmt: skip
    terms = np.arange(1, TERMS + 1)
    led_ns = (terms - 1) * story.each // TERMS * STEP_NS
    story.add(
        "leaders", led_ns, group_id=partition, partition=partition, term=terms, node=terms % len(NODES) + 1, t_ns=led_ns
    )


def _metadata(story: Story) -> None:
    """Add faults, and an operator that changes and reads a log's configuration."""
    begun_ns = np.arange(4) * (story.end_ns // 4)
    times = {
        f"t_{name}_ns": begun_ns + place * 10 * STEP_NS
        for place, name in enumerate(("injecting", "injected", "healing", "healed"))
    }
    story.add(
        "faults", begun_ns, id=named("F1", np.arange(4), "."), kind="F1 kill leader", target="node 1",
        leaves_majority=True, **times,
    )  # fmt: skip
    told = np.arange(100)
    at_ns = told * (story.end_ns // 100)
    for f, called, later_ns in ((WRITE, "alter", 0), (READ, "describe", STEP_NS)):
        calls = story.calls(called, "operator", at_ns + later_ns, STEP_NS // 2)
        story.add(
            "registers", at_ns + later_ns, op_id=calls, register="retention", f=f, value=told + 1, type=OK,
            t_inv_ns=at_ns + later_ns, t_end_ns=at_ns + later_ns + STEP_NS // 2,
        )  # fmt: skip

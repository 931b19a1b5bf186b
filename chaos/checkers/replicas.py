"""Checkers C15 and C18: each term has one leader, and all replicas are equal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chaos.checkers.verdict import Anomaly, Checker
from chaos.checkers.view import View
from chaos.history.tables import OK, LeaderRow, ReplicaDumpRow, SendRow


def one_leader(view: View) -> Iterator[Anomaly]:
    """Check that no term has two leaders, and that no old term acknowledges events sent after a newer term did."""
    first: dict[tuple[int, int], LeaderRow] = {}
    for row in view.history.leaders:
        one = first.setdefault((row.group_id, row.term), row)
        if one.node != row.node:
            yield Anomaly(
                f"nodes {one.node} and {row.node} both led term {row.term} of group {row.group_id}", row.partition, (),
                row.t_ns,
            )  # fmt: skip
    terms = {(row.partition, row.msg_id): row.term for row in view.history.replica_dump}
    by_partition: dict[int, list[tuple[int, SendRow]]] = defaultdict(list)
    for send in view.history.sends:
        if send.outcome == OK and len(view.sends_of[send.msg_id]) == 1 and (send.partition, send.msg_id) in terms:
            by_partition[send.partition].append((terms[send.partition, send.msg_id], send))
    for partition, rows in sorted(by_partition.items()):
        yield from _late_terms(view, partition, rows)


def _late_terms(view: View, partition: int, rows: list[tuple[int, SendRow]]) -> Iterator[Anomaly]:
    by_end = sorted(rows, key=lambda row: view.ops[row[1].op_id].t_end_ns or 0)
    ended, highest = 0, None
    for term, send in sorted(rows, key=lambda row: view.ops[row[1].op_id].t_inv_ns):
        begun_ns = view.ops[send.op_id].t_inv_ns
        while ended < len(by_end) and (view.ops[by_end[ended][1].op_id].t_end_ns or 0) < begun_ns:
            if highest is None or by_end[ended][0] > highest[0]:
                highest = by_end[ended]
            ended += 1
        if highest is not None and term < highest[0]:
            yield Anomaly(
                f"{send.msg_id} was taken in term {term}, after {highest[1].msg_id} had been acknowledged in term "
                f"{highest[0]}",
                partition, (highest[1].op_id, send.op_id), begun_ns,
            )  # fmt: skip


def replicas_equal(view: View) -> Iterator[Anomaly]:
    copies: dict[int, dict[int, dict[int, ReplicaDumpRow]]] = defaultdict(lambda: defaultdict(dict))
    for row in view.history.replica_dump:
        copies[row.partition][row.node][row.offset] = row
    for partition, by_node in sorted(copies.items()):
        nodes = sorted(by_node)
        start = max(min(by_node[node]) for node in nodes)
        reference = by_node[nodes[0]]
        for node in nodes[1:]:
            other = by_node[node]
            for offset in sorted(reference.keys() | other.keys()):
                here, there = reference.get(offset), other.get(offset)
                if offset >= start and _differ(here, there):
                    yield Anomaly(
                        f"offset {offset}: node {nodes[0]} has {_told(here)}, node {node} has {_told(there)}", partition
                    )


def _differ(here: ReplicaDumpRow | None, there: ReplicaDumpRow | None) -> bool:
    if here is None or there is None:
        return True
    return (here.term, here.msg_id, here.crc) != (there.term, there.msg_id, there.crc)


def _told(row: ReplicaDumpRow | None) -> str:
    return "nothing" if row is None else f"{row.msg_id} of term {row.term}, checksum {row.crc:08x}"


def _replicas(view: View) -> int:
    """Count the events of partitions that more than one node has."""
    nodes: dict[int, set[int]] = defaultdict(set)
    for row in view.history.replica_dump:
        nodes[row.partition].add(row.node)
    return sum(len(nodes[row.partition]) > 1 for row in view.history.replica_dump)


CHECKERS = [
    Checker("C15", "one leader for each term", lambda view: len(view.history.leaders), one_leader),
    Checker("C18", "replicas are alike", _replicas, replicas_equal),
]

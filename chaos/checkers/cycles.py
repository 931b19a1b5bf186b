"""C14's graph of calls, ordered by reads and by time; a correct history has no cycle in it.

Vertices are calls that sent or read something; the calls of one transaction are one vertex. An edge goes from the
sender of a value to each reader of it, and from a call that ended to each call that began later. The edges of time
would be quadratic in number. So calls hang on a line of moments: an edge goes from a call to the moment of its end,
from a moment to the next, and from a moment to the calls that began at it. A cycle is a strongly connected component
with more than one vertex (Tarjan).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.checkers.view import View

STEPS_SHOWN = 6


@dataclass(frozen=True)
class Circle:
    steps: list[str]
    ops: tuple[int, ...]


def cycles(view: View) -> Iterator[Circle]:
    vertex_of = _vertices(view)
    edges = _edges(view, vertex_of)
    for component in _components(edges):
        calls = [vertex for vertex in component if not vertex.startswith("@")]
        if len(calls) > 1:
            ops = [op_id for op_id, vertex in vertex_of.items() if vertex in calls]
            yield Circle(sorted(calls)[:STEPS_SHOWN], tuple(sorted(ops)[:STEPS_SHOWN]))


def _vertices(view: View) -> dict[int, str]:
    """Map each call to its vertex: its own, or that of its transaction."""
    found: dict[int, str] = {}
    for send in view.history.sends:
        found[send.op_id] = f"txn {send.txn}" if send.txn else f"call {send.op_id}"
    for one in view.history.transactions:
        found[one.op_id] = f"txn {one.txn}"
    for read in view.history.reads:
        found.setdefault(read.op_id, f"call {read.op_id}")
    return found


def _edges(view: View, vertex_of: dict[int, str]) -> dict[str, set[str]]:
    edges: dict[str, set[str]] = defaultdict(set)
    begun: dict[str, int] = {}
    ended: dict[str, int | None] = {}
    for op_id, vertex in vertex_of.items():
        op = view.ops.get(op_id)
        if op is None:
            continue
        begun[vertex] = min(begun.get(vertex, op.t_inv_ns), op.t_inv_ns)
        end = op.t_end_ns if op.type == "ok" else None  # a call without an answer may take effect later
        before = ended.get(vertex, 0)
        ended[vertex] = None if end is None or before is None else max(before, end)
    moments = sorted(set(begun.values()))
    for here, there in itertools.pairwise(moments):
        edges[f"@{here}"].add(f"@{there}")
    for vertex, at_ns in begun.items():
        edges[f"@{at_ns}"].add(vertex)
        end_ns = ended[vertex]
        place = len(moments) if end_ns is None else bisect_left(moments, end_ns + 1)
        if place < len(moments):
            edges[vertex].add(f"@{moments[place]}")
    for read in view.history.reads:
        for send in view.sends_of.get(read.msg_id, ()):
            # The reader may have got any of several attempts; only an edge from the first one is certain.
            if send is view.sends_of[read.msg_id][0] and vertex_of[send.op_id] != vertex_of[read.op_id]:
                edges[vertex_of[send.op_id]].add(vertex_of[read.op_id])
    return edges


def _components(edges: dict[str, set[str]]) -> Iterator[list[str]]:
    """Tarjan's strongly connected components with more than one vertex, without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on_stack: set[str] = set()
    stack: list[str] = []
    for root in list(edges):
        if root in index:
            continue
        work: list[tuple[str, Iterator[str]]] = [(root, iter(sorted(edges.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            vertex, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[vertex])
                if low[vertex] == index[vertex]:
                    component = _popped(vertex, stack, on_stack)
                    if len(component) > 1:
                        yield component
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(sorted(edges.get(following, ())))))
            elif following in on_stack:
                low[vertex] = min(low[vertex], index[following])


def _popped(vertex: str, stack: list[str], on_stack: set[str]) -> list[str]:
    component = []
    while True:
        top = stack.pop()
        on_stack.discard(top)
        component.append(top)
        if top == vertex:
            return component

"""Seeds whose schedules are known to show what a test waits for: a mutation noticed, a crash point reached.

A test that looks for such a schedule from seed 0 on may run dozens before it meets one. It tries the seed that is
recorded here first, and the range after it, so a record that is out of date costs time and nothing else: what counts
is what the schedule shows when it is run. Schedules change whenever somebody draws once more; then
`python -m tests.simulation.mutations` finds the seeds anew and writes them down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

FILE = Path(__file__).with_name("known_seeds.txt")


def read() -> dict[str, int]:
    lines = [line.split() for line in FILE.read_text(encoding="ascii").splitlines()]
    return {kind: int(seed) for kind, seed in lines}


def write(known: Mapping[str, int]) -> None:
    FILE.write_text("".join(f"{kind} {seed}\n" for kind, seed in sorted(known.items())), encoding="ascii")


def first(kind: str, others: Iterable[int]) -> Iterator[int]:
    """The one that is known for this kind of schedules, then the others."""
    known = read().get(kind)
    if known is not None:
        yield known
    yield from (seed for seed in others if seed != known)

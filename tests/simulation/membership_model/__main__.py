"""`python -m tests.simulation.membership_model [SCOPE ...]` searches the model in full, then shows what each mutation
breaks. The bounds of each scope stand in `scopes.py`; `--most` bounds the states of a search."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from tests.simulation.membership_model.scopes import MOVE, MUTATIONS, SCOPES
from tests.simulation.membership_model.search import SearchResult, explore, walk


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.membership_model", description=__doc__)
    parser.add_argument("scopes", nargs="*", metavar="SCOPE", help=f"of {', '.join(SCOPES)} (default: all)")
    parser.add_argument("--most", type=int, default=500_000, help="states of each search (default: %(default)s)")
    parser.add_argument("--walks", type=int, default=1000, help="random ways through `move` besides, in three terms")
    arguments = parser.parse_args()
    broken = 0
    for name in arguments.scopes or SCOPES:
        began = time.process_time()
        found = explore(SCOPES[name], arguments.most)
        print(f"{name}: {found}; {time.process_time() - began:.0f} s of CPU", flush=True)
        broken += bool(found.broken)
    deep = replace(MOVE, terms=3)
    for seed in range(arguments.walks):
        found = walk(deep, seed)
        if found.broken:
            print(f"walk {seed}: {found}")
            broken += 1
    for mutation in () if arguments.scopes else MUTATIONS:
        noticed: SearchResult = explore(mutation.mutated, mutation.most, mutation.steps)
        print(f"without {mutation.without!r}: {noticed}", flush=True)
        broken += not noticed.broken
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

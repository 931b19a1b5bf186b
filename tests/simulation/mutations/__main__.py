"""`python -m tests.simulation.mutations [KIND ...]` finds a seed for each kind that has something to show, and writes
`known_seeds.txt`: run it when schedules have changed. A seed that still does is kept."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.mutations import known_seeds
from tests.simulation.runner import SHOWING, schedules_to_show, shows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutations", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="of schedules (default: all that show something)")
    chosen = parser.parse_args().kinds or SHOWING
    known, missing = known_seeds.read(), 0
    for kind in chosen:
        began, tried = time.process_time(), 0
        for tried, seed in enumerate(known_seeds.first(kind, range(schedules_to_show(kind))), 1):
            if shows(kind, seed):
                known[kind] = seed
                print(f"{kind} {seed}: {tried} tried, {time.process_time() - began:.1f} s of CPU", flush=True)
                break
        else:
            missing += 1
            known.pop(kind, None)
            print(f"{kind}: NONE of {tried}", flush=True)
        known_seeds.write({kind: seed for kind, seed in known.items() if kind in SHOWING})
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.simulation --seeds A:B` runs schedules A..B-1; the first failing one is run again with a trace."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.runner import KINDS, ScheduleTally, report, run_schedule

TELL_EVERY_S = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0:1000", help="first:last+1, default 0:1000")
    parser.add_argument("--kind", choices=sorted(KINDS), default="cluster", help="what runs (default: %(default)s)")
    parser.add_argument("--keep-going", action="store_true", help="list all failing seeds instead of one trace")
    parser.add_argument("--unmutated", action="store_true", help="the kind without its mutation")
    arguments = parser.parse_args()
    mutated = not arguments.unmutated
    first, last = (int(part) for part in arguments.seeds.split(":"))
    began, told_at = time.process_time(), time.monotonic()
    tally = ScheduleTally()
    for seed in range(first, last):
        tally.add(*run_schedule(arguments.kind, seed, mutated=mutated))
        if seed in tally.failures:
            print(f"seed {seed}: {tally.failures[seed]}", flush=True)
            if not arguments.keep_going:
                print(report(arguments.kind, seed, mutated=mutated), flush=True)
                break
        if time.monotonic() - told_at > TELL_EVERY_S:
            told_at = time.monotonic()
            print(f"... {seed + 1 - first} done, {len(tally.failures)} failed", flush=True)
    seconds = time.process_time() - began
    print(f"{arguments.kind} {first}:{last}: {tally}; {seconds:.1f} s of CPU")
    return 1 if tally.failures or not tally.counted else 0


if __name__ == "__main__":
    sys.exit(main())

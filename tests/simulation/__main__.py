"""`python -m tests.simulation --seeds A:B` runs schedules A..B-1; the first failing one is run again with a
trace."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.runner import KINDS, first_failure, run_one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", default="0:1000", help="first:last+1, default 0:1000")
    parser.add_argument("--kind", choices=sorted(KINDS), default="guarded", help="what runs (default: %(default)s)")
    parser.add_argument("--keep-going", action="store_true", help="list all failing seeds instead of one trace")
    arguments = parser.parse_args()
    first, last = (int(part) for part in arguments.seeds.split(":"))
    began = time.process_time()
    failures = 0
    if arguments.keep_going:
        for seed in range(first, last):
            failure = run_one(arguments.kind, seed)
            if failure is not None:
                failures += 1
                print(f"seed {seed}: {failure}", flush=True)
    else:
        report = first_failure(arguments.kind, range(first, last))
        if report is not None:
            failures = 1
            print(report)
    seconds = time.process_time() - began
    print(f"{arguments.kind} {first}:{last}: {failures or 'no'} failure(s), {seconds:.1f} s of CPU")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

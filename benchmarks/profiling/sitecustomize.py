"""A sampling profiler for a Python process that needs no hook in it: Python imports a module of this name at start.

It shows what limits a node under load. cProfile would not do: it doubles the cost of small functions and so distorts
their shares. Put this directory on PYTHONPATH and set HOLDFAST_PROFILE to a directory. Each process that runs the
module named by HOLDFAST_PROFILE_MODULE then writes `<pid>.json` there when it ends. A file named `begin` in that
directory makes it drop its samples so far (the process's start).

The kernel's CPU timer sends SIGPROF every few milliseconds of CPU time. The handler runs in the main thread between two
bytecodes and notes its stack. A C call is charged to the Python line that made it. The timer counts the CPU time of
*all* threads. So the weight of a sample is the CPU time that the main thread itself used since the last one. The time
of the other threads is a line of its own.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import sys
import time
from collections import Counter
from itertools import pairwise
from types import FrameType

INTERVAL_S = 0.002
ASK_EVERY = 10  # samples between two looks for the file `begin`
CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + "/"
DEPTH = 60  # deeper frames are the event loop's own


class Sampler:
    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, f"{os.getpid()}.json")
        self.self_ns: Counter[str] = Counter()
        self.total_ns: Counter[str] = Counter()
        self.other_threads_ns = 0
        self._begin_path = os.path.join(directory, "begin")
        self._samples = 0
        self._begun = False
        self._reset()

    def _reset(self) -> None:
        self.self_ns.clear()
        self.total_ns.clear()
        self.other_threads_ns = 0
        self._main_ns, self._all_ns = time.thread_time_ns(), time.process_time_ns()
        self._began_main_ns, self._began_all_ns = self._main_ns, self._all_ns

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._sample)
        signal.siginterrupt(signal.SIGPROF, False)  # C libraries need not expect interrupted system calls
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
        atexit.register(self.write)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        self._samples += 1
        if not self._begun and self._samples % ASK_EVERY == 0 and os.path.exists(self._begin_path):
            self._begun = True
            self._reset()
        main_ns, all_ns = time.thread_time_ns(), time.process_time_ns()
        weight_ns = main_ns - self._main_ns
        self.other_threads_ns += all_ns - self._all_ns - weight_ns
        self._main_ns, self._all_ns = main_ns, all_ns
        seen: set[str] = set()
        for depth in range(DEPTH):
            if frame is None:
                return
            code = frame.f_code
            name = f"{_short(code.co_filename)}:{code.co_qualname}"
            if depth == 0:
                self.self_ns[f"{name}:{frame.f_lineno}"] += weight_ns
            if name not in seen:  # recursion counts once
                seen.add(name)
                self.total_ns[name] += weight_ns
            frame = frame.f_back

    def write(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        found = {
            "command": sys.argv,
            "process_s": (time.process_time_ns() - self._began_all_ns) / 1e9,
            "main_thread_s": (time.thread_time_ns() - self._began_main_ns) / 1e9,
            "other_threads_s": self.other_threads_ns / 1e9,
            "self_s": {name: ns / 1e9 for name, ns in self.self_ns.most_common(200)},
            "total_s": {name: ns / 1e9 for name, ns in self.total_ns.most_common(200)},
        }
        with open(self._path, "w", encoding="utf-8") as file:
            json.dump(found, file)


@functools.cache
def _short(path: str) -> str:
    """Shorten a path to begin at the root of its package tree, so that profiles do not show where a checkout is."""
    for root in (CHECKOUT, "site-packages/", f"python3.{sys.version_info.minor}/"):
        _, found, after = path.partition(root)
        if found:
            return after
    return path.rpartition("/")[2]


def wanted() -> str | None:
    """Return the directory for the profile if this process is to be profiled (`python -m <module> ...`)."""
    arguments = sys.orig_argv
    module = os.environ.get("HOLDFAST_PROFILE_MODULE", "node")
    runs_it = any(pair == ("-m", module) for pair in pairwise(arguments))
    return os.environ.get("HOLDFAST_PROFILE") if runs_it else None


if directory := wanted():
    Sampler(directory).start()

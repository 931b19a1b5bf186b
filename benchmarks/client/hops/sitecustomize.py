"""Times at which a node does each step of an event's way: Python imports a module of this name at start.

Put this directory and the checkout on PYTHONPATH, and set HOLDFAST_HOPS to a directory. Each node that runs `python -m
node` then writes `<pid>.json` there when it ends: by step, the times in ns of the clock that all processes of a machine
share. Steps are methods; each is noted when it begins, and those of `ENDS` also when they end.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import sys
import time
from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import Any

STEPS = {
    "received from the client": ("node.listener.connections.connection", "Connection", "data_received"),
    "gathered": ("node.raft_loop", "TurnInput", "add"),
    "turn begun": ("node.raft_loop", "RaftLoop", "_turn"),
    "in the sync's thread": ("node.raft_loop", "RaftLoop", "_secure"),
    "back in the loop": ("node.raft_loop", "RaftLoop", "_secured"),
    "written to a node": ("cluster.rpc.raft_transport.connection", "MessageConnection", "put"),
    "received from a node": ("cluster.rpc.raft_transport.connection", "MessageConnection", "buffer_updated"),
    "written to clients": ("node.listener.connections.socket_output", "ConnectionOutput", "_flush"),
}
ENDS = {"in the sync's thread": "synced"}
"""Names for the ends of steps."""


def noted(method: Callable[..., Any], begins: array[int], ends: array[int] | None) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        begins.append(time.perf_counter_ns())
        try:
            return method(*args, **kwargs)
        finally:
            if ends is not None:
                ends.append(time.perf_counter_ns())

    return wrapper


def install(directory: str) -> None:
    times: dict[str, array[int]] = {}
    for name, (module, owner, method) in STEPS.items():
        place = getattr(importlib.import_module(module), owner)
        begins = times[name] = array("q")
        ends = times.setdefault(ENDS[name], array("q")) if name in ENDS else None
        setattr(place, method, noted(getattr(place, method), begins, ends))

    def write() -> None:
        with open(os.path.join(directory, f"{os.getpid()}.json"), "w", encoding="utf-8") as file:
            json.dump({name: found.tolist() for name, found in times.items()}, file)

    atexit.register(write)


if (where := os.environ.get("HOLDFAST_HOPS")) and ("-m", "node") in pairwise(sys.orig_argv):
    install(where)

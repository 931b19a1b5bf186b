"""Facts about the machine that the figures depend on, without the names of hosts, users or paths."""

from __future__ import annotations

import importlib.metadata
import mmap
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import psutil

SYNC_PROBES = 100
SYNC_PROBE_BYTES = 16 * 1024
GIB = 1 << 30
BACKED_BYTES = 3 * GIB
"""Most free memory to touch: about as much as a cell of the largest events writes and allocates on three nodes."""

LIBRARIES = ("python-qpid-proton", "rocksdict", "grpcio", "uvloop", "pysyncobj")


def facts(directory: Path) -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_gib": round(psutil.virtual_memory().total / GIB, 1),
        "kernel": platform.release().split("-")[0],
        "file_system": _file_system(directory),
        "sync_ms": round(sync_ms(directory), 3),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "libraries": {name: importlib.metadata.version(name) for name in LIBRARIES},
    }


def back_free_memory() -> int:
    """Touch free memory, release it, and return how many bytes that were.

    The host of a virtual machine may take back its unused memory. It then brings a page in again at its first use,
    which can cost more than a broker needs for an event. So a contestant that runs after one that freed much memory
    would look faster than one that starts on an idle machine. Touching some free memory before each cell makes them
    equal; a free page stays present for some seconds.
    """
    size = max(min(BACKED_BYTES, psutil.virtual_memory().free // 4), mmap.PAGESIZE)
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()
    return size


def sync_ms(directory: Path) -> float:
    """Measure the median time of appending 16 KiB and syncing it, on the disk of the brokers' data."""
    taken_s = []
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        for _ in range(SYNC_PROBES):
            began_s = time.perf_counter()
            os.write(file.fileno(), bytes(SYNC_PROBE_BYTES))
            os.fdatasync(file.fileno())
            taken_s.append(time.perf_counter() - began_s)
    return statistics.median(taken_s) * 1000


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(directory: Path) -> str:
    """Return the type of the directory's file system (on tmpfs a sync costs nothing)."""
    holders = {directory.resolve(), *directory.resolve().parents}
    mounts = [p for p in psutil.disk_partitions(all=True) if Path(p.mountpoint) in holders]
    return max(mounts, key=lambda p: len(p.mountpoint)).fstype if mounts else "unknown"

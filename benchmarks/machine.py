"""Facts about the machine that the figures depend on. No names: neither the host's, nor a user's, nor a path."""

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
"""About what a cell of the largest events writes on three nodes, with what the processes allocate meanwhile."""

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
    """Touch free memory and give it back, and return how many bytes that were.

    A virtual machine's memory that nobody uses may be taken back by its host, and is then brought in again page by
    page when somebody touches it: some microseconds for each 4 KiB, more than a broker needs for the event that it
    writes there. Whoever is measured after a neighbour that freed much would look twice as fast as one that starts on
    a machine at rest. So before each cell, whoever it belongs to, some free memory is made present; a free page stays
    so for some seconds.
    """
    size = max(min(BACKED_BYTES, psutil.virtual_memory().free // 4), mmap.PAGESIZE)
    mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE).close()
    return size


def sync_ms(directory: Path) -> float:
    """The median time of appending 16 KiB and syncing it: what fsync costs where the brokers keep their data."""
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
    """The type of the file system that holds the directory (tmpfs: a sync costs nothing there)."""
    holders = {directory.resolve(), *directory.resolve().parents}
    mounts = [p for p in psutil.disk_partitions(all=True) if Path(p.mountpoint) in holders]
    return max(mounts, key=lambda p: len(p.mountpoint)).fstype if mounts else "unknown"

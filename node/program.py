"""`python -m node --config FILE`: one node, until SIGTERM or SIGINT.

Prints one JSON line on stdout when it serves clients; everything else goes to the log. Exit status: 0 stopped as asked,
1 a defect, 2 wrong configuration, 3 storage damaged, foreign or full, 4 address in use, 5 stopped itself to protect the
data.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import ctypes
import gc
import logging
import os
import resource
import signal
import sys
from pathlib import Path

import uvloop

from cluster.discovery import DiscoveryError, InUse
from cluster.raft import StateDamaged
from cluster.rpc import AddressInUse
from node.config import Config, ConfigError, load
from node.server import Node, NodeStopped
from node.storage import StorageError

EXIT_DEFECT, EXIT_CONFIG, EXIT_STORAGE, EXIT_ADDRESS, EXIT_STOPPED_ITSELF = 1, 2, 3, 4, 5

MALLOC_TRIM_THRESHOLD, MALLOC_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
MIB = 1024 * 1024
SPARE_BYTES = 64 * MIB
MALLOC_MOST = 2**31 - 1
"""It takes an int of C."""

log = logging.getLogger("holdfast")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m node", description="Run one Holdfast node.")
    parser.add_argument("--config", type=Path, required=True, help="Read this configuration file (TOML).")
    arguments = parser.parse_args()
    try:
        config = load(arguments.config)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CONFIG
    _set_up_logging(config)
    _raise_file_limit()
    _keep_large_blocks(config.storage.cache_bytes)
    _spare_what_stays()
    status = _run(config)
    # What there was to close is closed. The interpreter would wait for all tasks and threads that are left, and its
    # libraries for threads of theirs. Nothing depends on them any more; one that does not end would keep the process.
    atexit._run_exitfuncs()  # they write the log out
    os._exit(status)


def _run(config: Config) -> int:
    """Run the node, and return the exit status."""
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)  # never closed: see `main`
    try:
        runner.run(_serve(config))
    except (ConfigError, DiscoveryError) as error:
        log.critical("%s", error)
        return EXIT_STORAGE if isinstance(error, InUse) else EXIT_CONFIG
    except (StorageError, StateDamaged) as error:
        log.critical("%s", error)
        return EXIT_STORAGE
    except AddressInUse as error:
        log.critical("%s", error)
        return EXIT_ADDRESS
    except NodeStopped as error:
        log.critical("%s", error)
        return EXIT_STORAGE if isinstance(error.__cause__, StorageError | StateDamaged) else EXIT_STOPPED_ITSELF
    except Exception:
        log.critical("the node ends by a defect", exc_info=True)
        return EXIT_DEFECT
    return 0


async def _serve(config: Config) -> None:
    node = Node(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        if await _started(node, stop):
            _say(node.ready_line())
            await node.run_until(stop)
    finally:
        await node.stop()


def _say(line: str) -> None:
    try:
        print(line, flush=True)
    except BrokenPipeError:
        # Whoever started the node has stopped waiting for it: it had to be let in first, or found no majority.
        log.info("nobody reads the standard output any more: %s", line)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


async def _started(node: Node, stop: asyncio.Event) -> bool:
    """False: asked to stop first. Starting takes as long as there is no majority to register with."""
    starting, asked = asyncio.ensure_future(node.start()), asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    return False


def _set_up_logging(config: Config) -> None:
    handler: logging.Handler = (
        logging.FileHandler(config.log.file, encoding="utf-8") if config.log.file else logging.StreamHandler()
    )
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=config.log.level.upper(), handlers=[handler])


def _raise_file_limit() -> None:
    """Raise the limit of file descriptors: thousands of connections and RocksDB's files need more than many shells
    give."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _keep_large_blocks(cache_bytes: int) -> None:
    """Let glibc keep large blocks instead of giving them back to the kernel. Entries and frames of up to some MiB come
    and go thousands of times a second. Taking each from the kernel costs a page fault per 4 KiB: a third of the time it
    takes to send one. Nor is the memory of the newest events given back when they are dropped with their log: the next
    ones fill it again, and a node needs room for it in any case."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return  # another C library: it has its own way
    mallopt(MALLOC_MMAP_THRESHOLD, 32 * MIB)  # the most that glibc takes
    mallopt(MALLOC_TRIM_THRESHOLD, min(cache_bytes + SPARE_BYTES, MALLOC_MOST))


def _spare_what_stays() -> None:
    """Keep modules out of garbage collections: they live as long as the process, and a collection that looks at all
    their objects holds everybody up for tens of milliseconds. None is made before: imports leave a thousand objects of
    garbage, and looking for them takes a tenth of a node's start."""
    gc.freeze()

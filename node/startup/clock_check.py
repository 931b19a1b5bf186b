"""Watch of a node's own clock: it notes the time that it has lived to see for its next process, and leads nothing while
its clock is off the cluster's time (`node/cluster_clock.py`), which it logs once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from node.admin.draining import Drain
from node.cluster_clock import ClusterClock
from node.startup.persisted_clock import ClockMemory
from node.storage import StorageError

log = logging.getLogger("holdfast.node")

LOOK_EVERY_S = 1.0
"""Seconds between looks: nodes tell each other their clocks as often."""

IS_OFF = "its clock is off"
"""Reason for leading nothing."""


async def watch_clock(
    clock: ClusterClock, memory: ClockMemory, drain: Drain, failed: Callable[[BaseException], None]
) -> None:
    """Watch the clock until cancelled."""
    told = False
    while True:
        try:
            memory.note(clock.lived_ms())
        except StorageError as error:
            failed(error)
            return
        if clock.is_off:
            drain.avoid(IS_OFF)
        if clock.is_off != told:
            told = not told
            said = "is" if told else "is no longer"
            then = "; correct it: it stamps the cluster's time and leads nothing meanwhile" if told else ""
            log.error("this node's clock %s off the cluster's time (%+.1f s)%s", said, clock.offset_ms() / 1000, then)
            if not told:
                drain.welcome(IS_OFF)
        await asyncio.sleep(LOOK_EVERY_S)

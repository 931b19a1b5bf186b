"""Schedules with transactions, in all of which crash points of the code are armed, too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING
from unittest import mock

from cluster.crash_points import intercepted
from node.client_transactions import transaction, transactional_producer
from node.client_transactions.transaction import HeldTransaction
from node.partition.transactions import participant
from node.transaction_coordinator import dead_nodes
from node.transaction_coordinator.state_machine import CoordinatorMachine
from tests.simulation.plan import Disk, LogPlan, Plan
from tests.simulation.transactions.delays import Delays
from tests.simulation.transactions.node import CrashPoints

if TYPE_CHECKING:
    from tests.simulation.schedule import Schedule

GRACES_S = (3.0, 0.0, -2.5)
"""Until partitions ask what became of a transaction, counted from the end of its time: as it is, and so soon that most
are asked about while they are open, which must not matter."""

NOTES_AFTER_S = (1.0, 0.05, 0.0)
"""Until coordinators are told of partitions whose transactions have not ended: as it is, when they are about to, or at
once."""

GONE_AFTER_S = (1.5, 0.6, 0.05)
"""Out of touch, until a node is taken for gone: as it is, and so soon that it mostly is not, which must not matter."""

EPOCHS = (3, 32767, 32767)
"""Of one producer id; with the fewest, ids go on with another one all the time."""

CRASH_POINTS = (
    "coordinator-before-register", "coordinator-after-register", "coordinator-before-add", "coordinator-after-add",
    "partition-after-begin", "partition-after-stageoffset", "coordinator-before-end", "coordinator-after-end",
    "coordinator-after-a-marker", "partition-after-marker", "coordinator-before-complete", "coordinator-after-complete",
    "coordinator-before-expire", "coordinator-after-expire", "manager-before-end", "manager-after-end",
)  # fmt: skip
"""All that there are in the code of transactions."""

QUESTIONS = (
    "Begin", "AddPartitions", "append", "StageOffset", "NoteAndEnd", "EndTransaction", "WriteMarker", "AskOutcome",
)  # fmt: skip
"""What goes from one party to another about one transaction."""

OF_GROUPS = tuple(
    f"coordinator-{when}-{what}"
    for what in ("open-group", "join-group", "prepare-member", "commit-group")
    for when in ("before", "after")
) + ("coordinator-before-expire-lease", "coordinator-before-expire-group")  # fmt: skip
"""And in that of transaction groups."""


def transactional(plan: Plan) -> Plan:
    """Partitions and coordinators change leaders under transactions; clocks are right."""
    unharmed = dict.fromkeys(("days", "clock", "flip", "sync_error", "slow_disk"), 0.0)
    weights = {**plan.weights, **unharmed, "crash": 1.0, "bounce": 1.5, "transfer": 1.0, "start": 5.0, "heal": 3.0}
    options = replace(plan.options, checkpoint_entries=min(plan.options.checkpoint_entries, 20))
    log = LogPlan(3 if plan.producers == 3 else 2, 3, plan.logs[0].retention_bytes)
    changed = plan.varied(nodes=3 if plan.nodes < 6 else 4, logs=(log,))
    calm = changed.varied(calm_start=True, core_first=False, disk="memory", admin_every_s=1000.0, skew_ms=5)
    slow = calm.varied(latency_s=min(plan.latency_s, 0.01), slow_syncs=0.03, impatience=0.0, producers=1)
    rare = slow.varied(chaos_s=4.0, fault_every_s=max(0.15, plan.fault_every_s), send_every_s=0.4, read_every_s=0.5)
    return rare.varied(weights=weights, options=options, transactions=True, woken_within_s=0.005)


def undisturbed(plan: Plan) -> Plan:
    """Nodes that have ended are started again; nothing else happens by chance."""
    weights = dict.fromkeys(plan.weights, 0.0) | {"start": 4.0, "heal": 1.0}
    return transactional(plan).varied(weights=weights, wild=False, bounce_voters=0.0, latency_s=0.002)


def by_links(plan: Plan) -> Plan:
    """Clients are at any node, also behind gateways. Half of the disks are files, of which a loss of power leaves what
    was synced."""
    changed = transactional(plan)
    disk: Disk = "journal" if int(plan.chaos_s * 1e7) % 2 else "memory"  # without another draw
    synced = changed.varied(power_loss=True, keeps_writes=False, options=replace(changed.options, durability="fsync"))
    return synced.varied(gateways=True, disk=disk)


@contextlib.contextmanager
def around(
    schedule: Schedule, *, crash_points: Sequence[str] = CRASH_POINTS, delayed: str = "", early: bool = False
) -> Iterator[None]:
    """Holders' names are drawn by counting, so that a schedule replays exactly. `early`: of the answers to ends."""
    numbers, choice = count(), schedule.randomness.choice
    schedule.crash_points = CrashPoints(schedule, crash_points)
    schedule.delays = Delays(schedule, delayed)
    with (
        intercepted(schedule.crash_points.reached),
        mock.patch.object(transactional_producer.secrets, "token_hex", side_effect=lambda _: f"{next(numbers):024}"),
        mock.patch.object(HeldTransaction, "answers_early", early),
        mock.patch.object(participant, "GRACE_S", choice(GRACES_S)),
        mock.patch.object(transaction, "NOTE_AFTER_S", choice(NOTES_AFTER_S)),
        mock.patch.object(dead_nodes, "GONE_AFTER_S", choice(GONE_AFTER_S)),
        mock.patch.dict(CoordinatorMachine.__init__.__kwdefaults__, epochs=choice(EPOCHS)),
    ):
        yield

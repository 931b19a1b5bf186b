"""Schedules that are rich in something, for mutations and for the bare library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

from pysyncobj import syncobj as library

from tests.simulation.plan import LogPlan, Plan

UNHARMED = {"flip": 0.0, "wipe": 0.0, "sync_error": 0.0}
"""No store is lost, so that nothing distracts from what crashes do."""


def as_drawn(plan: Plan) -> Plan:
    return plan


def usual_mix(plan: Plan) -> Plan:
    """As drawn; in a third of the schedules partitions move, and there is a node more for them."""
    return plan if int(plan.chaos_s * 1e8) % 3 else rebalanced(plan)


def rebalanced(plan: Plan) -> Plan:
    """Partitions of the usual clients move."""
    return plan.varied(rebalances=True, nodes=min(plan.nodes + 1, 7))


def crashing(plan: Plan) -> Plan:
    """Power is lost often."""
    weights = {**plan.weights, "crash": 3.0, "bounce": 3.0, "start": 6.0, "crash_all": 0.3, **UNHARMED}
    options = replace(plan.options, durability="fsync", eager_appends=True)
    return plan.varied(weights=weights, power_loss=True, options=options, disk="memory")


def killed(plan: Plan) -> Plan:
    """Processes die often, all at once too, and what they had not given to the system dies with them."""
    options = replace(plan.options, durability="replicated")
    weights = {**crashing(plan).weights, "crash_all": 1.0}
    return plan.varied(disk="memory", keeps_writes=True, power_loss=False, options=options, weights=weights)


def impatient(plan: Plan) -> Plan:
    """Power is lost often; a node leads several partitions, whose clients write to the others from inside an answer."""
    changed = crashing(plan).varied(nodes=3, logs=(LogPlan(6, 3, 0),), impatience=1.0, slow_syncs=0.5, send_every_s=0.1)
    return changed.varied(producers=1)


def in_bulk(plan: Plan) -> Plan:
    """Clients send faster than they are answered, and what comes for a partition with anything under way waits for
    company; nodes crash, and leaders step down, while it does."""
    weights = {**plan.weights, "transfer": 2.0, "crash": 1.0, "start": 3.0, **UNHARMED}
    changed = plan.varied(bulk_bytes=1, send_every_s=0.004, producers=3, weights=weights, disk="memory")
    return changed.varied(nodes=min(plan.nodes, 5), chaos_s=2.0)


def slowly_applying(plan: Plan) -> Plan:
    """An entry a turn is applied, so that what is committed is far ahead of it."""
    return plan.varied(options=replace(plan.options, apply_entries_per_tick=1), slow_syncs=0.5)


def on_files(plan: Plan) -> Plan:
    """The store is one of files, and a bit turns in one of them."""
    weights = {**plan.weights, "flip": 2.0, "crash": 2.0, "start": 4.0}
    return plan.varied(disk="journal", weights=weights, stale_watermark=False)


def on_files_without_power(plan: Plan) -> Plan:
    """The store is one of files, power is lost often, and the watermark does not help."""
    return crashing(plan).varied(disk="journal", stale_watermark=True)


def on_files_with_old_watermarks(plan: Plan) -> Plan:
    """Power is lost, and then a bit turns."""
    return on_files(plan).varied(power_loss=True, stale_watermark=True)


def on_failing_disks(plan: Plan) -> Plan:
    return plan.varied(weights={**plan.weights, "sync_error": 3.0, "flip": 0.0})


def replacing(plan: Plan) -> Plan:
    """Disks are replaced, and logs are trimmed without waiting for who is away."""
    weights = {**plan.weights, "wipe": 4.0, "flip": 0.0, "start": 4.0, "isolate": 1.0}
    options = replace(plan.options, trim_wait_s=0.2)
    return plan.varied(weights=weights, logs=(LogPlan(1, 3, 600),), options=options, upkeep_every_s=0.3)


def forgetting_metadata(plan: Plan) -> Plan:
    """Disks are replaced, and of the metadata's log next to nothing is kept."""
    return replacing(plan).varied(keep_metadata=1, admin_every_s=0.7)


def replacing_of_two(plan: Plan) -> Plan:
    """The same, and partitions have two replicas."""
    return replacing(plan).varied(logs=(LogPlan(2, 2, 600),))


def readmitting(plan: Plan) -> Plan:
    """One disk after the other is lost: of voters that have just voted, of members that have hardly come back. Groups
    of two, and of three or more, side by side; in some schedules logs come entry by entry, so that who is on its way
    back is so for long."""
    names = dict.fromkeys(plan.weights, 0.0)
    wild = {"replay": 3.0, "stutter": 1.0} if plan.wild else {}
    weights = {"wipe": 8.0, "bounce": 3.0, "crash": 1.0, "start": 5.0, "transfer": 1.0, "heal": 4.0}
    weights |= {"stall": 1.0, "reset": 1.0, "isolate": 0.3, "cut": 0.3, "pause": 0.3, **wild}
    nodes = min(plan.nodes, 5)
    logs = (LogPlan(1, nodes if nodes != 4 else 3, 600), LogPlan(1, 2, 600))
    changed = plan.varied(nodes=nodes, logs=logs, weights={**names, **weights}, wipe_voters=0.2, bounce_voters=0.1)
    options = replace(plan.options, trim_wait_s=0.2)
    if plan.producers == 3:  # of one, two or three
        options = replace(options, max_append_entries=1, window_messages=1)
        changed = changed.varied(latency_s=0.05, send_every_s=0.04)
    return changed.varied(options=options, chaos_s=6.0, fault_every_s=0.05, disk="memory", upkeep_every_s=0.3)


def rolled_back(plan: Plan) -> Plan:
    """Nodes come back with older copies of their disks, where somebody is left to tell."""
    names = dict.fromkeys(plan.weights, 0.0)
    weights = {"image": 6.0, "roll_back": 4.0, "stall": 1.0, "reset": 1.0, "transfer": 0.3, "heal": 1.0, "start": 1.0}
    changed = plan.varied(weights={**names, **weights}, wild=False, chaos_s=6.0, fault_every_s=0.1, disk="memory")
    return changed.varied(core_first=False, latency_s=min(plan.latency_s, 0.01), slow_syncs=0.03, bounce_voters=0.0)


def impostors(plan: Plan) -> Plan:
    """Nodes are started often, and copies of their disks from before that come in their place, or beside them."""
    names = dict.fromkeys(plan.weights, 0.0)
    weights = {"image": 6.0, "impostor": 4.0, "twin": 2.0, "bounce": 6.0, "crash": 1.0, "start": 3.0, "heal": 2.0}
    weights |= {"stall": 1.0, "reset": 1.0, "isolate": 0.5, "cut": 0.5, "transfer": 0.5, "pause": 0.3}
    logs = (LogPlan(1, 3, 600), LogPlan(1, 1, 600))
    changed = plan.varied(nodes=min(plan.nodes, 5), logs=logs, weights={**names, **weights}, wild=False, disk="memory")
    calm = changed.varied(core_first=False, calm_start=True, admin_every_s=1000.0, bounce_voters=0.1)
    return calm.varied(chaos_s=6.0, fault_every_s=0.06, latency_s=min(plan.latency_s, 0.01), tells_starts=True)


def through_gateways(plan: Plan) -> Plan:
    """Leaders change often, take little at a time, and calls between nodes break, under clients of nodes that do not
    lead. In some schedules much is under way."""
    names = dict.fromkeys(plan.weights, 0.0)
    weights = {"reset": 4.0, "stall": 1.0, "bounce": 3.0, "transfer": 3.0, "crash": 1.0, "start": 4.0, "heal": 3.0}
    weights |= {"cut": 0.5, "isolate": 0.5, "pause": 1.0}
    changed = plan.varied(nodes=min(plan.nodes, 5), logs=(LogPlan(1, 3, 0),), weights={**names, **weights})
    options = replace(plan.options, max_uncommitted_bytes=1000)
    calm = changed.varied(wild=False, disk="memory", calm_start=True, core_first=False, admin_every_s=1000.0)
    fast = calm.varied(chaos_s=6.0, fault_every_s=0.1, send_every_s=0.02, read_every_s=0.1, producers=1)
    return fast.varied(latency_s=max(plan.latency_s, 0.01), options=options, gateways=True)


def over_streams(plan: Plan) -> Plan:
    """Connections break, stall and fall silent; frames hold a few messages, and little may wait; but, as in production,
    an append fits in what may."""
    names = dict.fromkeys(plan.weights, 0.0)
    weights = {"reset": 5.0, "stall": 3.0, "bounce": 2.0, "crash": 1.0, "start": 4.0, "heal": 3.0, "cut": 1.0}
    weights |= {"isolate": 0.5, "transfer": 1.0}
    changed = plan.varied(nodes=min(plan.nodes, 5), weights={**names, **weights}, wild=False, disk="memory")
    calm = changed.varied(calm_start=True, core_first=False, admin_every_s=1000.0, bounce_voters=0.0)
    options = replace(plan.options, max_append_bytes=500)
    return calm.varied(chaos_s=4.0, fault_every_s=0.1, streams=True, options=options)


def quiet(plan: Plan) -> Plan:
    """Hardly anybody comes, so that groups fall silent; nodes go away, stand still, or are cut off on one side."""
    names = dict.fromkeys(plan.weights, 0.0)
    weights = {"isolate": 3.0, "cut": 3.0, "stall": 2.0, "pause": 2.0, "crash": 1.0, "start": 3.0, "bounce": 1.0}
    weights |= {"heal": 3.0, "reset": 0.5, "transfer": 0.5, "wipe": 0.3}
    changed = plan.varied(weights={**names, **weights}, logs=(LogPlan(3, 3, 0),), disk="memory", send_every_s=0.3)
    options = replace(plan.options, quiesce_after_s=0.05)
    slow = changed.varied(options=options, chaos_s=8.0, fault_every_s=0.5, read_every_s=2.0, admin_every_s=1000.0)
    return slow.varied(upkeep_every_s=5.0, producers=1, calm_start=True)


def peaceful(plan: Plan) -> Plan:
    """The same, and in the end nobody comes at all: groups that rest are disturbed by nothing. They are asked to rest
    when the heartbeat that says that they had left has gone, as in production."""
    changed = quiet(plan)
    return changed.varied(options=replace(changed.options, quiesce_after_s=0.3), peace_s=2.0)


def mixed(plan: Plan) -> Plan:
    """Nodes change between two releases at restarts, and operators try to activate the later version meanwhile."""
    names = dict.fromkeys(plan.weights, 0.0)
    weights = {"upgrade": 5.0, "downgrade": 2.0, "bounce": 2.0, "crash": 1.0, "start": 4.0, "transfer": 2.0}
    weights |= {"stall": 1.0, "reset": 2.0, "cut": 0.3, "isolate": 0.3, "heal": 2.0, "pause": 0.5, "wipe": 0.5}
    changed = plan.varied(nodes=min(plan.nodes, 5), weights={**names, **weights}, wild=False, disk="memory")
    calm = changed.varied(chaos_s=6.0, fault_every_s=0.08, admin_every_s=0.3, upkeep_every_s=0.3, calm_start=True)
    options = replace(plan.options, trim_wait_s=0.2, checkpoint_entries=min(plan.options.checkpoint_entries, 20))
    return calm.varied(options=options, latency_s=min(plan.latency_s, 0.01), logs=(LogPlan(1, 3, 600),))


SLOW_COPIES = 1 << 20
"""Bytes a second of copies that take their time: 128 small entries a second."""


def moving(plan: Plan) -> Plan:
    """Groups of one to three replicas change their members all the time, on nodes that crash and lose their disks. In a
    third of the schedules copies wait for their pace."""
    names = dict.fromkeys(plan.weights, 0.0)
    weights = {"crash": 1.0, "bounce": 2.0, "start": 5.0, "transfer": 1.0, "stall": 1.0, "reset": 1.0, "cut": 0.5}
    weights |= {"isolate": 0.7, "heal": 3.0, "pause": 0.5, "wipe": 0.7, "replay": 2.0 if plan.wild else 0.0}
    nodes = max(4, min(plan.nodes, 5))
    logs = tuple(LogPlan(1, 1 + (plan.nodes + number) % 3, 0) for number in range(2))
    changed = plan.varied(nodes=nodes, logs=logs, weights={**names, **weights}, disk="memory", moves=True)
    options = replace(plan.options, trim_wait_s=0.2, fetch_retry_s=0.1)
    if int(plan.chaos_s * 1e8) % 3 == 0:
        options = replace(options, fetch_bytes_per_s=SLOW_COPIES)
    calm = changed.varied(core_first=False, calm_start=True, options=options, admin_every_s=0.1, upkeep_every_s=0.3)
    return calm.varied(chaos_s=6.0, fault_every_s=0.15, latency_s=min(plan.latency_s, 0.01), slow_syncs=0.03)


def slowly_copying(plan: Plan) -> Plan:
    """Groups move as in `moving`, and clients write faster than a replica that is far behind gets copies."""
    changed = moving(plan)
    options = replace(changed.options, fetch_bytes_per_s=SLOW_COPIES, max_append_entries=64)
    return changed.varied(options=options, send_every_s=0.02)


def moving_pairs(plan: Plan) -> Plan:
    """Groups of two replicas get a third and lose it again, on four nodes that often lose their disks."""
    changed = moving(plan)
    weights = {**changed.weights, "wipe": 2.0, "start": 6.0, "isolate": 1.5}
    return changed.varied(nodes=4, logs=(LogPlan(1, 2, 0),) * 3, weights=weights)


def scaling(plan: Plan) -> Plan:
    """A cluster of three nodes becomes one of five, and one of three again; the metadata's state machine says how."""
    return moving(plan).varied(nodes=5, logs=(LogPlan(1, 3, 0), LogPlan(1, 1 + plan.nodes % 3, 0)))


def replacing_by_moves(plan: Plan) -> Plan:
    """A node is lost for good, others fail for a while, and all that it had goes elsewhere."""
    changed = moving(plan)
    return changed.varied(nodes=5, logs=(LogPlan(1, 3, 0), LogPlan(1, 3, 0)), weights={**changed.weights, "wipe": 0.0})


def to_and_fro(plan: Plan) -> Plan:
    """Replicas leave a node, and come back to it within a tenth of a second."""
    return moving(plan)


def slow_for_minutes(plan: Plan) -> Plan:
    """A minority of the disks is slow for minutes, and little else goes wrong."""
    names = dict.fromkeys(plan.weights, 0.0)
    weights = {"slow_disk": 1.0, "reset": 1.0, "stall": 0.3, "heal": 1.0}
    changed = plan.varied(weights={**names, **weights}, nodes=3, logs=(LogPlan(2, 3, 3000),), wild=False, disk="memory")
    calm = changed.varied(latency_s=0.002, slow_syncs=0.0, calm_start=True, skew_ms=5, send_every_s=0.15, producers=1)
    return calm.varied(chaos_s=150.0, fault_every_s=5.0, read_every_s=0.5, admin_every_s=3.0, upkeep_every_s=1.0)


def alone(plan: Plan) -> Plan:
    """Power is lost often, and partitions have one replica."""
    return crashing(plan).varied(logs=(LogPlan(1, 1, 0),))


def contested(plan: Plan) -> Plan:
    """Elections: slow links, many frames twice, leaders and voters restarted at once."""
    names = dict.fromkeys(plan.weights, 0.0)
    weights = {"bounce": 4.0, "stutter": 6.0, "reset": 2.0, "stall": 3.0, "heal": 1.0, "start": 3.0, "pause": 1.0}
    return plan.varied(weights={**names, **weights}, wild=True, latency_s=0.05, fault_every_s=0.05, bounce_voters=0.5)


def contested_by_five(plan: Plan) -> Plan:
    """Two votes that count three times make a leader of five, not of three."""
    return contested(plan).varied(nodes=5, logs=(LogPlan(1, 5, 0),), bounce_voters=0.0)


def wrong_clocks(plan: Plan) -> Plan:
    """One clock after the other is wrong by days; retention looks often."""
    weights = {**plan.weights, "days": 3.0, "bounce": 2.0, "start": 4.0}
    return plan.varied(weights=weights, skew_ms=5, upkeep_every_s=0.3)


def bare(plan: Plan) -> Plan:
    """What the bare library can take part in: no transfers, no disk of ours, no clock of its own."""
    without = dict.fromkeys(("transfer", "clock", "days", "slow_disk", *UNHARMED), 0.0)
    weights = {**plan.weights, **without, "replay": 8.0, "reset": 3.0}
    nodes = min(plan.nodes, 5)
    return plan.varied(nodes=nodes, weights=weights, wild=True, fault_every_s=0.05, chaos_s=10.0, rest="dead")


def bare_fifo(plan: Plan) -> Plan:
    """The same on links that never repeat or reorder a frame."""
    return bare(plan).varied(wild=False, weights={**bare(plan).weights, "replay": 0.0, "stutter": 0.0})


def replaying(plan: Plan) -> Plan:
    """Old frames come back often."""
    return plan.varied(weights={**plan.weights, "replay": 6.0, "reset": 3.0}, wild=True)


@contextlib.contextmanager
def library_random() -> Iterator[None]:
    """The bare library draws from the module `random`; give it the schedule's generator and the module back."""
    with mock.patch.object(library, "random", library.random):
        yield

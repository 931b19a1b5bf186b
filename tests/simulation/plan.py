"""What one schedule is made of, all drawn from its number (swarm testing).

The problem: a mix of all faults at once hides the rare ones behind the common ones. The rule: every schedule draws its
own cluster size, logs, load, options and mix of faults first, and leaves many of them out; what none of a thousand
schedules draws together is not tested together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, Literal

from cluster.raft import RaftOptions
from node.raft_loop import BULK_BYTES

Disk = Literal["memory", "journal"]
Rest = Literal["dead", "isolated", "deaf", "mute"]
"""Those that the first part of the liveness phase leaves out: down; cut off; able to send but not to hear; able to
hear but not to send."""


@dataclass(frozen=True)
class LogPlan:
    partitions: int
    replicas: int
    retention_bytes: int


@dataclass(frozen=True)
class Plan:
    """Weights are relative frequencies of faults; times are virtual seconds, mean values where something repeats."""

    nodes: int
    logs: tuple[LogPlan, ...]
    disk: Disk
    calm_start: bool
    chaos_s: float
    fault_every_s: float
    send_every_s: float
    impatience: float
    read_every_s: float
    admin_every_s: float
    upkeep_every_s: float
    producers: int
    latency_s: float
    slow_syncs: float
    bounce_voters: float
    wipe_voters: float
    weights: dict[str, float]
    wild: bool
    power_loss: bool
    skew_ms: int
    core_first: bool
    rest: Rest
    keep_metadata: int  # entries
    stale_watermark: bool
    options: RaftOptions
    tells_starts: bool = False
    """Processes say Hello, with the starts of their data, before they are heard."""

    gateways: bool = False
    """Clients send and read through nodes that do not lead, over calls between nodes."""

    transactions: bool = False
    """Writers with transactional ids write to several partitions at once."""

    streams: bool = False
    """Messages travel on the streams of production, over calls between nodes."""

    rebalances: bool = False
    """An operator moves partitions of the usual clients, by the metadata group."""

    moves: bool = False
    """Groups change their members, as a board says that stands for the metadata."""

    keeps_writes: bool = False
    """A killed process loses what it has not given to the system yet, which it does before a turn is released."""

    peace_s: float = 0.0
    """When all is healed and nobody comes, every group falls silent and stays so for so long."""

    bulk_bytes: int = BULK_BYTES
    """What comes for a partition with so much under way waits for company."""

    woken_within_s: float = 0.0005
    """That the loop of a node turns, after something arrived: what arrives until then shares the turn."""

    def varied(self, **changes: Any) -> Plan:
        return replace(self, **changes)


def draw(randomness: random.Random) -> Plan:
    choice, uniform = randomness.choice, randomness.uniform
    nodes = randomness.choices((3, 4, 5, 6, 7), (8, 2, 4, 1, 1))[0]
    wild = randomness.random() < 0.6
    disk: Disk = "journal" if randomness.random() < 0.25 else "memory"
    replicated = randomness.random() < 0.15
    plan = Plan(
        nodes=nodes,
        logs=tuple(_log(randomness, nodes) for _ in range(choice((1, 1, 1, 2)))),
        disk=disk,
        calm_start=randomness.random() < 0.85,
        chaos_s=uniform(1.5, 4.5),
        fault_every_s=choice((0.04, 0.08, 0.2)),
        send_every_s=choice((0.04, 0.08, 0.15)),
        impatience=choice((0.0, 0.2, 0.8)),
        read_every_s=choice((0.1, 0.5)),
        admin_every_s=choice((0.7, 3.0)),
        upkeep_every_s=choice((0.3, 1.0)),
        producers=choice((1, 2, 3)),
        latency_s=choice((0.002, 0.002, 0.01, 0.05)),
        slow_syncs=choice((0.03, 0.03, 0.03, 0.3)),
        bounce_voters=choice((0.0, 0.0, 0.3)),
        wipe_voters=0.0,
        weights=_weights(randomness, wild=wild, files=disk == "journal"),
        wild=wild,
        power_loss=not replicated,
        skew_ms=choice((0, 5, 60_000)),
        core_first=randomness.random() < 0.5,
        rest=choice(("dead", "isolated", "deaf", "mute")),
        options=_options(randomness, "replicated" if replicated else "fsync"),
        keep_metadata=choice((1, 4, 1000)),
        stale_watermark=randomness.random() < 0.5,
    )
    # Drawn without another draw: schedules stay what they were, and so do the seeds that are known for something.
    quiesce_after_s = (0.05, 0.1, 0.3, 1.0)[int(plan.chaos_s * 1e6) % 4]
    keeps_writes = replicated and disk == "memory" and bool(int(plan.chaos_s * 1e7) % 2)
    return plan.varied(options=replace(plan.options, quiesce_after_s=quiesce_after_s), keeps_writes=keeps_writes)


def _log(randomness: random.Random, nodes: int) -> LogPlan:
    replicas = randomness.choices((1, 2, 3, 4, 5), (1, 1, 12, 1, 3))[0]
    return LogPlan(randomness.choice((1, 1, 2)), min(replicas, nodes), randomness.choice((0, 0, 600, 3000)))


def _weights(randomness: random.Random, *, wild: bool, files: bool) -> dict[str, float]:
    choice, uniform = randomness.choice, randomness.uniform
    return {
        "stall": uniform(0.5, 3),
        "reset": uniform(0.5, 3),
        "cut": choice((0.0, 1.0)),
        "isolate": choice((0.0, 0.5, 1.0)),
        "split": choice((0.0, 0.0, 0.5)),
        "heal": 2.0,
        "crash": choice((0.0, 1.0, 3.0)),
        "crash_all": choice((0.0, 0.0, 0.2)),
        "start": 3.0,
        "pause": choice((0.0, 1.0, 2.0)),
        "replay": choice((1.0, 4.0)) if wild else 0.0,
        "stutter": choice((0.0, 1.0)) if wild else 0.0,
        "bounce": choice((0.0, 1.0)),
        "transfer": choice((0.0, 1.0)),
        "clock": choice((0.0, 0.0, 0.5)),
        "days": choice((0.0, 0.0, 0.5)),
        "flip": choice((0.0, 0.5)) if files else 0.0,
        "wipe": choice((0.0, 0.0, 0.7)),
        "sync_error": choice((0.0, 0.0, 0.5)),
        "slow_disk": choice((0.0, 0.0, 0.3)),
    }


def _options(randomness: random.Random, durability: Any) -> RaftOptions:
    choice = randomness.choice
    return RaftOptions(
        durability=durability,
        eager_appends=randomness.random() < 0.5,
        max_append_entries=choice((1, 3, 8, 1024)),
        window_messages=choice((1, 2, 64)),
        apply_entries_per_tick=choice((1, 4, 1024)),
        checkpoint_entries=choice((3, 20, 4096)),
        prefer_after_s=choice((0.3, 3.0)),
        prefer_retry_s=1.0,
        tail_cache_bytes=choice((0, 300, 1 << 20)),
        trim_wait_s=choice((0.2, 0.2, 60.0)),
        fetch_bytes=choice((100, 1000, 1 << 20)),
        fetch_retry_s=0.2,
        fetch_timeout_s=0.5,
        fetch_lease_s=choice((1.0, 30.0)),
        fetch_groups=choice((1, 4)),
    )

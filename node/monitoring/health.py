"""Health of a node: liveness, and readiness for clients.

The problem: a supervisor that restarts a node because the *cluster* has no majority makes it worse. The rule: liveness
speaks only of this process (its loop turns, its disk answers); readiness also of the cluster, and each check says what
is wrong and what to do. Rejected: one endpoint for both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from node.monitoring.node_parts import NodeParts

TURN_STUCK_S = 15.0
"""Length of a turn after which the disk does not answer any more. A turn is milliseconds, a slow sync a second."""

NAMED = 8
"""Partitions named in one message; the rest is counted."""

IN_SYNC_ENTRIES = 1024
"""Committed entries that a replica may lack and count as in sync: under load it is always some turns behind, and a
thousand entries are a fraction of a second."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    name: str
    ok: bool
    detail: str


class StartupState:
    """State of a node that is not composed yet: it looks for the others, or waits for the service that it finds them
    by."""

    def __init__(self, waiting_for: Callable[[], str]) -> None:
        self._waiting_for = waiting_for

    def live(self, now_s: float) -> list[HealthCheck]:
        return [HealthCheck("loop", True, "turns")]

    def ready(self, now_s: float) -> list[HealthCheck]:
        return [*self.live(now_s), HealthCheck("discovery", False, f"waits for {self._waiting_for()}")]


class Health:
    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts
        self.registered = False
        self.serving = False

    def live(self, now_s: float) -> list[HealthCheck]:
        started_s = self._parts.loop.turn_started_s
        took_s = 0.0 if started_s is None else now_s - started_s
        stuck = took_s > TURN_STUCK_S
        detail = f"a turn runs for {took_s:.0f} s: the disk does not answer" if stuck else "turns"
        return [HealthCheck("loop", not stuck, detail)]

    def ready(self, now_s: float) -> list[HealthCheck]:
        parts = self._parts
        leader = parts.metadata.leader
        lost = parts.partitions_without_leader()
        return [
            *self.live(now_s),
            HealthCheck("serving", self.serving, "listens" if self.serving else "starts or stops"),
            HealthCheck(
                "registered", self.registered,
                "the cluster knows this node" if self.registered
                else "not registered yet: a majority of the nodes must be up",
            ),
            HealthCheck(
                "metadata", parts.reachable(leader),
                f"led by node {leader}" if parts.reachable(leader)
                else "no leader: a majority of the nodes must be up and reach each other",
            ),
            HealthCheck(
                "partitions", not lost,
                "all have a leader" if not lost else f"{len(lost)} without a leader: {', '.join(lost[:NAMED])}",
            ),
            HealthCheck(
                "clock", not parts.clock.is_off,
                f"{parts.clock.offset_ms() / 1000:+.1f} s from the cluster's time"
                + (": correct this node's clock; it leads nothing meanwhile" if parts.clock.is_off else ""),
            ),
            HealthCheck(
                "groups", not parts.multiraft.quarantined,
                "all sound" if not parts.multiraft.quarantined
                else "in quarantine: " + ", ".join(
                    f"{parts.name_of(number)} (group {number})"
                    for number in sorted(parts.multiraft.quarantined)[:NAMED]
                ) + ": `holdfast node status` says why, docs/operate/recover.md what to do",
            ),
            HealthCheck("draining", not parts.drain.active, "being emptied" if parts.drain.active else "no"),
        ]  # fmt: skip

    def room(self) -> HealthCheck:
        """Check whether the disk has room for events. It says nothing of readiness: a full node serves readers, and
        operators that shorten retention."""
        full = self._parts.replicas.full
        return HealthCheck("disk", full is None, "has room" if full is None else full.detail)

    def data(self) -> HealthCheck:
        """Check whether the data are of one version. It says nothing of readiness: they are rewritten meanwhile."""
        migration = self._parts.migration
        versions = migration.versions
        is_one = versions.oldest == versions.newest or migration.is_of_new_data
        return HealthCheck(
            "data", is_one, f"of {versions}" + ("" if is_one else ", and being rewritten: install no later release yet")
        )

    def status(self, now_s: float) -> dict[str, Any]:
        """The node's own word on itself, for `holdfast node status` and `node health`."""
        checks = self.ready(now_s)
        return {
            "node": self._parts.node_id,
            "cluster_id": self._parts.view.cluster_id,
            "version": self._parts.version,
            "ready": all(check.ok for check in checks),
            "problems": [
                f"{check.name}: {check.detail}" for check in [*checks, self.room(), self.data()] if not check.ok
            ],
            "draining": self._parts.drain.active,
            "leads": len(self._parts.drain.led()),
            "replicas": sum(1 for _ in self._parts.replicas.all_open()),
            "behind": self.behind(),
            "data_versions": [self._parts.migration.versions.oldest, self._parts.migration.versions.newest],
            "free_bytes": self._parts.disk.free_bytes(),
            "quarantined": [
                {"group": number, "partition": self._parts.name_of(number), "reason": reason}
                for number, reason in sorted(self._parts.multiraft.quarantined.items())
            ],
        }

    def behind(self) -> list[dict[str, Any]]:
        """Replicas of the groups led here that lack more than they should."""
        found: list[dict[str, Any]] = []
        for number, group in self._parts.multiraft.groups.items():
            if not group.is_leader:
                continue
            for node, (up, lag) in self._parts.followers(group).items():
                if not up or lag > IN_SYNC_ENTRIES:
                    found.append({"partition": self._parts.name_of(number), "node": node, "up": up, "entries": lag})
        return found

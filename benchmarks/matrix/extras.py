"""Extras of `make bench` beside the rows: lone events, many idle partitions, the wait after a node is killed, and
Event Hubs' SDKs.

Each runs on clusters of its own. The goals of the last three are bounds, without a rival: seconds, cores, and CPU in
times our own client's.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from benchmarks.client import event_hubs, failover, lone
from benchmarks.matrix.goals import GoalVerdict, limited
from benchmarks.peers.base import running
from benchmarks.peers.holdfast import Holdfast
from benchmarks.subjects import partitions

LONE_S = 10.0
PARTITIONS = 1000
IDLE_S = 15.0
PUBLISH_S = 5.0
KILLED = ("Holdfast", "Kafka", "Artemis fsync, two replicas")


@dataclass(frozen=True)
class ExtraTable:
    """A table of its own, with verdicts on its goals."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    verdicts: Sequence[GoalVerdict]
    remarks: Sequence[str] = field(default_factory=tuple)


@dataclass(frozen=True)
class Extra:
    name: str
    title: str
    measure: Callable[[Path, int, Console], ExtraTable]  # directory, repeats, console


def lone_events(directory: Path, repeats: int, console: Console) -> ExtraTable:
    clusters, notes = lone.contestants(directory, None, rivals=True)
    lone.run(clusters, repeats, LONE_S, console)
    ours = clusters[0]

    def goal(part: lone.LonePart, percentile: str, other: lone.LoneCluster, of: lone.LonePart, factor: float) -> None:
        mine, theirs = ours.median_ms(part, percentile), other.median_ms(of, percentile)
        subject = f"lone events, {part.name}, {percentile}"
        sides = (f"{mine:.2f} ms", f"{other.title}, {of.name}: {theirs:.2f} ms")
        verdicts.append(GoalVerdict(subject, *sides, mine / theirs, factor, at_most=True))

    verdicts: list[GoalVerdict] = []
    for other in clusters:
        if other.title.startswith("NATS"):
            goal(lone.SLOW, "p50", other, lone.SLOW, 1.0)
            goal(lone.FAST, "p50", other, lone.FAST, 1.3)
            goal(lone.FAST, "p99", other, lone.FAST, 0.7)
    goal(lone.BESIDE, "p50", ours, lone.SLOW, 1.4)
    return ExtraTable("lone events", lone.COLUMNS, lone.rows(clusters), verdicts, notes)


def many_partitions(directory: Path, repeats: int, console: Console) -> ExtraTable:
    found = []
    for repeat in range(1, repeats + 1):
        with (
            console.status(f"{PARTITIONS:,} partitions, {repeat} of {repeats}"),
            running(peer := Holdfast("fsync", directory)),
        ):
            found.append(partitions.measure(peer, PARTITIONS, IDLE_S))
    median = partitions.medians(found)
    what = f"{PARTITIONS:,} partitions"
    verdicts = (
        limited(f"{what}, created and led", median.created_s, 60, "s"),
        limited(f"{what}, idle, three nodes together", median.idle_cores, 0.1, "cores"),
        limited(f"{what}, a node killed: p95 until led again", median.led_p95_s, 1.5, "s"),
        limited(f"{what}, a node killed: until all are led again", median.led_max_s, 3, "s"),
    )
    columns = (f"{what}, three replicas each", f"Holdfast fsync, medians of {repeats}")
    return ExtraTable(what, columns, partitions.rows(median), verdicts)


def one_failover(directory: Path, repeats: int, console: Console) -> ExtraTable:
    kills, notes = failover.measured(directory, KILLED, 2 * repeats - 1, console)
    waited_s = [kill.waited_s for kill in kills["Holdfast"]]
    verdicts = (limited(FAILOVER, statistics.median(waited_s), 0.2, "s"),) if waited_s else ()
    return ExtraTable(FAILOVER, failover.COLUMNS, failover.rows(kills), verdicts, notes)


def hubs_sdks(directory: Path, repeats: int, console: Console) -> ExtraTable:
    with console.status(SDKS), running(peer := Holdfast("fsync", directory)):
        ways, remarks = event_hubs.ways(directory)
        published = event_hubs.measure(peer, ways, repeats, PUBLISH_S)
    verdicts = tuple(
        limited(f"{one.title}: {SDKS}", event_hubs.ratio(one, published), event_hubs.GOAL, "times our client's")
        for one in published
        if one.title in event_hubs.JUDGED
    )
    return ExtraTable(SDKS, event_hubs.COLUMNS, event_hubs.rows(published), verdicts, remarks)


SDKS = "nodes' CPU for an event of 100 B through SDKs of Event Hubs"
FAILOVER = "from a kill of the leader to the next acknowledgement"

EXTRAS = (
    Extra("lone", "lone events", lone_events),
    Extra("partitions", f"{PARTITIONS:,} partitions", many_partitions),
    Extra("failover", FAILOVER, one_failover),
    Extra("event-hubs", SDKS, hubs_sdks),
)

"""Cell of the matrix: one run of one contestant in one row, with a fresh log, so that no backlog is left over."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks import machine
from benchmarks.driver.bounded import LoadPlan
from benchmarks.driver.load import Load
from benchmarks.driver.reconnecting import ReconnectingLoad
from benchmarks.matrix.contestants import Contestant
from benchmarks.matrix.rows import MIB, Row
from benchmarks.nats.bench_program import NatsBenchLoad
from benchmarks.peers import nats
from benchmarks.peers.base import PeerFailed, PeerSystem, TargetLog

WARMUP_S = 1.0
FILL_WINDOW = 10_000  # window in which a client library fills a backlog
CREDIT = 2000
READING_S = 2.0
"""A backlog is read again until all readings took so long, since a single short one is mostly chance."""
MOST_READINGS = 20
"""Most readings of a backlog, for very short ones."""
MICROSECONDS = 1_000_000
DOUBTS = ("gaps", "repeats", "foreign")  # in the events received


@dataclass(frozen=True)
class Cell:
    """The figures of one run. CPU is per acknowledged (in a backlog row: received) event."""

    row: str
    contestant: str
    events_per_s: float
    receive_events_per_s: float | None
    latency_ms: Mapping[str, float]
    cpu_us: Mapping[str, float]  # client, all; with one leader also leader, follower (mean)
    other_cores: float  # cores that other processes used meanwhile, without idle clusters
    problems: tuple[str, ...]
    driver: Mapping[str, Any]  # the driver's whole report
    idle_cores: float = 0.0  # cores that the clusters of the other contestants used meanwhile
    load: tuple[float, float] = (0.0, 0.0)  # the machine's load average (1 min), before and after
    took_s: float = 0.0  # with preparation and clean-up


def measure(row: Row, contestant: Contestant, peers: Mapping[str, PeerSystem], seconds: float) -> Cell:
    peer, began_s, load = peers[contestant.peer], time.monotonic(), os.getloadavg()[0]
    machine.back_free_memory()
    target = peer.create(contestant.kind, contestant.partitions)
    try:
        if row.mode == "backlog":
            drive(target, _fill_plan(row, target))
        plan = _plan(row, contestant, target, seconds)
        mine, idle = peer.processes(), [other for other in peers.values() if other is not peer]
        before, idle_before_s, machine_before_s = _cpu_s(mine), _idle_cpu_s(idle), _machine_cpu_s()
        report = _read(target, plan) if row.mode == "backlog" else drive(target, plan)
        used = {name: cpu - before[name] for name, cpu in _cpu_s(mine).items()}
        idle_s = max(_idle_cpu_s(idle) - idle_before_s, 0.0)
        machine_s = _machine_cpu_s() - machine_before_s
    finally:
        undeleted = _delete(peer, target)
    cell = _cell(row, contestant, target, report, used, idle_s, machine_s, undeleted)
    return dataclasses.replace(
        cell, load=(round(load, 2), round(os.getloadavg()[0], 2)), took_s=round(time.monotonic() - began_s, 1)
    )


def drive(target: TargetLog, plan: LoadPlan, began: Callable[[], None] | None = None) -> dict[str, Any]:
    """Run a plan with the target's driver. `began`: see `BoundedLoad.run`.

    Client libraries are imported only if they are needed, since Kafka's may be missing.
    """
    if target.driver == "kafka":
        from benchmarks.kafka.load import KafkaLoad

        return KafkaLoad(plan).run(began)
    if target.driver == "nats":
        from benchmarks.nats.load import NatsLoad

        return NatsLoad(plan).run(began)
    if target.driver == "nats-bench":
        return NatsBenchLoad(plan, nats.program()).run(began)
    if target.driver == "own" and target.environment is not None:
        return _drive_apart(plan, target.environment)
    if target.driver == "own":
        from benchmarks.client.driver import ClientLoad

        return ClientLoad(plan).run(began)
    if target.driver == "amqp-reconnecting":
        return ReconnectingLoad(plan).run(began)
    return Load(plan).run(began)


def _drive_apart(plan: LoadPlan, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run a plan with our own client of another environment: its driver reads the plan and writes the report."""
    command = [sys.executable, "-m", "benchmarks.client.driver"]
    done = subprocess.run(
        command, input=pickle.dumps(plan), env=os.environ | environment, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        raise PeerFailed(f"the client's process ended with {done.returncode}")
    report: dict[str, Any] = pickle.loads(done.stdout)
    return report


def _read(target: TargetLog, plan: LoadPlan) -> dict[str, Any]:
    """Read a backlog repeatedly and sum up the readings; stop after an incomplete one, and after one of a queue."""
    readings: list[dict[str, Any]] = []
    took_s = 0.0
    while len(readings) < MOST_READINGS and took_s < READING_S:
        readings.append(drive(target, plan))
        took_s += readings[-1]["receive"]["measured_s"]
        if not target.keeps or readings[-1]["receive"]["events"] != plan.count:
            break
    ends = [one["receive"] for one in readings]
    receive = ends[0] | {name: sum(end[name] for end in ends) for name in ("events", "measured_s", *DOUBTS)}
    rate = receive["events"] / max(took_s, 1e-9)
    receive |= {"readings": len(ends), "events_per_s": round(rate, 1), "mib_per_s": round(rate * plan.size / MIB, 3)}
    used = {name: sum(one[name] for one in readings) for name in ("elapsed_s", "client_cpu_s")}
    return readings[0] | used | {"receive": receive}


def _delete(peer: PeerSystem, target: TargetLog) -> list[str]:
    """Delete a log and list what went wrong; a log that stays costs disk, but the figures are valid."""
    try:
        peer.delete(target)
    except (OSError, PeerFailed) as error:
        return [f"at the end of {target.name}: {error}"]
    return []


def _plan(row: Row, contestant: Contestant, target: TargetLog, seconds: float) -> LoadPlan:
    tail = dataclasses.replace(target.tail_options, settled=True)
    start = dataclasses.replace(target.start_options, settled=True)
    bound: dict[str, Any] = {"count": row.count} if row.count else {"seconds": seconds, "warmup_s": WARMUP_S}
    window = row.window if contestant.window == "row" else None if contestant.window == "own" else contestant.window
    return LoadPlan(
        senders=0 if row.mode == "backlog" else row.senders,
        receivers=0 if row.mode == "send" else 1,
        send_urls=(target.send_url,), receive_urls=(target.receive_url,),
        size=row.size, window=window, credit=CREDIT,
        send_options=target.send_options, receive_options=start if row.mode == "backlog" else tail,
        receive_latency=row.mode == "tail",
        partitions=contestant.partitions, sending=contestant.sending, reading=contestant.reading, **bound,
    )  # fmt: skip


def _fill_plan(row: Row, target: TargetLog) -> LoadPlan:
    """Make the plan that fills a backlog: client libraries in their fastest way, AMQP links as in the other rows."""
    return LoadPlan(
        senders=1, send_urls=(target.send_url,), send_options=target.send_options,
        size=row.size, window=row.window if target.driver == "amqp" else FILL_WINDOW, count=row.count,
        sending="chunks" if target.driver == "own" else "events",
    )  # fmt: skip


def _cpu_s(processes: Mapping[Any, psutil.Process]) -> dict[Any, float]:
    found = {}
    for name, process in processes.items():
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess as error:
            raise PeerFailed(f"node {name} ended while it was measured") from error
        found[name] = times.user + times.system
    return found


def _idle_cpu_s(peers: Iterable[PeerSystem]) -> float:
    """Return the CPU seconds of all nodes of idle peers; a node that has ended does not count."""
    total_s = 0.0
    for peer in peers:
        for process in peer.processes().values():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total_s += times.user + times.system
    return total_s


def idle_cores(peers: Mapping[str, PeerSystem], seconds: float) -> dict[str, float]:
    """Measure the cores that each cluster uses while it is idle, all its processes together."""
    if not peers:
        return {}
    before_s, began_s = {name: _idle_cpu_s([peer]) for name, peer in peers.items()}, time.monotonic()
    time.sleep(seconds)
    took_s = time.monotonic() - began_s
    return {name: round((_idle_cpu_s([peer]) - before_s[name]) / took_s, 3) for name, peer in peers.items()}


def _machine_cpu_s() -> float:
    """Return the CPU seconds of all processes and the kernel since the machine started."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def _cell(
    row: Row,
    contestant: Contestant,
    target: TargetLog,
    report: dict[str, Any],
    used: dict[str, float],
    idle_s: float,
    machine_s: float,
    undeleted: list[str],
) -> Cell:
    sent, received = report.get("send"), report.get("receive")
    main = sent or received or {}
    events = max(main["events"], 1)
    followers = [cpu for name, cpu in used.items() if name != target.leader]
    used_s = {"client": report["client_cpu_s"], "all": report["client_cpu_s"] + sum(used.values())}
    if contestant.partitions == 1:
        used_s |= {"leader": used.get(target.leader, 0.0), "follower": sum(followers) / max(len(followers), 1)}
    other_cores = max(machine_s - sum(used.values()) - idle_s - report["client_cpu_s"], 0.0) / report["elapsed_s"]
    return Cell(
        row=row.name,
        contestant=contestant.title,
        events_per_s=main["events_per_s"],
        receive_events_per_s=received["events_per_s"] if received and sent else None,
        latency_ms=main.get("latency_ms", {}),
        cpu_us={name: round(seconds * MICROSECONDS / events, 2) for name, seconds in used_s.items()},
        other_cores=round(other_cores, 2),
        problems=(*_problems(sent, received), *undeleted),
        driver=report,
        idle_cores=round(idle_s / report["elapsed_s"], 2),
    )


def _problems(sent: dict[str, Any] | None, received: dict[str, Any] | None) -> list[str]:
    """List the problems that make the figures of a cell doubtful."""
    found = []
    if sent:
        reasons = sent["reasons"]
        found += [f"{number} {outcome} ({reasons.get(outcome, '-')})" for outcome, number in sent["outcomes"].items()]
        if sent["unsettled"]:
            found.append(f"{sent['unsettled']} never settled")
    if received:
        found += [f"{received[key]} {key} in receiving" for key in DOUBTS if received[key]]
    if sent and received and received["events"] < sent["events"]:
        found.append(f"{sent['events'] - received['events']} acknowledged but not received")
    return found

"""One run, from an empty directory to a verdict.

The order makes a run evidence:
 1. the cluster starts, and clients work in peace;
 2. faults strike, and everything is healed;
 3. clients finish, and replicas become level;
 4. a reader reads everything from the begin through every node;
 5. nodes stop, and their disks are read;
 6. checkers judge, from the tables alone.

Whatever happens on the way, the run leaves nothing running and keeps the history so far. The nodes of an inventory run
before and after the run, and no checker reads their disks.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos.cannot_run import CannotRun
from chaos.checkers.all import ALWAYS, Judgement, judge_run
from chaos.checkers.verdict import Result
from chaos.cluster import zookeeper
from chaos.cluster.cluster import CLASSES, ChaosCluster
from chaos.cluster.nodes import NodeFailed
from chaos.cluster.provisioned.cluster import Provisioned, ProvisionedCluster
from chaos.cluster.proxied import ProxiedCluster, Shape
from chaos.cluster.registrations import RegistrationWatch
from chaos.cluster.stores import Unreadable, stored_events
from chaos.defects.catalogue import DEFECTS
from chaos.faults import catalogue as faults
from chaos.faults import schedule
from chaos.faults.fault import Aborted, Scene
from chaos.history import history as histories
from chaos.history.recorder import Recorder
from chaos.history.tables import ComplaintRow, LeaderRow, ReplicaDumpRow
from chaos.history.values import read_value
from chaos.proxies import HOW_TO_GET, ProxyServer, find_server
from chaos.workloads import catalogue as workloads
from chaos.workloads.readers import drain
from chaos.workloads.world import LogName, World
from holdfast.client.events import ReceivedEvent

STEADY_S = 1.5
"""Time in which clients work in peace, before the first fault and after the last one."""
PROBE_EVERY_S = 1.0
PROBE_S = 10.0

REGISTERED_WITHIN_S = 60.0
"""Time that nodes have after the last fault to register again."""
OF_ZOOKEEPER = ("REG", "ZK")

Say = Callable[[str], None]


LEFT_OUT = {"C18": "left out: it reads the disks of stopped nodes, and those of an inventory run on, with their data"}
"""Reasons why a checker has nothing to judge on an inventory, by checker."""


@dataclass(frozen=True)
class RunPlan:
    """Everything that is needed to repeat a run.

    `defect`: the deliberate fault of all nodes (`chaos/defects`). `inventory`: the path of an Ansible inventory whose
    cluster is used; "": the run starts nodes of its own. `keys`: how many keys each producer of W1 has, which then
    publishes by key; 0: it names its partition."""

    workload: str
    faults: tuple[str, ...]
    seconds: float = 20.0
    seed: int = 0
    nodes: int = 3
    partitions: int = 2
    per_second: int = 50
    keys: int = 0
    durability: str = "fsync"
    defect: str = ""
    defective: int = 0  # this node only; 0: all
    inventory: str = ""

    def check(self) -> None:
        if self.defect and self.defect not in DEFECTS:
            raise CannotRun(f"{self.defect!r} is no deliberate fault; there are {', '.join(DEFECTS)}")
        if self.workload not in workloads.WORKLOADS:
            known = ", ".join(workloads.WORKLOADS)
            raise CannotRun(f"{self.workload!r} is no workload; there are {known}")
        if self.keys and self.workload != "W1":
            raise CannotRun(f"keys are for the producers of W1, not of {self.workload}: leave --keys out")
        try:
            faults.check(self.faults)
            workload = workloads.WORKLOADS[self.workload]
            faults.check_for(self.faults, self.workload, is_transactional=workload.is_transactional)
            if self.inventory:  # its nodes will tell later whether they have proxies
                faults.check_where(self.faults)
        except (faults.UnknownFault, faults.UnfitFault) as error:
            raise CannotRun(str(error)) from error
        if self.inventory and workload.needs_own_nodes:
            raise CannotRun(f"{self.workload}: {workload.needs_own_nodes}, so not with an inventory")
        if why := workload.missing():
            raise CannotRun(f"{self.workload}: {why}")
        unavailable = [one for one in self.faults if one in faults.NEED_ZOOKEEPER]
        if unavailable and (why := zookeeper.missing()):
            raise CannotRun(f"{', '.join(unavailable)}: {why}")

    @property
    def command(self) -> str:
        where = f"--inventory {shlex.quote(self.inventory)}" if self.inventory else f"--nodes {self.nodes}"
        words = [
            f"holdfast chaos run --workload {self.workload} --faults {','.join(self.faults)} {where}",
            f"--time {self.seconds:g} --seed {self.seed} --partitions {self.partitions} --rate {self.per_second}",
        ]
        if self.keys:
            words.append(f"--keys {self.keys}")
        if self.durability != "fsync":
            words.append(f"--durability {self.durability}")
        if self.defect:
            words.append(f"--defect {self.defect}")
        return " ".join(words)


@dataclass
class ChaosRun:
    """The outcome of a run: its plan, history and judgement."""

    plan: RunPlan
    directory: Path
    judgement: Judgement
    history: histories.History
    begun_ns: int
    begun_s: float  # by the wall clock
    periods: list[dict[str, Any]] = field(default_factory=list)

    @property
    def facts(self) -> dict[str, Any]:
        return {"plan": asdict(self.plan), "command": self.plan.command, "begun_s": self.begun_s,
                "begun_ns": self.begun_ns, "periods": self.periods}  # fmt: skip


def run(
    plan: RunPlan, directory: Path, *, say: Say = lambda text: None, abort_if: str | None = None,
    provisioned: Provisioned | None = None,
) -> ChaosRun:  # fmt: skip
    """Run a plan in a directory and judge it.

    `abort_if`: a shell command, tried once a second; its exit status 0 ends the run early. `provisioned`: the hosts of
    the plan's inventory, and how to reach them."""
    plan.check()
    directory.mkdir(parents=True, exist_ok=True)
    recorder = Recorder()
    begun_s = time.time()
    periods = schedule.draw(plan.faults, plan.seconds, plan.seed, plan.nodes)
    with _cluster_of(plan, directory, provisioned) as cluster:
        try:
            story = _Story(plan, cluster, recorder, periods, say, abort_if)
            story.play()
        except (NodeFailed, TimeoutError) as error:
            node = error.node if isinstance(error, NodeFailed) else 0
            recorder.history.complaints.append(ComplaintRow(node, time.monotonic_ns(), str(error)))
            say(f"the cluster did not come to itself: {error}")
        finally:
            cluster.let_go()
            history = recorder.finish()
            histories.write(history, directory / "history")
        judgement = judged(plan, history)
        if judgement.result is Result.FAILED:
            cluster.keep_logs()
    told = [{"seconds": period.seconds, "faults": period.named} for period in periods]
    return ChaosRun(plan, directory, judgement, history, recorder.begun_ns, begun_s, told)


@contextlib.contextmanager
def _cluster_of(plan: RunPlan, directory: Path, provisioned: Provisioned | None) -> Iterator[ChaosCluster]:
    """Open the cluster of a plan; it is closed however the run ends."""
    if plan.inventory:
        if provisioned is None:
            raise CannotRun(f"its nodes are those of {plan.inventory}: run its command again, with your login")
        with contextlib.closing(ProvisionedCluster(directory, provisioned)) as there:
            yield there
        return
    program = find_server()
    if program is None:
        raise CannotRun(f"there is no Toxiproxy server: {HOW_TO_GET}")
    with (
        ProxyServer(program, directory / "toxiproxy.log") as server,
        contextlib.closing(ProxiedCluster(directory, server, _shape(plan))) as own,
    ):
        yield own


def judged(plan: RunPlan, history: histories.History) -> Judgement:
    """Judge a history by what the plan's workload has to show."""
    needed, hopes = asked_of(plan)
    return explained(plan, judge_run(history, needed=needed, hopes=hopes))


def explained(plan: RunPlan, judgement: Judgement) -> Judgement:
    """Add the reason to each verdict that a run on an inventory cannot give."""
    why = LEFT_OUT if plan.inventory else {}
    verdicts = [
        replace(one, error=why[one.checker]) if one.result is Result.NODATA and one.checker in why else one
        for one in judgement.verdicts
    ]
    return replace(judgement, verdicts=verdicts)


def asked_of(plan: RunPlan) -> tuple[tuple[str, ...], Collection[str]]:
    """Return the checkers that must have something to judge, and the moments that must have occurred."""
    workload = workloads.WORKLOADS[plan.workload]
    of_faults = OF_ZOOKEEPER if faults.NEED_ZOOKEEPER & set(plan.faults) else ()
    return (*ALWAYS, *workload.needed, *of_faults), workload.hopes_in(plan.seconds)


def _shape(plan: RunPlan) -> Shape:
    defects = {plan.defective: plan.defect} if plan.defect else {}
    return Shape(
        nodes=plan.nodes,
        durability=plan.durability,
        with_disks=bool(faults.NEED_DISKS & set(plan.faults)),
        with_clocks=bool(faults.NEED_CLOCKS & set(plan.faults)),
        with_zookeeper=bool(faults.NEED_ZOOKEEPER & set(plan.faults)),
        defects=defects,
    )


class _Story:
    def __init__(
        self, plan: RunPlan, cluster: ChaosCluster, recorder: Recorder, periods: list[schedule.Period], say: Say,
        abort_if: str | None,
    ) -> None:  # fmt: skip
        self._plan, self._cluster, self._recorder = plan, cluster, recorder
        self._periods, self._say, self._abort_if = periods, say, abort_if
        self._workload = workloads.WORKLOADS[plan.workload]
        names = [cluster.log_name(number) for number in range(self._workload.logs)]
        self._logs = [LogName(name, plan.partitions, number) for number, name in enumerate(names)]
        self._groups: dict[int, int] = {}  # Raft group -> partition, as histories call it

    def play(self) -> None:
        self._say(self._cluster.beginning)
        try:
            self._cluster.start()
        except NodeFailed as error:  # no fault has struck yet
            raise CannotRun(f"{error}: see its log in {self._cluster.directory}") from error
        if isinstance(self._cluster, ProvisionedCluster):
            try:
                faults.check_where(self._plan.faults, no_links=self._cluster.no_links)
            except faults.UnfitFault as error:
                raise CannotRun(str(error)) from error
        self._cluster.spare_nodes = 1 if faults.NEED_SPARE & set(self._plan.faults) else 0
        for log in self._logs:
            self._cluster.create_log(log.name, log.partitions)
            self._groups |= {group: log.told(one) for group, one in self._cluster.groups(log.name).items()}
        with self._looking_at_registrations():
            asyncio.run(self._work())
        self._say("replicas become level, and everything is read through every node")
        for log in self._logs:
            try:
                self._cluster.wait_level(log.name)
                self._cluster.wait_decided(log.name)
            except TimeoutError as error:  # a finding; everything is read nevertheless
                self._recorder.history.complaints.append(ComplaintRow(0, time.monotonic_ns(), str(error)))
        asyncio.run(self._drain())
        self._say(self._cluster.ending)
        self._cluster.conclude()
        self._note_nodes()
        note_stored(self._recorder.history, self._cluster, self._groups)

    # ---------------------------------------------------------------- clients and faults

    async def _work(self) -> None:
        chance = random.Random(f"workload {self._plan.seed}")
        servers = {who: self._cluster.servers(who) for who in CLASSES}
        world = World(
            servers, self._logs, self._recorder, chance, self._plan.per_second, self._cluster.directory,
            keys=self._plan.keys, security=self._cluster.security, prefix=self._cluster.prefix,
        )  # fmt: skip
        await workloads.play(self._workload, world, self._strike(world, asyncio.get_running_loop()))

    async def _strike(self, world: World, loop: asyncio.AbstractEventLoop) -> None:
        """Play peace, faults, peace. Faults run in a thread, since they wait for processes."""
        await asyncio.sleep(STEADY_S)
        chance = random.Random(f"clients {self._plan.seed}")

        def crash_client() -> str:
            place = chance.randrange(len(world.crashes))
            loop.call_soon_threadsafe(world.crashes[place].set)
            return f"client {place + 1} of {len(world.crashes)}"

        scene = Scene(
            self._cluster, self._logs[0].name, random.Random(), 0.0, crash_client, world.transactional_ids
        )  # fmt: skip
        try:
            await asyncio.to_thread(self._play_schedule, scene)
        except Aborted:
            self._say("the run was broken off")
        finally:
            scene.over.set()
            await asyncio.to_thread(self._cluster.heal)
        await asyncio.sleep(STEADY_S)

    def _play_schedule(self, scene: Scene) -> None:
        with self._probing(scene):
            schedule.play(self._periods, scene, self._recorder, self._say)

    @contextlib.contextmanager
    def _looking_at_registrations(self) -> Iterator[None]:
        """Record registrations inside the block, and after it until every node is registered again or time is over."""
        cluster, rows = self._cluster, self._recorder.history.registrations
        if not isinstance(cluster, ProxiedCluster) or cluster.ensemble is None:
            yield
            return
        watch = RegistrationWatch(cluster.ensemble.address, cluster.registry, rows.extend)
        watch.start()
        try:
            yield
            with contextlib.suppress(TimeoutError):  # then the last look shows who is missing
                cluster.wait_for(cluster.all_registered, "registrations", REGISTERED_WITHIN_S)
        finally:
            watch.stop()

    @contextlib.contextmanager
    def _probing(self, scene: Scene) -> Iterator[None]:
        if self._abort_if is None:
            yield
            return
        command, ended = self._abort_if, threading.Event()

        def probe() -> None:
            while not ended.wait(PROBE_EVERY_S):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    done = subprocess.run(command, shell=True, timeout=PROBE_S, check=False, capture_output=True)
                    if done.returncode == 0:
                        scene.over.set()
                        return

        thread = threading.Thread(target=probe, name="probe", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    # ---------------------------------------------------------------- afterwards

    async def _drain(self) -> None:
        for log in self._logs:
            for node in self._cluster.nodes:
                await drain(self._recorder, log, node, self._cluster.direct(node), self._cluster.security)

    def _note_nodes(self) -> None:
        history = self._recorder.history
        for node in self._cluster.seen_nodes:
            node.look()
            now_ns = time.monotonic_ns()
            history.complaints += [ComplaintRow(node.id, now_ns, text) for text in node.complaints]
            for group, term, at_ns in node.leaderships(self._recorder.begun_ns):
                history.leaders.append(LeaderRow(group, self._groups.get(group), term, node.id, at_ns))
        history.leaders.sort(key=lambda row: row.t_ns)


def note_stored(history: histories.History, cluster: ChaosCluster, groups: Mapping[int, int]) -> None:
    """Record the events on the disks of stopped nodes, for these Raft groups (`groups`: group to partition).

    A disk that cannot be read is a finding; the other disks are read nevertheless."""
    for node, data_dir in cluster.stores().items():
        try:
            for group, partition in groups.items():
                for event in stored_events(data_dir, cluster.name, node, group):
                    value = read_value(ReceivedEvent(str(partition), "", 0, event.record, 0).body)
                    history.replica_dump.append(
                        ReplicaDumpRow(node, partition, event.offset, event.term, value.msg_id, value.crc)
                    )
        except Unreadable as error:
            history.complaints.append(ComplaintRow(node, time.monotonic_ns(), str(error)))

"""What strikes when is the seed's to say, and a part of the time nothing does."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from chaos.checkers.verdict import Result
from chaos.faults import catalogue
from chaos.faults.catalogue import CATALOGUE, NEED_LINKS, NEED_TRANSACTIONS
from chaos.faults.compounds import InsideRecovery, PowerLossThenQuorum
from chaos.faults.network import Flapping, Halves, Isolate, OneWay, Resets, Ring, Slow
from chaos.faults.schedule import FREE_SHARE, draw
from chaos.history.recorder import Recorder
from chaos.matrix import NotRun, Trial, full, run
from chaos.run import CannotRun, ChaosRun, RunPlan, asked_of
from chaos.workloads.catalogue import WORKLOADS
from chaos.workloads.world import LogName, World

CUT = (Flapping, Halves, InsideRecovery, Isolate, OneWay, PowerLossThenQuorum, Resets, Ring, Slow)
"""They harm links."""


def told(seed: int) -> list[tuple[float, str, int]]:
    return [(period.seconds, period.named, period.seed) for period in draw(("F1", "F2", "F3", "F4"), 120, seed, 5)]


def test_the_same_seed_draws_the_same() -> None:
    assert told(7) == told(7)
    assert told(7) != told(8)


@pytest.mark.parametrize("seconds", [3, 8, 20, 60, 300, 3600])
def test_a_quarter_of_the_periods_is_free_and_some_fault_always_strikes(seconds: float) -> None:
    for seed in range(20):
        periods = draw(("F1", "F16"), seconds, seed, 3)
        free = sum(not period.faults for period in periods)
        assert free == round(len(periods) * FREE_SHARE)
        assert free < len(periods)
        assert abs(sum(period.seconds for period in periods) - seconds) <= max(period.seconds for period in periods)


def test_every_wanted_fault_comes_before_any_comes_again() -> None:
    wanted = ["F1", "F2", "F3", "F4", "F7", "F8"]
    for seed in range(20):
        drawn = [fault.id for period in draw(wanted, 600, seed, 3) for fault in period.faults]
        assert sorted(drawn[: len(wanted)]) == sorted(wanted)


def test_no_fault_is_a_schedule_without_one() -> None:
    assert not any(period.faults for period in draw(("F0",), 60, 1, 3))


def test_links_heal_before_processes_and_those_before_machines() -> None:
    by_kind = {fault.id: fault.heals for _, makes in CATALOGUE.values() for fault in (make() for make in makes)}
    assert by_kind["F3"] < by_kind["F1"] < by_kind["F9"]


def test_a_ring_takes_five_nodes() -> None:
    kinds = {nodes: {type(catalogue.of("F5", random.Random(seed), nodes)) for seed in range(50)} for nodes in (3, 5)}
    assert Ring not in kinds[3]
    assert Ring in kinds[5]


def test_faults_of_coordinators_are_for_workloads_with_transactions() -> None:
    for number in NEED_TRANSACTIONS:
        RunPlan("W4", ("F1", number)).check()
        for workload in sorted(set(WORKLOADS) - {"W4"}):
            with pytest.raises(CannotRun, match=f"^{number} strikes .* transactions, and workload {workload} has none"):
                RunPlan(workload, ("F1", number)).check()
    cells = {(cell.workload, fault) for cell in full() for fault in cell.faults}
    assert {(workload, fault) for workload, fault in cells if fault in NEED_TRANSACTIONS} == {
        ("W4", fault) for fault in NEED_TRANSACTIONS
    }


async def test_a_workload_has_transactions_exactly_if_its_clients_have_transactional_ids() -> None:
    servers = {"producers": ["127.0.0.1:1"], "consumers": ["127.0.0.1:1"]}
    for workload in WORKLOADS.values():
        logs = [LogName(f"log{number}", 2, number) for number in range(workload.logs)]
        world = World(servers, logs, Recorder(), random.Random(1), 1)
        workload.cast(world)  # nobody runs
        assert bool(world.transactional_ids) == workload.is_transactional
        assert len(set(world.transactional_ids)) == len(world.transactional_ids)


def test_a_coordinators_fault_says_so_and_has_a_number_of_its_own() -> None:
    for number in NEED_TRANSACTIONS:
        for make in CATALOGUE[number][1]:
            fault = make()
            assert fault.id == number
            assert "coordinator" in fault.kind
            assert fault.leaves_majority


def test_faults_of_links_are_refused_where_nodes_go_past_the_proxies() -> None:
    for number in NEED_LINKS - NEED_TRANSACTIONS:
        with pytest.raises(CannotRun, match=f"^{number} harms the ways between nodes.*run them apart"):
            RunPlan("W1", ("F14", number)).check()
    alone = {fault.id for _, makes in CATALOGUE.values() for fault in (make() for make in makes) if type(fault) in CUT}
    assert alone <= NEED_LINKS


def test_without_zookeeper_its_faults_say_why_they_cannot_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.cluster.zookeeper.JAR", Path("/nowhere/zookeeper.jar"))
    with pytest.raises(CannotRun, match=r"^F14: no ZooKeeper: .*system-packages\.sh zookeeper"):
        RunPlan("W1", ("F1", "F14")).check()
    RunPlan("W1", ("F1",)).check()
    told: list[ChaosRun | NotRun] = []
    cells = [(0, Trial("W1", ("F14",)))]
    worst = run(cells, Path("nothing/is/written"), seconds=1, seed=1, say=print, done=told.append)
    assert worst is Result.NODATA
    [one] = told
    assert isinstance(one, NotRun)
    assert one.why.startswith("F14: no ZooKeeper")


def test_a_run_with_zookeeper_must_have_something_to_say_of_it() -> None:
    assert {"REG", "ZK"} <= set(asked_of(RunPlan("W1", ("F1", "F14")))[0])
    assert not {"REG", "ZK"} & set(asked_of(RunPlan("W1", ("F1",)))[0])


def test_an_unknown_fault_is_named() -> None:
    with pytest.raises(catalogue.UnknownFault, match="'F99' is no fault"):
        catalogue.check(["F1", "F99"])


def test_only_producers_of_events_have_keys() -> None:
    RunPlan("W1", ("F1",), keys=8).check()
    assert "--keys 8" in RunPlan("W1", ("F1",), keys=8).command
    with pytest.raises(CannotRun, match="leave --keys out"):
        RunPlan("W2", ("F1",), keys=8).check()
